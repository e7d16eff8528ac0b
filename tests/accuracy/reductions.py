# SPDX-License-Identifier: Apache-2.0
"""The reductions as their tests call them, what they reduce, and how answers are compared."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from flag_gems_overrides.operators import OPERATORS, Operator

ON_GPU = torch.cuda.is_available()
FLOATING = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
INTEGER = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)

# On the interpreter's device of 4 multiprocessors these take every way through the plan: several rows to a program,
# one, a loop, splits with one program's tile or with several, odd sizes, wide and narrow K, a tile to a warp. The first
# is upstream's.
SHAPES = [(1, 2), (), (1,), (7, 5), (64, 64), (300, 24), (3, 5000), (5000, 3), (40000,), (3, 3001, 5), (2, 700, 64)]
SHAPES += [(5, 21, 70), (50, 4, 300)]
if ON_GPU:
    SHAPES += [(4096, 256), (200, 2560, 3), (200, 40999, 3), (4, 1048577, 4), (1, 2**24), (16, 2**20), (2**20, 16)]
    SHAPES += [
        (65536, 256),
        (64, 512, 512),
        (100000, 200),
        (1024, 50257),
        (1000000, 9),
        (16, 21, 65536),
        (8, 3, 262144),
    ]

FEW = [(7, 5), (40000,), (3, 3001, 5)]


def name(value: object) -> str:
    return str(value).removeprefix("torch.").replace(" ", "")


def each(names: str, values: list) -> pytest.MarkDecorator:
    """``parametrize`` with readable ids."""
    ids = ["-".join(map(name, value)) if "," in names else name(value) for value in values]
    return pytest.mark.parametrize(names, values, ids=ids)


def draw(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    """Many equal elements, so that ties are common."""
    if dtype is torch.bool:
        return torch.rand(shape, device=device) > 0.7
    if dtype.is_floating_point:
        return torch.randn(shape, device=device).to(dtype)
    low = 0 if dtype is torch.uint8 else -100
    return torch.randint(low, 100, shape, dtype=dtype, device=device)


def draw_whole_numbers(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    """Every sum of them that has less than 2**24 elements is exact in float32."""
    return torch.randint(-1, 2, shape, device=device).to(dtype)


def draw_factors(shape: tuple[int, ...], count: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    """Factors whose product, of ``count`` of them, neither overflows nor vanishes.

    The more, the nearer to 1 they are. Up to 65536 their digits after it are many enough for roundings to be random.
    """
    factors = torch.exp(torch.randn(shape, device=device, dtype=torch.float64) / max(count, 1) ** 0.5)
    return (factors * _signs(shape, device)).to(dtype)


def draw_exact_factors(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    """Signs, with a power of two here and there: every product is exact, and every element counts."""
    few = min(0.01, 20 / max(math.prod(shape), 1))  # a half holds 2**15
    powers = (torch.rand(shape, device=device) < few) * torch.randint(-1, 2, shape, device=device)
    return _signs(shape, device).to(dtype) * torch.exp2(powers).to(dtype)


def _signs(shape: tuple[int, ...], device: str) -> torch.Tensor:
    return torch.randint(0, 2, shape, device=device) * 2 - 1


@dataclass(frozen=True)
class Reduction:
    """One operator of the family, or its norm of one order: what its row and PyTorch's schema of it say.

    Attributes:
        ours: the override, and native where that is for what the override does not support.
        native: PyTorch's overload, with the same arguments.
        public: PyTorch's function.
        dim: the type of its argument ``dim``; None if it has none.
        whole: whether it reduces a whole tensor when it is given nothing else.
        requestable: whether it has an argument ``dtype``.
        rounds: whether a result need not be one of the elements.
        selects: whether a result is one of the elements, or its position.
        ulps: how many the last operation may be off by where all before it are exact.
    """

    name: str
    ours: Callable[..., Any]
    native: Callable[..., Any]
    public: Callable[..., Any]
    dtypes: tuple[torch.dtype, ...]
    dim: str | None
    whole: bool
    requestable: bool
    rounds: bool
    selects: bool
    ulps: int

    @property
    def several(self) -> bool:
        """Whether it reduces several dimensions."""
        return self.dim is not None and "List" in self.dim

    def draw_exact(self, shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
        """Floating-point input of which every result is exact."""
        if self.name.startswith("prod"):
            return draw_exact_factors(shape, dtype, device)
        return (draw_whole_numbers if self.rounds else draw)(shape, dtype, device)

    def draw(self, shape: tuple[int, ...], count: int, dtype: torch.dtype, device: str) -> torch.Tensor:
        """Floating-point input of which every result, of ``count`` elements, is rounded."""
        if self.name.startswith("prod"):
            return draw_factors(shape, count, dtype, device)
        return draw(shape, dtype, device)


# The orders that vector_norm is tested with: each has its own combine or its own epilogue.
ORDERS = (2, 1, float("inf"), 0, -float("inf"), 3, -1.5)
# Roots and divisions of exact numbers: PyTorch multiplies by a rounded inverse on a GPU; a power has several roundings;
# float32 counts to 2**24.
_ULPS = {"mean": 2, "mean_dim": 2, "vector_norm-0": 2, "vector_norm-2": 2, "vector_norm-3": 4, "vector_norm--1.5": 4}


def _reduction(operator: Operator, *between: Any) -> Reduction:
    """``between``: what is given between the tensor and the dimensions."""
    packet, _, overload = operator.overload.partition(".")
    native = getattr(getattr(torch.ops.aten, packet), overload or "default")
    arguments = {argument.name: argument for argument in native._schema.arguments}
    dim = arguments.get("dim")
    count = 2 if "keepdim" in arguments else 1

    def called(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            dims = [[each] if dim and "List" in str(dim.type) and isinstance(each, int) else each for each in args[:1]]
            return function(x, *between, *dims, *args[1:count], **kwargs)

        return call

    elements = torch.tensor([0.1, 0.2, 0.4])
    result = _tensors(called(native)(elements, *([0] if dim else [])))[0]
    name = "-".join(map(str, (operator.name, *between)))
    return Reduction(
        name,
        called(_supported(operator, native)),
        called(native),
        called(_public(operator)),
        tuple(getattr(torch, name) for name in operator.dtypes),
        str(dim.type) if dim else None,
        dim is None or dim.has_default_value(),
        "dtype" in arguments,
        result.is_floating_point() and result not in elements,
        result in elements or (result.dtype is torch.int64 and int(result) < len(elements)),
        _ULPS.get(name, 0),
    )


def _supported(operator: Operator, native: Callable[..., Any]) -> Callable[..., Any]:
    """The override for what it supports, native for the rest."""
    override, supports = operator.load()
    judged = inspect.signature(supports).parameters

    @functools.wraps(override)
    def function(*args: Any, **kwargs: Any) -> Any:
        given = inspect.signature(override).bind(*args, **kwargs)
        given.apply_defaults()
        return (override if supports(*(given.arguments[name] for name in judged)) else native)(*args, **kwargs)

    return function


def _public(operator: Operator) -> Callable[..., Any]:
    module, *path = operator.torch_calls[0].split(".")
    return functools.reduce(getattr, path, torch if module == "torch" else torch.ops.aten)


def _tensors(result: Any) -> tuple[torch.Tensor, ...]:
    return (result,) if isinstance(result, torch.Tensor) else tuple(result)


def _reductions(operator: Operator) -> list[Reduction]:
    if operator.name == "vector_norm":
        return [_reduction(operator, order) for order in ORDERS]
    return [_reduction(operator)]


# Judged by test_moments.py, by test_pairs.py and by test_out.py; _is_all_true, which takes bool only, by the last too.
ELSEWHERE = ("var_correction", "std", "var_mean", "aminmax", "logsumexp", "_is_all_true")
REDUCTIONS = [
    op
    for row in OPERATORS.values()
    if row.family == "reduction" and row.name not in ELSEWHERE and not row.overload.endswith("out")
    for op in _reductions(row)
]


def reductions(condition: Callable[[Reduction], bool] = lambda op: True) -> pytest.MarkDecorator:
    """``parametrize`` of ``op`` by the operators that meet a condition."""
    return pytest.mark.parametrize("op", [op for op in REDUCTIONS if condition(op)], ids=lambda op: op.name)


def along(shape: tuple[int, ...]) -> Iterator[int]:
    """Every dimension."""
    return iter(range(max(len(shape), 1)))


def check(op: Reduction, x: torch.Tensor, *args: Any, **kwargs: Any) -> None:
    """The override's answer is PyTorch's."""
    actual, native = _tensors(op.ours(x, *args, **kwargs)), _tensors(op.native(x, *args, **kwargs))
    assert len(actual) == len(native)
    for ours, theirs in zip(actual, native, strict=True):
        assert_same(ours, theirs, op.ulps)


def check_everywhere(op: Reduction, x: torch.Tensor, keepdim: bool = False) -> None:
    """:func:`check` along every dimension, and whole, as far as the operator does that."""
    if op.dim is not None:
        for dim in along(x.shape):
            check(op, x, dim, keepdim)
    if op.whole:
        check(op, x)


def check_outcome(op: Reduction, x: torch.Tensor, *args: Any, **kwargs: Any) -> None:
    """The override answers as PyTorch does, or raises the same class with the same text."""
    try:
        op.native(x, *args, **kwargs)
    except Exception:
        assert_same_error(lambda: op.ours(x, *args, **kwargs), lambda: op.native(x, *args, **kwargs))
    else:
        check(op, x, *args, **kwargs)


def check_rounded(op: Reduction, x: torch.Tensor, *dim: int) -> None:
    """The override's answer is right as far as rounding allows.

    One rounding is uniform within half a unit in the last place, so n of them have a standard deviation of sqrt(n / 12)
    of it; six of those, or the worst case if that is less, are allowed, and half a unit of the result's own dtype. An
    ulp is of what the reduction makes of the elements' magnitudes. The float64 answer to float64 is rounded as often.
    """
    actual, native = op.ours(x, *dim), op.native(x, *dim)
    assert actual.dtype == native.dtype
    assert actual.shape == native.shape
    truth, magnitude = op.native(x.double(), *dim), op.native(x.double().abs(), *dim)
    n = x.shape[dim[0]] if dim and x.dim() else x.numel()
    computed_in = torch.float64 if x.dtype is torch.float64 else torch.float32
    roundings = min(n, (3 * n) ** 0.5)
    if x.dtype is torch.float64:
        roundings = min(2 * n, (6 * n) ** 0.5)
    allowed = roundings * torch.finfo(computed_in).eps * magnitude
    if x.dtype is not computed_in:
        allowed += torch.finfo(x.dtype).eps / 2 * truth.abs().clamp(min=torch.finfo(x.dtype).smallest_normal)
    excess = (actual.double() - truth).abs() / allowed
    assert (excess <= 1).all(), f"error {excess.max():.3g} times what is allowed"


def _misaligned(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x.flatten()[:1], x.flatten()])[1:].view(x.shape)


LAYOUTS = {
    "every second": lambda x: torch.stack([x, -x], -1)[..., 0],
    "transposed": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "permuted": lambda x: x.movedim(0, -1).contiguous().movedim(-1, 0),
    "rows apart": lambda x: torch.cat([x, x], -1)[..., : x.shape[-1]],
    "expanded": lambda x: x[:1].expand(x.shape),
    "misaligned": _misaligned,
}
layouts = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=[key.replace(" ", "-") for key in LAYOUTS])


def put_nans(x: torch.Tensor) -> torch.Tensor:
    """A copy with a NaN here and there, of either sign."""
    x = x.clone()
    flat = x.view(-1)
    at = torch.randint(flat.numel(), (1 + flat.numel() // 200,), device=x.device)
    flat[at] = float("nan")
    flat[at[::2]] *= -1
    return x


def assert_same(actual: torch.Tensor, native: torch.Tensor, ulps: int = 0) -> None:
    """Equal to the bit, or but for some ulps, except that a NaN is a NaN and 0.0 is -0.0; of the same dtype, shape and
    strides."""
    rtol = ulps * torch.finfo(native.dtype).eps if native.is_floating_point() else 0
    torch.testing.assert_close(actual, native, rtol=rtol, atol=0, equal_nan=True, check_stride=True)


def assert_same_error(actual, native) -> None:
    """Both callables raise the same class with the same text."""
    with pytest.raises(Exception) as expected:  # noqa: PT011 whatever PyTorch raises
        native()
    with pytest.raises(expected.type) as raised:
        actual()
    assert str(raised.value) == str(expected.value)
