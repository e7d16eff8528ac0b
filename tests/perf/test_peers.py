# SPDX-License-Identifier: Apache-2.0
"""What is called of other packages, where these stand in for them."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.perf import op_inputs, providers
from flag_gems_overrides.perf.cases import PEERS, parse

GRADIENT = parse("cross_entropy_loss 5x7 gradient=1 float32")


def called(peer, case, monkeypatch, module, **functions):
    """A peer's answers to two calls with the same arguments, and the arguments after them."""
    monkeypatch.setitem(sys.modules, module, SimpleNamespace(**functions))
    arguments = op_inputs.arguments(case, "cpu")
    with providers.for_case(case, [peer]) as (calls, absent), torch.no_grad():
        assert peer not in absent
        return [calls[peer](*arguments) for _ in range(3)], arguments


def of_pytorch(case):
    return op_inputs.native(case.op)(*op_inputs.arguments(case, "cpu"))


def test_adapters_are_of_known_peers_and_operators():
    for peer, op in providers._ADAPTERS:
        assert peer in PEERS
        assert op in OPERATORS


def liger(logits, target, weight, ignore_index, z_loss, smoothing, reduction, softcap, return_z_loss):
    """As Liger's: the gradient goes where the logits were, if they want one."""
    x = logits.detach().clone().requires_grad_()
    with torch.enable_grad():
        loss = torch.nn.functional.cross_entropy(x, target, weight, None, ignore_index, None, reduction, smoothing)
    if logits.requires_grad:
        logits.copy_(torch.autograd.grad(loss, x)[0])
    return loss.detach(), None, None, None, logits


def test_a_gradient_that_is_written_over_the_logits_spares_ours(monkeypatch):
    (first, second, third), (x, *_) = called(
        "liger", GRADIENT, monkeypatch, "liger_kernel.ops.cross_entropy", cross_entropy_forward=liger
    )
    loss, dx = of_pytorch(GRADIENT)
    assert torch.equal(x, op_inputs.arguments(GRADIENT, "cpu")[0])
    # Each compared answer has logits of its own; from then on they are reused.
    assert first[1].data_ptr() != second[1].data_ptr()
    assert third[1].data_ptr() == second[1].data_ptr()
    torch.testing.assert_close(first[1], dx)
    for answer in (first, second):
        torch.testing.assert_close(answer[0], loss)


def test_a_loss_alone_writes_nothing(monkeypatch):
    case = parse("cross_entropy_loss 5x7 float32")
    (first, *_), (x, *_) = called(
        "liger", case, monkeypatch, "liger_kernel.ops.cross_entropy", cross_entropy_forward=liger
    )
    assert torch.equal(x, op_inputs.arguments(case, "cpu")[0])
    torch.testing.assert_close(first, of_pytorch(case))


@pytest.mark.parametrize("gradient", [0, 1])
def test_a_loss_with_autograd_has_its_gradient_asked_for(gradient, monkeypatch):
    case = parse(f"cross_entropy_loss 5x7 gradient={gradient} float32")

    def cross_entropy(x, target, weight, ignore_index, reduction):
        return torch.nn.functional.cross_entropy(x, target, weight, None, ignore_index, None, reduction)

    (first, *_), _ = called("quack", case, monkeypatch, "quack.cross_entropy", cross_entropy=cross_entropy)
    torch.testing.assert_close(first, of_pytorch(case))


def test_norms_are_of_rows(monkeypatch):
    """Of a sum both answers, and of several normalized dimensions one row each."""

    def rmsnorm_fwd(x, weight, residual=None, eps=1e-6, store_rstd=False):
        total = x if residual is None else x + residual
        assert total.dim() == 2
        return torch.rms_norm(total, total.shape[1:], weight, eps), total, total.square().mean(1).add(eps).rsqrt()

    for key in ("rms_norm 3x4x5 normalized=2 float32", "fused_add_rms_norm 3x4x5 normalized=2 float32"):
        case = parse(key)
        (first, *_), arguments = called("quack", case, monkeypatch, "quack.rmsnorm", rmsnorm_fwd=rmsnorm_fwd)
        reference = op_inputs.on_copies(case.op, op_inputs.native(case.op))(*arguments)
        assert op_inputs.agree(case.op, arguments, first, reference)
