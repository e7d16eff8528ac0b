# SPDX-License-Identifier: Apache-2.0
"""The C++ host path where only a GPU shows it."""

from __future__ import annotations

import flag_gems
import pytest
import torch
import torch.nn.functional as F

from flag_gems_overrides import install, uninstall
from flag_gems_overrides.registration import installation
from flag_gems_overrides.registration.host import extension

pytestmark = pytest.mark.gpu


@pytest.fixture
def replayed(monkeypatch):
    """How many calls C++ has answered by itself."""
    monkeypatch.delenv(extension.OFF, raising=False)
    if extension.EXTENSION.module is None:  # switched off for the other tests
        for name in ("module", "state", "_started"):
            monkeypatch.setattr(extension.EXTENSION, name, getattr(extension.Extension(), name))
    extension.build()
    install()
    with flag_gems.use_gems():
        yield lambda: sum(path.replayed for path in installation._installation._host_paths)
    uninstall()


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
