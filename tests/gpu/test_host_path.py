# SPDX-License-Identifier: Apache-2.0
"""The C++ host path where only a GPU shows it."""

from __future__ import annotations

import flag_gems
import pytest
import torch
import torch.nn.functional as F
from sanitizer.test_short_list import CASES

from flag_gems_overrides import install, uninstall
from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.perf import op_inputs
from flag_gems_overrides.registration import installation, upstream
from flag_gems_overrides.registration.host import extension

pytestmark = pytest.mark.gpu

DISPATCHED = [case for case in CASES if OPERATORS[case.op].overload in upstream.rows(flag_gems)]


@pytest.fixture
def built(monkeypatch):
    """The C++ kernel, also where it is switched off for the other tests."""
    monkeypatch.delenv(extension.OFF, raising=False)
    if extension.EXTENSION.module is None:  # switched off for the other tests
        for name in ("module", "state", "_started"):
            monkeypatch.setattr(extension.EXTENSION, name, getattr(extension.Extension(), name))
    extension.build()


def calls_answered_by_cpp() -> int:
    return sum(path.replayed for path in installation._installation._host_paths)


@pytest.fixture
def replayed(built):
    """How many calls C++ has answered by itself."""
    install()
    with flag_gems.use_gems():
        yield calls_answered_by_cpp
    uninstall()


@pytest.mark.parametrize("case", DISPATCHED, ids=[case.key.replace(" ", "-") for case in DISPATCHED])
def test_answers_have_the_bits_of_pythons(case, built):
    """Every operator, through the dispatcher, with other values each time."""
    inputs = [op_inputs.arguments(case, "cuda") for _ in range(4)]
    override = op_inputs.override(case.op)
    expected = [op_inputs.outputs(override(*op_inputs.copied(case.op, each))) for each in inputs]
    function = op_inputs.native(case.op, "cuda")
    install(include=[case.op])
    try:
        with upstream.use_gems(flag_gems, [case.op]):
            answers = [op_inputs.outputs(function(*each)) for each in inputs]
            by_cpp = calls_answered_by_cpp()
    finally:
        uninstall()
    for answer, wanted in zip(answers, expected, strict=True):
        torch.testing.assert_close(answer, wanted, rtol=0, atol=0, equal_nan=True)
    assert by_cpp


@pytest.mark.parametrize("names", [("aligned", "unaligned"), ("unaligned", "aligned")], ids=" then ".join)
def test_a_kernel_is_launched_for_the_alignment_it_was_compiled_for(replayed, names):
    N = 1024 if names[0] == "aligned" else 2048
    storage = torch.randn(64 * N + 1, device="cuda")
    inputs = {"aligned": storage[:-1].view(64, N), "unaligned": storage[1:].view(64, N)}
    answers = {name: (x.double().exp() / x.double().exp().sum(1, keepdim=True)).float() for name, x in inputs.items()}
    for _ in range(4):
        for name in names:
            before = replayed()
            answer = F.softmax(inputs[name], 1)
            # The device says only now what went wrong.
            torch.cuda.synchronize()
            by_itself = replayed() - before
            torch.testing.assert_close(answer, answers[name])
        assert by_itself <= 1
    assert by_itself == 1
