# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import inspect
import logging
from pkgutil import resolve_name

import flag_gems
import pytest
import torch

import flag_gems_overrides
from flag_gems_overrides.operators import OPERATORS, select
from flag_gems_overrides.registration import native, supports, upstream
from flag_gems_overrides.registration.native import Native, outside_aten

every = pytest.mark.parametrize("override", OPERATORS.values(), ids=OPERATORS)


def test_every_name_without_arguments():
    assert select() == tuple(OPERATORS)


def test_include_and_exclude_keep_the_order_of_the_table():
    assert select(include=["prod", "softmax", "softmax"]) == ("softmax", "prod")
    assert select(include=iter(["prod"]), exclude=("prod",)) == ()
    assert select(exclude={"max", "amax"}) == tuple(name for name in OPERATORS if name not in ("max", "amax"))


@every
def test_a_row_names_what_exists(override):
    implementation, predicate = override.load()
    assert implementation.__name__ == override.name
    assert implementation.__module__ == f"flag_gems_overrides.ops.{override.module}"
    assert set(inspect.signature(predicate).parameters) <= set(inspect.signature(implementation).parameters)
    assert callable(resolve_name(override.native) if override.composition is None else outside_aten(override))
    if override.overload is None:
        assert upstream.find(override) is getattr(flag_gems, override.name)
    elif not upstream.predates(override, flag_gems):
        registered, function = upstream.rows(flag_gems).get(override.overload), upstream.find(override)
        assert registered is function or registered.__globals__[override.name] is function
    assert len(override.fixes) == len(override.defects) > 0


def test_nothing_is_installed_or_left_out_at_first():
    for override in flag_gems_overrides.catalog():
        assert not override.installed
        assert (override.left_out is not None) is upstream.predates(override, flag_gems)


SMALL = {torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2}
COMPLEX = {torch.complex64, torch.complex128}
FLOATING = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
REAL = FLOATING | {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool}


def ones(like: torch.Tensor, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(2, device=like.device, dtype=dtype)


@every
def test_the_predicate_says_yes_to_the_dtypes_of_the_row(override, device):
    predicate = override.load()[1]
    for dtype in SMALL | COMPLEX | REAL:
        x = torch.empty(2, dtype=dtype, device=device)
        arguments = alike(predicate, x, dtype)
        assert predicate(**arguments) is (str(dtype).removeprefix("torch.") in override.dtypes), dtype


@pytest.mark.parametrize(
    ("predicate", "supported"),
    [
        (lambda x: supports.softmax_backward(x, ones(x), x.dtype), {torch.float32}),
        (lambda x: supports.softmax_backward(ones(x), ones(x), x.dtype), {torch.float32, torch.float16}),
        (lambda x: supports.reduction_as(x, None), REAL),
        (lambda x: supports.reduction_as(ones(x), x.dtype), REAL),
        (lambda x: supports.layer_norm(x, None, None), FLOATING),
        (lambda x: supports.layer_norm(ones(x), x, None), FLOATING - {torch.float64}),
        (lambda x: supports.layer_norm(ones(x), None, x), FLOATING - {torch.float64}),
        (lambda x: supports.layer_norm(ones(x, torch.float16), x, x), FLOATING - {torch.float64}),
        (lambda x: supports.layer_norm(ones(x, torch.float64), x, x), {torch.float64}),
        (lambda x: supports.layer_norm_backward(x, ones(x), x, x, None, None), {torch.float32}),
    ],
)
def test_dtypes_that_differ(predicate, supported, device):
    for dtype in SMALL | COMPLEX | REAL:
        assert predicate(torch.empty(2, dtype=dtype, device=device)) is (dtype in supported), dtype


@pytest.fixture(params=["cpu", "meta"])
def elsewhere(request, device):
    """A device that flag_gems does not run on."""
    return request.param if request.param != device else "meta"


@every
def test_tensors_on_another_device_are_not_supported(override, device, elsewhere):
    predicate = override.load()[1]
    dtype = torch.float32 if "float32" in override.dtypes else getattr(torch, override.dtypes[0])
    here, there = (torch.ones(2, dtype=dtype, device=where) for where in (device, elsewhere))
    arguments = alike(predicate, here, dtype)
    assert predicate(**arguments)
    for name, argument in arguments.items():
        if isinstance(argument, torch.Tensor):
            assert not predicate(**{**arguments, name: argument.to(there.device)}), name


@every
@pytest.mark.filterwarnings("ignore:Sparse CSR", "ignore:torch.quantize_per_tensor")
def test_layouts_other_than_strided_are_not_supported(override):
    predicate = override.load()[1]
    sparse = torch.eye(2).to_sparse()
    for x in (
        sparse,
        sparse.coalesce().to_sparse_csr(),
        torch.quantize_per_tensor(torch.eye(2), 1, 0, torch.qint8),
    ):
        assert not predicate(**alike(predicate, x, None))


@pytest.mark.filterwarnings("ignore:Warning only once for all operators")
class TestNative:
    """What an override does not support is answered, or refused, as PyTorch does it."""

    CALLS = (
        ("prod", "prod", lambda f, x: f(x), torch.complex64),
        ("prod", "prod", lambda f, x: f(x, dtype=torch.complex128), torch.float32),
        ("prod_dim", "prod.dim_int", lambda f, x: f(x, 1, True), torch.complex128),
        ("prod_dim", "prod.dim_int", lambda f, x: f(x, 0, dtype=torch.complex64), torch.int64),
        ("sum", "sum", lambda f, x: f(x), torch.complex64),
        ("sum_dim", "sum.dim_IntList", lambda f, x: f(x, [1], dtype=torch.complex64), torch.float32),
        ("mean", "mean", lambda f, x: f(x), torch.int32),
        ("mean_dim", "mean.dim", lambda f, x: f(x, [1], True, dtype=torch.int64), torch.float32),
        ("any", "any", lambda f, x: f(x), torch.complex64),
        ("all_dims", "all.dims", lambda f, x: f(x, []), torch.float32),
        ("count_nonzero", "count_nonzero", lambda f, x: f(x, 1), torch.complex64),
        ("vector_norm", "linalg_vector_norm", lambda f, x: f(x, 2, [1]), torch.complex64),
        ("vector_norm", "linalg_vector_norm", lambda f, x: f(x, 2, dtype=torch.float16), torch.float32),
        ("vector_norm", "linalg_vector_norm", lambda f, x: f(x, float("nan")), torch.float32),
        ("max", "max", lambda f, x: f(x), torch.complex64),
        ("max_dim", "max.dim", lambda f, x: f(x, 0), torch.complex64),
        ("amax", "amax", lambda f, x: f(x, [0]), torch.complex64),
        ("min", "min", lambda f, x: f(x), torch.complex64),
        ("min_dim", "min.dim", lambda f, x: f(x, 0), torch.complex64),
        ("argmax", "argmax", lambda f, x: f(x, 1), torch.bool),
        ("argmin", "argmin", lambda f, x: f(x), torch.bool),
        ("argmin", "argmin", lambda f, x: f(x, 0, True), torch.complex64),
        ("softmax", "_softmax", lambda f, x: f(x, 1, False), torch.int32),
        ("softmax", "_softmax", lambda f, x: f(x, 1, False), torch.float8_e4m3fn),
        ("softmax_backward", "_softmax_backward_data", lambda f, x: f(x, x, 1, x.dtype), torch.int64),
        ("log_softmax", "_log_softmax", lambda f, x: f(x, 1, False), torch.complex64),
        (
            "log_softmax_backward",
            "_log_softmax_backward_data",
            lambda f, x: f(x, x, 1, x.dtype),
            torch.int32,
        ),
        ("layer_norm", "native_layer_norm", lambda f, x: f(x, [3], None, None, 1e-5), torch.int32),
        (
            "layer_norm",
            "native_layer_norm",
            lambda f, x: f(x.float(), [3], torch.ones(3, dtype=torch.float64, device=x.device), None, 1e-5),
            torch.float32,
        ),
    )

    def test_a_result_is_named_like_pytorchs(self, device):
        x = torch.ones(2, 3, device=device)
        assert type(Native("max.dim", x.device.type.upper(), device)(x, 1)) is torch.return_types.max
        assert type(Native("native_layer_norm", x.device.type.upper(), device)(x, [3], None, None, 1e-5)) is tuple

    def test_what_another_kernel_answers_gets_all_arguments(self, device):
        """The dispatcher resolves a negated view before it calls the kernel that is kept here."""
        x = torch.tensor([1 + 2j, 3 + 4j], device=device).conj().imag
        assert x.is_neg()
        native = Native("prod", x.device.type.upper(), device)
        assert not native._is_chosen_for([x])
        result = native(x, dtype=torch.float64)
        assert (result.dtype, result.item()) == (torch.float64, 8.0)

    @pytest.mark.parametrize("dispatched", [False, True], ids=["direct", "dispatched"])
    @pytest.mark.parametrize(("name", "overload", "call", "dtype"), CALLS)
    def test_answers_and_errors(self, name, overload, call, dtype, dispatched, device, enable, who):
        packet, _, variant = overload.partition(".")
        aten = getattr(getattr(torch.ops.aten, packet), variant or "default")
        x = torch.tensor([[1, 2, 3], [2, 1, 0]], device=device).to(dtype)
        expected = outcome(call, aten, x)
        with flag_gems_overrides.use_overrides():
            if dispatched:
                enable(name)
            found = []
            assert who(lambda: found.append(outcome(call, aten if dispatched else getattr(flag_gems, name), x))) == []
        assert str(found[0]) == str(expected)

    @pytest.mark.parametrize(
        "make",
        [lambda x: x.to_sparse(), lambda x: x.to("meta").int(), lambda x: torch.complex(x, x).conj()],
        ids=["sparse", "meta", "conjugated"],
    )
    def test_direct_calls_with_what_the_dispatcher_keeps_away(self, make, device):
        x = make(torch.eye(3, device=device))
        expected = outcome(lambda f, x: f(x, 1), torch.ops.aten.prod.dim_int, x)
        with flag_gems_overrides.use_overrides():
            found = outcome(lambda f, x: f(x, 1), flag_gems.prod_dim, x)
        assert str(found) == str(expected)

    def test_direct_calls_on_another_device(self, elsewhere):
        x = torch.tensor([[1.0, 3.0], [2.0, 1.0]], device=elsewhere)
        expected = outcome(lambda f, x: f(x, 1, True), torch.ops.aten.max.dim, x)
        with flag_gems_overrides.use_overrides():
            assert str(outcome(lambda f, x: f(x, 1, True)[:], flag_gems.max_dim, x)) == str(expected)

    def test_a_parameter_on_another_device(self, device, elsewhere, enable):
        def call(function, x):
            return function(x, [3], torch.ones(3, device=elsewhere), None, 1e-5)

        x = torch.eye(3, device=device)
        expected = outcome(call, torch.ops.aten.native_layer_norm, x)
        enable("layer_norm")
        with flag_gems_overrides.use_overrides():
            assert str(outcome(call, torch.ops.aten.native_layer_norm, x)) == str(expected)
            assert str(outcome(call, flag_gems.layer_norm, x)) == str(expected)

    def test_none_means_atens_default(self, device):
        x = torch.ones(2, 3, device=device, dtype=torch.complex64)
        expected = outcome(lambda f, x: f(x), torch.ops.aten.amax, x)
        with flag_gems_overrides.use_overrides():
            assert str(outcome(lambda f, x: f(x, None, False), flag_gems.amax, x)) == str(expected)

    def test_nothing_is_recorded_for_autograd(self, device):
        def kernel_that_calls_operators(self):
            return self.sum()

        dispatch_key = flag_gems.runtime.device.dispatch_key
        library = torch.library.Library("aten", "IMPL")
        library.impl("max", kernel_that_calls_operators, dispatch_key, allow_override=True)
        found = native.Native("max", dispatch_key, device)(torch.ones(3, device=device, requires_grad=True))
        library._destroy()
        assert found == 3
        assert not found.requires_grad

    def test_it_does_not_return_to_a_dispatcher_that_would_send_it_back(self, device, enable):
        # As inside the kernel of a tensor subclass or of a functorch transform, which excludes its own key.
        conjugated = torch._C._dispatch_key_parse("Conjugate")
        enable("prod")
        with (
            flag_gems_overrides.use_overrides(),
            torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(conjugated)),
        ):
            found = torch.prod(torch.tensor([1 + 2j, 3], device=device).conj())
        assert found.item() == 3 + 6j

    def test_autograd_reaches_it_through_the_dispatcher(self, device, enable):
        x = torch.tensor([1 + 2j, 3], device=device, requires_grad=True)
        enable("prod")
        with flag_gems_overrides.use_overrides():
            (gradient,) = torch.autograd.grad(torch.prod(x).abs(), x)
        (expected,) = torch.autograd.grad((x[0] * x[1]).abs(), x)
        torch.testing.assert_close(gradient, expected)


def alike(predicate, x, dtype):
    """Arguments of a predicate: tensors like ``x``, but for classes, which are int64, and what is no tensor."""
    names = inspect.signature(predicate).parameters
    values = dict.fromkeys(names, x) | {
        "target": torch.zeros((), dtype=torch.int64, device=x.device),
        "residual": x.clone(),
        "ignore_index": -100,
        "label_smoothing": 0.0,
        "dim": None,
        "ord": 2,
    }
    return {name: dtype if "dtype" in name else values[name] for name in names}


def outcome(call, function, x):
    try:
        return call(function, x)
    except Exception as error:
        # The text without the frames that PyTorch appends on some platforms.
        return type(error), str(error).split("\nException raised from")[0]


def test_loggers_are_upstreams(device):
    for override in OPERATORS.values():
        module = inspect.getmodule(override.load()[0])
        assert isinstance(module.logger, logging.Logger)
        assert module.logger.name == override.upstream_module
