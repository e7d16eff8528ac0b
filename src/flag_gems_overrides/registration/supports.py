# SPDX-License-Identifier: Apache-2.0
"""Which inputs an override supports. All others go to PyTorch's own kernel, which answers or refuses them.

The parameters of a predicate are those of the override that decide, by name. All predicates ask for strided tensors
on one device of flag_gems' backend, because kernels are launched on bare pointers. They run on every call, so they
check as little as they can: a look at a tensor takes 70 ns.

Three kinds of tensors need no check: quantized tensors have dtypes of their own, and the dispatcher keeps nested and
subclassed tensors away and resolves negated views.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import flag_gems
import torch

HALF = frozenset({torch.float16, torch.bfloat16})
FLOATING = HALF | {torch.float32, torch.float64}
REAL = FLOATING | {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool}
CLASSES = frozenset({torch.int64, torch.uint8})
_strided = torch.strided


def _index_in_interpreter(x: torch.Tensor) -> int:
    return 0 if x.is_cpu else -1


_device: Callable[[torch.Tensor], int] = _index_in_interpreter if flag_gems.device == "cpu" else torch.Tensor.get_device


def _transformed() -> bool:
    """Whether torch.compile or torch.func look on.

    The dispatcher, which would keep their tensors away from a kernel, does not see calls of functions outside aten. Of
    PyTorch's operators in such a function's place torch.compile makes one graph.
    """
    return torch.compiler.is_dynamo_compiling() or torch._C._are_functorch_transforms_active()


def layer_norm(input: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> bool:
    dtype, device = input.dtype, _device(input)
    return (
        dtype in FLOATING
        and device >= 0
        and input.layout is _strided
        and (weight is None or ((weight.dtype is dtype or _mix(weight.dtype, dtype)) and _device(weight) == device))
        and (bias is None or ((bias.dtype is dtype or _mix(bias.dtype, dtype)) and _device(bias) == device))
    )


def skip_layer_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None
) -> bool:
    """Of the same shape, too: PyTorch expands the smaller one."""
    return (
        not _transformed()
        and residual.dtype is x.dtype
        and residual.shape == x.shape
        and residual.layout is _strided
        and _device(residual) == _device(x)
        and layer_norm(x, weight, bias)
    )


def fused_add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None) -> bool:
    """Both are written to: of one element in two places PyTorch says that it is not supported."""
    return (
        skip_layer_norm(x, residual, weight, None)
        and x.untyped_storage().data_ptr() != residual.untyped_storage().data_ptr()
        and (x.is_contiguous() or 0 not in x.stride())
        and (residual.is_contiguous() or 0 not in residual.stride())
    )


def layer_norm_backward(
    grad_out: torch.Tensor,
    input: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
) -> bool:
    return (
        grad_out.dtype is input.dtype
        and _device(grad_out) == _device(input) == _device(mean) == _device(rstd)
        and layer_norm(input, weight, bias)
    )


def batch_norm(
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
) -> bool:
    dtype, device = input.dtype, _device(input)
    if dtype not in FLOATING or device < 0 or input.layout is not _strided:
        return False
    for each in (weight, bias, running_mean, running_var):
        if each is not None and not (
            (each.dtype is dtype or _mix(each.dtype, dtype)) and _device(each) == device and each.dim() == 1
        ):
            return False
    return True


def batch_norm_backward(
    grad_out: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    save_mean: torch.Tensor | None,
    save_invstd: torch.Tensor | None,
) -> bool:
    return (
        grad_out.dtype is input.dtype
        and _device(grad_out) == _device(input)
        and grad_out.shape == input.shape
        and batch_norm(input, weight, running_mean, running_var, None)
        and batch_norm(input, None, save_mean, save_invstd, None)
    )


def cudnn_batch_norm_backward(
    input: torch.Tensor,
    grad_output: torch.Tensor,
    weight: torch.Tensor,
    save_mean: torch.Tensor | None,
    save_var: torch.Tensor | None,
) -> bool:
    return batch_norm_backward(grad_output, input, weight, None, None, save_mean, save_var)


def _mix(parameter: torch.dtype, input: torch.dtype) -> bool:
    """Parameters may be half where the input is float32, and the reverse; float64 goes with float64 only."""
    return parameter in FLOATING and input is not torch.float64 and parameter is not torch.float64


def group_norm(input: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> bool:
    return layer_norm(input, weight, bias) and (weight is None or bias is None or weight.dtype is bias.dtype)


def group_norm_backward(
    grad_out: torch.Tensor, input: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor, weight: torch.Tensor | None
) -> bool:
    return layer_norm_backward(grad_out, input, mean, rstd, weight, None)


def rms_norm(x: torch.Tensor, weight: torch.Tensor | None) -> bool:
    return layer_norm(x, weight, None)


def rms_norm_backward(
    grad_out: torch.Tensor, input: torch.Tensor, rstd: torch.Tensor, weight: torch.Tensor | None
) -> bool:
    return (
        grad_out.dtype is input.dtype
        and _device(grad_out) == _device(input) == _device(rstd)
        and layer_norm(input, weight, None)
    )


def softmax(self: torch.Tensor) -> bool:
    return self.dtype in FLOATING and self.layout is _strided and _device(self) >= 0


def softmax_backward(grad_output: torch.Tensor, output: torch.Tensor, input_dtype: torch.dtype) -> bool:
    dtype = grad_output.dtype
    return (
        dtype in FLOATING
        and output.dtype is dtype
        and (input_dtype is dtype or (input_dtype is torch.float16 and dtype is torch.float32))
        and grad_output.layout is _strided
        and _device(grad_output) == _device(output) >= 0
    )


def reduction_as(inp: torch.Tensor, dtype: torch.dtype | None) -> bool:
    """A reduction whose ``dtype`` argument says what the input is converted to first."""
    return inp.dtype in REAL and (dtype is None or dtype in REAL) and inp.layout is _strided and _device(inp) >= 0


def reduction(inp: torch.Tensor) -> bool:
    return inp.dtype in REAL and inp.layout is _strided and _device(inp) >= 0


def reduction_with_order(inp: torch.Tensor) -> bool:
    """A reduction that PyTorch refuses for bool."""
    return inp.dtype is not torch.bool and reduction(inp)


def mean(inp: torch.Tensor, dtype: torch.dtype | None) -> bool:
    return (inp.dtype if dtype is None else dtype) in FLOATING and reduction(inp)


def some_dims(inp: torch.Tensor, dim: Sequence[int] | int | None) -> bool:
    """A reduction that, given a list of no dimension, reduces nothing."""
    return (dim is None or isinstance(dim, int) or len(dim) > 0) and reduction(inp)


def count(x: torch.Tensor) -> bool:
    return reduction(x)


def logsumexp(inp: torch.Tensor, dim: Sequence[int] | int | None) -> bool:
    return inp.dtype in FLOATING and some_dims(inp, dim)


def nansum(inp: torch.Tensor, dtype: torch.dtype | None) -> bool:
    """PyTorch refuses a floating input for another result."""
    return reduction_as(inp, dtype) and (dtype is None or dtype in FLOATING or inp.dtype not in FLOATING)


def is_all_true(inp: torch.Tensor) -> bool:
    return inp.dtype is torch.bool and reduction(inp)


def moments(x: torch.Tensor) -> bool:
    return x.dtype in FLOATING and reduction(x)


def vector_norm(x: torch.Tensor, ord: float, dtype: torch.dtype | None) -> bool:
    return (
        x.dtype in FLOATING
        and (dtype is None or (dtype in FLOATING and torch.promote_types(x.dtype, dtype) is dtype))
        and isinstance(ord, (int, float))
        and ord == ord
        and reduction(x)
    )


def nll_loss(self: torch.Tensor, target: torch.Tensor, weight: torch.Tensor | None) -> bool:
    dtype, device = self.dtype, _device(self)
    return (
        dtype in FLOATING
        and target.dtype in CLASSES
        and self.layout is _strided
        and _device(target) == device >= 0
        and (weight is None or (weight.dtype is dtype and _device(weight) == device))
    )


def nll_loss_backward(
    grad_output: torch.Tensor,
    self: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    total_weight: torch.Tensor | None,
) -> bool:
    dtype = self.dtype
    return (
        grad_output.dtype is dtype
        and _device(grad_output) == _device(self)
        and (total_weight is None or (total_weight.dtype is dtype and _device(total_weight) == _device(self)))
        and nll_loss(self, target, weight)
    )


def cross_entropy(
    inp: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None,
    ignore_index: int,
    label_smoothing: float,
) -> bool:
    """Shapes that go together, too: all others are refused by PyTorch."""
    dtype, device, shape = inp.dtype, _device(inp), inp.shape
    if not (
        not _transformed()
        and dtype in FLOATING
        and inp.layout is _strided
        and _device(target) == device >= 0
        and shape
        and shape[1 if len(shape) > 1 else 0] > 0
        and isinstance(label_smoothing, (int, float))
        and 0 <= label_smoothing <= 1
    ):
        return False
    classes = shape[1] if len(shape) > 1 else shape[0]
    if weight is not None and not (
        weight.dtype is dtype and _device(weight) == device and weight.shape == (classes,) and not weight.requires_grad
    ):
        return False
    if target.dtype in CLASSES:
        return target.shape == (*shape[:1], *shape[2:])[: len(shape) - 1]
    # Of probabilities none can be ignored; those that need a gradient are PyTorch's.
    return target.dtype is dtype and target.shape == shape and ignore_index < 0 and not target.requires_grad


def reduction_out(inp: torch.Tensor, dtype: torch.dtype | None, out: torch.Tensor) -> bool:
    return reduction_as(inp, dtype) and reduction(out) and _device(inp) == _device(out)


def nansum_out(inp: torch.Tensor, dtype: torch.dtype | None, out: torch.Tensor) -> bool:
    return reduction_out(inp, dtype, out) and nansum(inp, out.dtype)
