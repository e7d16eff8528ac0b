# SPDX-License-Identifier: Apache-2.0
"""How each op is called: inputs for a case, and the bytes that any implementation has to move.

Native, upstream and override take the same positional arguments, those of the aten overload. The table of operators
names the functions of this file that build them (``inputs``) and that say what of a result is compared.
"""

from __future__ import annotations

import functools
import math
import pkgutil
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.perf.cases import Case, CaseError
from flag_gems_overrides.perf.roofline import extent
from flag_gems_overrides.registration.native import outside_aten

Arguments = tuple[Any, ...]

# PyTorch's decomposition is native of these: where there is no kernel for the CPU, and of cuDNN's gradient everywhere,
# which takes what cuDNN's forward alone returns.
_CUDNN = torch.ops.aten.cudnn_batch_norm_backward.default
_GPU_ONLY = (torch.ops.aten._fused_rms_norm_backward.default, _CUDNN)
# Operators of which upstream holds a row in one tile of four warps, and elements of a row, at most, with which it is
# called. skip_layer_norm of 32768 compiles in 1.6 s, 65536 in 3.0, 131072 in 13 (ptxas 12.8); 393216 did not in 4
# minutes.
ONE_TILE, MAX_ONE_TILE = ("skip_layer_norm", "fused_add_rms_norm", "_fused_rms_norm_backward"), 131072


class Compulsory(NamedTuple):
    """Bytes that every implementation moves: each input read once, each output written once."""

    read: int
    written: int

    @property
    def total(self) -> int:
        return self.read + self.written


def _values(case: Case, device: torch.device) -> torch.Tensor:
    dtype = getattr(torch, case.dtype)
    if dtype.is_floating_point:
        return torch.randn(case.shape, dtype=dtype, device=device)
    return torch.randint(0, 2 if dtype is torch.bool else 100, case.shape, device=device).to(dtype)


def _factors(case: Case, device: torch.device) -> torch.Tensor:
    """Values whose product is exact in every type and order: PyTorch's own, of many halves, is not."""
    return _values(case, device).sign_()


def _dim(case: Case) -> int:
    dim = dict(case.arguments)["dim"]
    if not -len(case.shape) <= dim < len(case.shape):
        raise CaseError(f"{case.key}: dim={dim} is out of range for {len(case.shape)} dimensions")
    return dim


def layer_norm(case: Case, device: torch.device) -> Arguments:
    count = case.get("normalized", len(case.shape) - 1)
    if not 0 < count <= len(case.shape):
        raise CaseError(f"{case.key}: normalized={count} is out of range for {len(case.shape)} dimensions")
    x = _values(case, device)
    normalized_shape = list(case.shape[-count:])
    weight, bias = (torch.randn(normalized_shape, dtype=x.dtype, device=device) for _ in range(2))
    return x, normalized_shape, weight, bias, 1e-5


def skip_layer_norm(case: Case, device: torch.device) -> Arguments:
    x, *others = layer_norm(case, device)
    return x, torch.randn_like(x), *others


def layer_norm_backward(case: Case, device: torch.device) -> Arguments:
    x, normalized_shape, weight, bias, eps = layer_norm(case, device)
    _, mean, rstd = torch.native_layer_norm(x, normalized_shape, weight, bias, eps)
    return torch.randn_like(x), x, normalized_shape, mean, rstd, weight, bias, [True, True, True]


def batch_norm(case: Case, device: torch.device) -> Arguments:
    """Training, unless the case says training=0."""
    if len(case.shape) < 2:
        raise CaseError(f"{case.key}: a batch has two dimensions or more")
    x = _values(case, device)
    weight, bias, running_mean = (torch.randn(x.shape[1], dtype=x.dtype, device=device) for _ in range(3))
    running_var = torch.rand(x.shape[1], dtype=x.dtype, device=device) + 0.5
    training = bool(case.get("training", 1))
    if training and x.numel() == x.shape[1]:
        # One element has no unbiased variance.
        return x, weight, bias, None, None, training, 0.1, 1e-5
    return x, weight, bias, running_mean, running_var, training, 0.1, 1e-5


def batch_norm_backward(case: Case, device: torch.device) -> Arguments:
    x, weight, _, running_mean, running_var, training, _, eps = batch_norm(case, device)
    _, mean, rstd = torch.native_batch_norm(x, weight, None, None, None, True, 0.1, eps)
    return torch.randn_like(x), x, weight, running_mean, running_var, mean, rstd, training, eps, [True, True, True]


def cudnn_batch_norm_backward(case: Case, device: torch.device) -> Arguments:
    """As cuDNN has them: with parameters and statistics of float32 beside half inputs."""
    dy, x, weight, running_mean, running_var, mean, rstd, *_ = batch_norm_backward(case, device)
    wide = torch.promote_types(x.dtype, torch.float32)
    weight, running_mean, running_var, mean, rstd = (
        None if t is None else t.to(wide) for t in (weight, running_mean, running_var, mean, rstd)
    )
    reserve = torch.empty(0, dtype=torch.uint8, device=device)
    return x, dy, weight, running_mean, running_var, mean, rstd, 1e-5, reserve


def rms_norm(case: Case, device: torch.device) -> Arguments:
    x, normalized_shape, weight, _, eps = layer_norm(case, device)
    return x, normalized_shape, weight, eps


def fused_add_rms_norm(case: Case, device: torch.device) -> Arguments:
    x, *others = rms_norm(case, device)
    return x, torch.randn_like(x), *others


def rms_norm_backward(case: Case, device: torch.device) -> Arguments:
    x, normalized_shape, weight, eps = rms_norm(case, device)
    _, rstd = torch._fused_rms_norm(x, normalized_shape, weight, eps)
    return torch.randn_like(x), x, normalized_shape, rstd, weight, [True, True]


def group_norm(case: Case, device: torch.device) -> Arguments:
    groups = dict(case.arguments)["groups"]
    if len(case.shape) < 2 or groups <= 0 or case.shape[1] % groups:
        raise CaseError(f"{case.key}: groups={groups} does not divide the second dimension")
    x = _values(case, device)
    N, C, *rest = case.shape
    weight, bias = (torch.randn(C, dtype=x.dtype, device=device) for _ in range(2))
    return x, weight, bias, N, C, math.prod(rest), groups, 1e-5


def group_norm_backward(case: Case, device: torch.device) -> Arguments:
    x, weight, bias, N, C, HW, groups, eps = group_norm(case, device)
    _, mean, rstd = torch.native_group_norm(x, weight, bias, N, C, HW, groups, eps)
    return torch.randn_like(x), x, mean, rstd, weight, N, C, HW, groups, [True, True, True]


def softmax(case: Case, device: torch.device) -> Arguments:
    return _values(case, device), _dim(case), False


def softmax_backward(case: Case, device: torch.device) -> Arguments:
    return _gradient_of(torch._softmax, case, device)


def log_softmax_backward(case: Case, device: torch.device) -> Arguments:
    return _gradient_of(torch._log_softmax, case, device)


def _gradient_of(function: Callable[..., torch.Tensor], case: Case, device: torch.device) -> Arguments:
    x, dim, half_to_float = softmax(case, device)
    output = function(x, dim, half_to_float)
    return torch.randn_like(output), output, dim, x.dtype


def values_at(arguments: Arguments, indices: Any) -> torch.Tensor | None:
    """The elements that indices name: which of equal ones is left to the implementation. None if an index is out of
    range: to look there would be an error, and on a GPU the end of the process."""
    x, *dim = arguments
    if bool(((indices < 0) | (indices >= (x.shape[dim[0]] if dim else x.numel()))).any()):
        return None
    if not dim:
        return x.flatten()[indices]
    return x.gather(dim[0], indices.view(_kept(x, dim[0])))


def values_and_values_at(arguments: Arguments, result: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    values, indices = result
    return values, values_at(arguments, indices)


def without_statistics_of_evaluation(arguments: Arguments, result: Any) -> Any:
    """Of those PyTorch's CPU kernel returns none."""
    return result if arguments[5] else result[0]


def _kept(x: torch.Tensor, dim: int) -> list[int]:
    """The shape of ``x`` with ``dim`` reduced and kept."""
    return [1 if i == dim % x.dim() else size for i, size in enumerate(x.shape)]


def whole(case: Case, device: torch.device) -> Arguments:
    return (_values(case, device),)


def along(case: Case, device: torch.device) -> Arguments:
    return _values(case, device), _dim(case)


def along_out(case: Case, device: torch.device) -> Arguments:
    """With the tensor that the result goes to, of its usual dtype."""
    x, dim = along(case, device)
    return x, dim, torch.empty(x.shape, dtype=_summed(x), device=device)


def whole_out(case: Case, device: torch.device) -> Arguments:
    """With the tensor that the result goes to, of its usual dtype."""
    (x,) = whole(case, device)
    return x, torch.empty((), dtype=_summed(x), device=device)


def along_list_out(case: Case, device: torch.device) -> Arguments:
    """As :func:`whole_out`."""
    x, (dim,) = along_list(case, device)
    kept = [size for i, size in enumerate(x.shape) if i != dim % x.dim()]
    return x, [dim], torch.empty(kept, dtype=_summed(x), device=device)


def _summed(x: torch.Tensor) -> torch.dtype:
    return x.dtype if x.is_floating_point() else torch.int64


def whole_or_along(case: Case, device: torch.device) -> Arguments:
    return along(case, device) if case.arguments else whole(case, device)


def whole_factors(case: Case, device: torch.device) -> Arguments:
    return (_factors(case, device),)


def along_factors(case: Case, device: torch.device) -> Arguments:
    return _factors(case, device), _dim(case)


def along_list(case: Case, device: torch.device) -> Arguments:
    return _values(case, device), [_dim(case)]


def norm_along(case: Case, device: torch.device) -> Arguments:
    return _values(case, device), 2, [_dim(case)]


def nll_loss(case: Case, device: torch.device) -> Arguments:
    """Scores of [N, C, ...] and a class for each of the others."""
    # Log-probabilities: of scores with both signs the loss is what is left of their rounding.
    x = -_values(case, device).abs()
    return x, torch.randint(0, x.shape[1], (x.shape[0], *x.shape[2:]), device=device), None, 1, -100


def nll_loss_backward(case: Case, device: torch.device) -> Arguments:
    x, target, weight, reduction, ignore_index = nll_loss(case, device)
    # total_weight is that of every row, or as much as the dtype holds.
    total_weight = x.new_full((), min(target.numel(), torch.finfo(x.dtype).max))
    return x.new_ones(()), x, target, weight, reduction, ignore_index, total_weight


def cross_entropy(case: Case, device: torch.device) -> Arguments:
    """With its gradient if the case says gradient=1."""
    x, target, *_ = nll_loss(case, device)
    return x, target, None, "mean", -100, 0.0, bool(case.get("gradient", 0))


def compared(op: str, arguments: Arguments, result: Any) -> Any:
    """What of a result is compared with another's."""
    name = OPERATORS[op].compared
    return globals()[name](arguments, result) if name else result


def arguments(case: Case, device: torch.device | str) -> Arguments:
    """Fresh inputs for ``case``, the same on every call."""
    torch.manual_seed(0)
    build: Callable[[Case, torch.device], Arguments] = globals()[OPERATORS[case.op].inputs]
    return build(case, torch.device(device))


def copied(op: str, inputs: Arguments) -> Arguments:
    """``inputs``, with copies of what ``op`` writes to: for one call after the other on the same ones."""
    mutated = OPERATORS[op].mutated
    return tuple(value.clone() if at in mutated else value for at, value in enumerate(inputs)) if mutated else inputs


def on_copies(op: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, called with :func:`copied` arguments."""
    return (lambda *inputs: function(*copied(op, inputs))) if OPERATORS[op].mutated else function


def upstream_unsafe(case: Case) -> str | None:
    """Why upstream's function must not be called for ``case``: it would leave its tensors, or not come back, and end or
    spoil the run."""
    rows, size = extent(case)
    if case.op in ONE_TILE and size > MAX_ONE_TILE:
        return f"holds a row in one tile: ptxas takes minutes for more than {MAX_ONE_TILE} elements"
    if case.op == "layer_norm_backward" and rows != case.shape[0]:
        return "takes the first dim for the rows and writes beyond the gradients of weight and bias"
    if case.op == "argmin" and case.get("dim", 0) % len(case.shape) == len(case.shape) - 1 and len(case.shape) > 1:
        rows_at_once, columns_at_once = 4 if rows < 4096 else 8, min(4096, 1 << (size - 1).bit_length())
        if rows % rows_at_once or size % columns_at_once:
            return "loads and stores whole blocks without a mask"
    return None


def native_unsafe(op: str, inputs: Arguments) -> str | None:
    """Why PyTorch's function must not be called on a GPU: pytorch/pytorch#193016, in 2.11 and others."""
    if op not in ("layer_norm_backward", "_fused_rms_norm_backward"):
        return None
    x, normalized_shape = inputs[1:3]
    if len(normalized_shape) > 1 and x.numel() > 65536 * math.prod(normalized_shape):
        return "writes beyond its partial sums for weight and bias of several dims and more than 65536 rows"
    return None


def without_parameters(op: str, arguments: Arguments) -> Arguments | None:
    """The same call of a norm without weight and bias, which compiles another kernel; None for other operators."""
    if OPERATORS[op].family not in ("norm", "group_norm"):
        return None
    if "groups" in OPERATORS[op].arguments:
        shape = [arguments[0].shape[1]]
    else:
        shape = next(argument for argument in arguments if isinstance(argument, list))
    parameters = [x for x in arguments if isinstance(x, torch.Tensor) and list(x.shape) == shape]
    bare = [None if any(x is each for each in parameters) else x for x in arguments]
    mask = bare[-1]
    return (*bare[:-1], [True, *[False] * (len(mask) - 1)]) if isinstance(mask, list) else tuple(bare)


def native(op: str, device: str | None = None) -> Callable[..., Any]:
    """PyTorch's function for ``op``, through the dispatcher, for inputs on ``device``: by default a GPU, if any."""
    return by_position(op, pytorch(op, device))


def pytorch(op: str, device: str | None = None) -> Callable[..., Any]:
    """The same, without what :func:`by_position` adds."""
    if OPERATORS[op].overload is None:
        return outside_aten(OPERATORS[op])
    overload = pkgutil.resolve_name(OPERATORS[op].native)
    # torch.sum, without a dimension, takes no out.
    public = None if overload._overloadname == "out" else getattr(torch, overload._opname, None)
    function: Callable[..., Any] = public or overload
    on_cpu = device == "cpu" or not torch.cuda.is_available()
    if overload is _CUDNN or (overload in _GPU_ONLY and on_cpu):
        function = torch._decomp.decomposition_table[overload]
    return function


def override(op: str) -> Callable[..., Any]:
    """The override's function."""
    return by_position(op, OPERATORS[op].load()[0])


def by_position(op: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` with all of a case's arguments by position, those too that aten takes by name only.

    Of an ``out`` overload, the tensor that the result goes to is the last. Where a case may ask for the gradient too,
    whether it does.
    """
    operator = OPERATORS[op]
    if "gradient" in operator.arguments:
        return functools.partial(_with_gradient, function)
    if operator.overload is None:
        return function
    if operator.overload.endswith("out"):
        return lambda *arguments: function(*arguments[:-1], out=arguments[-1])
    schema = pkgutil.resolve_name(operator.native)._schema.arguments
    names = [each.name for each in schema if each.kwarg_only and each.name in operator.arguments]
    if not names:
        return function
    count = sum(not each.kwarg_only for each in schema)
    return lambda *arguments: function(*arguments[:count], **dict(zip(names, arguments[count:], strict=False)))


def _with_gradient(function: Callable[..., Any], x: torch.Tensor, *others: Any) -> Any:
    *given, gradient = others
    if not gradient:
        return function(x, *given)
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        result = function(x, *given)
        return result.detach(), *torch.autograd.grad(result, x)


def compulsory(case: Case) -> Compulsory:
    """The bytes of ``case``, from shapes alone."""
    inputs = arguments(case, "meta")
    operator = OPERATORS[case.op]
    read = 0
    for position, x in enumerate(inputs):
        if position in operator.picked:
            read += x.element_size() * inputs[1].numel()
        elif position not in operator.unread:
            read += _bytes(x)
    return Compulsory(read, sum(_bytes(x) for x in outputs(native(case.op)(*inputs))))


def outputs(result: Any) -> Sequence[torch.Tensor]:
    """The tensors of a result."""
    results = result if isinstance(result, (tuple, list)) else (result,)
    return [x for x in results if isinstance(x, torch.Tensor)]


def agree(op: str, inputs: Arguments, result: Any, reference: Any) -> bool:
    """Whether two results of ``op`` for ``inputs`` are of the same computation.

    A check against timing a wrong answer, not of accuracy: floating-point outputs may differ by 2 % of the reference's
    largest value (sums in bfloat16), float64 by what tells it from float32; shapes by how rows are arranged.
    """
    ours, theirs = (outputs(compared(op, inputs, each)) for each in (result, reference))
    if [(x.numel(), x.is_floating_point()) for x in ours] != [(x.numel(), x.is_floating_point()) for x in theirs]:
        return False
    return all(close(a, b) for a, b in zip(ours, theirs, strict=True))


def close(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two outputs, of as many elements, differ by no more than :func:`agree` allows."""
    if not b.numel():
        return True
    both = a.dtype is torch.float64 and b.dtype is torch.float64
    wide, share = (torch.float64, 1e-10) if both else (torch.float32, 0.02)
    a, b = a.to(wide).flatten(), b.to(wide).flatten()
    finite = b[b.isfinite()]
    scale = float(finite.abs().max()) if finite.numel() else 0.0
    return torch.allclose(a, b, rtol=0, atol=share * scale, equal_nan=True)


def _bytes(value: Any) -> int:
    return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0
