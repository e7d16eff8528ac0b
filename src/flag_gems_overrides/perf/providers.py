# SPDX-License-Identifier: Apache-2.0
"""Who is measured side by side: native, upstream, override, and the peers that are installed."""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from flag_gems_overrides import registration
from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.perf import op_inputs
from flag_gems_overrides.perf.cases import NATIVE, OVERRIDE, UPSTREAM, Case
from flag_gems_overrides.registration import compat, upstream

# Calls of a provider before it is timed, of which the last is compared.
_COMPARED_CALLS = 2

Call = Callable[..., Any]
Absence = dict[str, str]
"""What a record says of a provider that is not there: ``{"absent": reason}``."""


class AbsentError(Exception):
    """A provider that cannot run here; the message says why."""


@contextlib.contextmanager
def for_case(case: Case, peers: Sequence[str] = ()) -> Iterator[tuple[dict[str, Call], dict[str, Absence]]]:
    """The functions to compare for ``case``, and why others are absent.

    Each is called with the arguments of :mod:`op_inputs`, directly: nothing is dispatched, and upstream's function is
    the one that flag_gems came with, whatever is installed outside the block.
    """
    override = OPERATORS[case.op]
    absent: dict[str, Absence] = {}
    with registration.use_overrides(include=[]), repaired():
        calls: dict[str, Call] = {NATIVE: op_inputs.native(case.op)}
        unsafe = op_inputs.upstream_unsafe(case)
        function = upstream.find(override)
        if unsafe or function is None or upstream.predates(override, upstream.load()):
            absent[UPSTREAM] = {"absent": unsafe or f"this flag_gems has no {case.op}"}
        else:
            calls[UPSTREAM] = op_inputs.by_position(case.op, function)
        calls[OVERRIDE] = op_inputs.override(case.op)
        found = {peer: _peer(peer, case.op) for peer in peers}
        calls |= {peer: call for peer, call in found.items() if not isinstance(call, str)}
        absent |= {peer: {"absent": reason} for peer, reason in found.items() if isinstance(reason, str)}
        yield calls, absent


@contextlib.contextmanager
def repaired() -> Iterator[None]:
    """Upstream as it works on this Triton (see :mod:`compat`)."""
    compat.apply()
    try:
        yield
    finally:
        compat.undo()


def dispatching(op: str) -> dict[str, tuple[Call, Callable[[], AbstractContextManager]]]:
    """PyTorch's function for ``op`` and the contexts in which it means native, upstream and override."""
    gems = upstream.load()

    @contextlib.contextmanager
    def with_upstream() -> Iterator[None]:
        with registration.use_overrides(include=[]), repaired(), upstream.use_gems(gems, [op]):
            yield

    @contextlib.contextmanager
    def with_override() -> Iterator[None]:
        with registration.use_overrides(include=[op]), upstream.use_gems(gems, [op]):
            yield

    contexts: dict[str, Callable[[], AbstractContextManager]] = {
        NATIVE: contextlib.nullcontext,
        UPSTREAM: with_upstream,
        OVERRIDE: with_override,
    }
    if OPERATORS[op].overload is not None:
        return {name: (op_inputs.native(op), context) for name, context in contexts.items()}
    # Outside of aten flag_gems' function has a name of its own, upstream's or ours.
    by_name = op_inputs.by_position(op, lambda *arguments: getattr(gems, op)(*arguments))
    functions = {NATIVE: op_inputs.native(op), UPSTREAM: by_name, OVERRIDE: by_name}
    return {name: (functions[name], context) for name, context in contexts.items()}


def _peer(peer: str, op: str) -> Call | str:
    """A peer's function for ``op``; why there is none in words."""
    if peer == "compile":
        return _compiled(op)
    adapter = _ADAPTERS.get((peer, op))
    if adapter is None:
        return f"{peer} has no {op}"
    try:
        return adapter()
    except ImportError as error:
        return f"{peer} is not installed: {error}"


def _compiled(op: str) -> Call:
    function = op_inputs.pytorch(op)
    # All that are compiled here are of one code object, which keeps 8 compilations and is then run as it is.
    torch._dynamo.reset()
    # A name of our own: the function itself may be a builtin, which is not traced.
    compiled = torch.compile(lambda *arguments, **named: function(*arguments, **named), dynamic=False)
    return op_inputs.by_position(op, compiled)


def _last_dim_only(x: torch.Tensor, dim: int) -> None:
    if dim % x.dim() != x.dim() - 1:
        raise AbsentError("takes the last dim only")


def _rows(x: torch.Tensor, normalized_shape: Sequence[int]) -> torch.Tensor:
    return x.reshape(-1, math.prod(normalized_shape))


def _liger_layer_norm() -> Call:
    ops = importlib.import_module("liger_kernel.ops.layer_norm")

    def call(x, normalized_shape, weight, bias, eps):
        return ops.layer_norm_forward(_rows(x, normalized_shape), weight.view(-1), bias.view(-1), eps)[0]

    return call


def _liger_layer_norm_backward() -> Call:
    ops = importlib.import_module("liger_kernel.ops.layer_norm")

    def call(dy, x, normalized_shape, mean, rstd, weight, bias, output_mask):
        rows = (_rows(t, normalized_shape) for t in (dy, x))
        return ops.layer_norm_backward(*rows, weight.view(-1), bias.view(-1), mean.view(-1), rstd.view(-1))

    return call


def _liger_softmax() -> Call:
    ops = importlib.import_module("liger_kernel.ops.softmax")

    def call(x, dim, half_to_float):
        _last_dim_only(x, dim)
        return ops._softmax_forward(x)[0]

    return call


def _quack_softmax() -> Call:
    module = importlib.import_module("quack.softmax")

    def call(x, dim, half_to_float):
        _last_dim_only(x, dim)
        return module.softmax_fwd(x.view(-1, x.shape[-1]))

    return call


def _quack_softmax_backward() -> Call:
    module = importlib.import_module("quack.softmax")

    def call(dy, y, dim, input_dtype):
        _last_dim_only(y, dim)
        if y.shape[-1] > 1 << 22:
            raise AbsentError("its compiler (0.6.5) does not come back from rows of 2**24")
        return module.softmax_bwd(dy.view(-1, dy.shape[-1]), y.view(-1, y.shape[-1]))

    return call


def _quack_layer_norm_backward() -> Call:
    module = importlib.import_module("quack.rmsnorm")

    def call(dy, x, normalized_shape, mean, rstd, weight, bias, output_mask):
        x, dy = (_rows(t, normalized_shape) for t in (x, dy))
        return module.layernorm_bwd(x, weight.view(-1), dy, rstd.view(-1), mean.view(-1))

    return call


def _quack_rmsnorm_backward() -> Call:
    """Less work than layer_norm's backward (no mean, no bias): what a good implementation of that costs."""
    module = importlib.import_module("quack.rmsnorm")

    def call(dy, x, normalized_shape, mean, rstd, weight, bias, output_mask):
        x, dy = (_rows(t, normalized_shape) for t in (x, dy))
        return module.rmsnorm_bwd(x, weight.view(-1), dy, rstd.view(-1))

    return call


def _quack_fused_rms_norm_backward() -> Call:
    module = importlib.import_module("quack.rmsnorm")

    def call(dy, x, normalized_shape, rstd, weight, output_mask):
        x, dy = (_rows(t, normalized_shape) for t in (x, dy))
        return module.rmsnorm_bwd(x, weight.view(-1), dy, rstd.view(-1))

    return call


def _liger_rms_norm() -> Call:
    ops = importlib.import_module("liger_kernel.ops.rms_norm")

    def call(x, normalized_shape, weight, eps):
        return ops.rms_norm_forward(_rows(x, normalized_shape), weight.view(-1), eps, 0.0, "llama", None)[0]

    return call


def _liger_fused_rms_norm() -> Call:
    ops = importlib.import_module("liger_kernel.ops.rms_norm")

    def call(x, normalized_shape, weight, eps):
        y, _, rstd, *_ = ops.rms_norm_forward(_rows(x, normalized_shape), weight.view(-1), eps, 0.0, "llama", None)
        return y, rstd

    return call


def _liger_fused_rms_norm_backward() -> Call:
    ops = importlib.import_module("liger_kernel.ops.rms_norm")
    mode = ops._str_to_casting_mode["llama"]

    def call(dy, x, normalized_shape, rstd, weight, output_mask):
        dy, x = (_rows(t, normalized_shape) for t in (dy, x))
        settings = ops.calculate_settings(x.shape[1])
        return ops.rms_norm_backward(dy, x, weight.view(-1), rstd.view(-1), 0.0, mode, *settings, False, None)

    return call


def _liger_fused_add_rms_norm() -> Call:
    """Of new tensors, where ours writes over its arguments."""
    ops = importlib.import_module("liger_kernel.ops.fused_add_rms_norm")

    def call(x, residual, normalized_shape, weight, eps):
        x, residual = (_rows(t, normalized_shape) for t in (x, residual))
        return ops.fused_add_rms_norm_forward(x, residual, weight.view(-1), eps, 0.0, "llama")[:2]

    return call


def _liger_cross_entropy() -> Call:
    """Its gradient is written over the logits: to those of a copy of ours.

    That is made for the first calls alone, whose answers are compared. A later call, as those that are timed, finds
    what the one before it left, which is as much work.
    """
    ops = importlib.import_module("liger_kernel.ops.cross_entropy")
    copies: dict[int, tuple[torch.Tensor, int]] = {}

    def call(x, target, weight, reduction, ignore_index, smoothing, gradient=False):
        options = weight, ignore_index, 0.0, smoothing, reduction, None, False
        if not gradient:
            return ops.cross_entropy_forward(x, target, *options)[0]
        logits, calls = copies.get(x.data_ptr(), (x, 0))
        if calls < _COMPARED_CALLS:
            logits = x.clone().requires_grad_()
        copies[x.data_ptr()] = logits, calls + 1
        loss, *_, dx = ops.cross_entropy_forward(logits, target, *options)
        return loss, dx

    return call


def _quack_rms_norm() -> Call:
    module = importlib.import_module("quack.rmsnorm")

    def call(x, normalized_shape, weight, eps):
        return module.rmsnorm_fwd(_rows(x, normalized_shape), weight.view(-1), eps=eps)[0]

    return call


def _quack_fused_rms_norm() -> Call:
    module = importlib.import_module("quack.rmsnorm")

    def call(x, normalized_shape, weight, eps):
        y, _, rstd = module.rmsnorm_fwd(_rows(x, normalized_shape), weight.view(-1), eps=eps, store_rstd=True)
        return y, rstd

    return call


def _quack_fused_add_rms_norm() -> Call:
    """Of new tensors, where ours writes over its arguments."""
    module = importlib.import_module("quack.rmsnorm")

    def call(x, residual, normalized_shape, weight, eps):
        x, residual = (_rows(t, normalized_shape) for t in (x, residual))
        return module.rmsnorm_fwd(x, weight.view(-1), residual=residual, eps=eps)[:2]

    return call


def _quack_cross_entropy() -> Call:
    module = importlib.import_module("quack.cross_entropy")

    def loss(x, target, weight, reduction, ignore_index, smoothing):
        if smoothing:
            raise AbsentError("smooths no labels")
        return module.cross_entropy(x, target, weight=weight, ignore_index=ignore_index, reduction=reduction)

    return op_inputs.by_position("cross_entropy_loss", loss)


_ADAPTERS: dict[tuple[str, str], Callable[[], Call]] = {
    ("liger", "layer_norm"): _liger_layer_norm,
    ("liger", "layer_norm_backward"): _liger_layer_norm_backward,
    ("liger", "softmax"): _liger_softmax,
    ("liger", "rms_norm"): _liger_rms_norm,
    ("liger", "_fused_rms_norm"): _liger_fused_rms_norm,
    ("liger", "_fused_rms_norm_backward"): _liger_fused_rms_norm_backward,
    ("liger", "fused_add_rms_norm"): _liger_fused_add_rms_norm,
    ("liger", "cross_entropy_loss"): _liger_cross_entropy,
    ("quack", "softmax"): _quack_softmax,
    ("quack", "softmax_backward"): _quack_softmax_backward,
    ("quack", "layer_norm_backward"): _quack_layer_norm_backward,
    ("quack_rmsnorm", "layer_norm_backward"): _quack_rmsnorm_backward,
    ("quack", "rms_norm"): _quack_rms_norm,
    ("quack", "_fused_rms_norm"): _quack_fused_rms_norm,
    ("quack", "_fused_rms_norm_backward"): _quack_fused_rms_norm_backward,
    ("quack", "fused_add_rms_norm"): _quack_fused_add_rms_norm,
    ("quack", "cross_entropy_loss"): _quack_cross_entropy,
}
