# SPDX-License-Identifier: Apache-2.0
"""What other processes run. They import this before they know of an interpreter, so nothing here imports flag_gems."""

from __future__ import annotations

import contextlib
import os
from multiprocessing.synchronize import Barrier

import torch
from torch.utils.data import Dataset

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPE = (7, 300)
_for_good = contextlib.ExitStack()
_together: Barrier | None = None


def tensor(seed: int) -> torch.Tensor:
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def answers(x: torch.Tensor) -> list[torch.Tensor]:
    weight, bias = x[0].detach().clone().requires_grad_(), x[1].detach().clone()
    normalized = torch.layer_norm(x, SHAPE[1:], weight, bias)
    (gradient,) = torch.autograd.grad(normalized.square().sum(), weight)
    results = [normalized, gradient, torch.softmax(x, 1), torch.log_softmax(x, 0), *torch.max(x, 1), torch.amax(x, 0)]
    return [result.detach().cpu() for result in results]


def answers_and_kernels(x: torch.Tensor) -> tuple[list[torch.Tensor], list[str]]:
    """Also which kernels of ours were launched for them."""
    from flag_gems_overrides.perf.launches import captured

    with captured() as launches:
        results = answers(x)
    return results, [launch.kernel for launch in launches]


class Answers(Dataset):
    """Computed where an item is loaded."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[list[torch.Tensor], list[str]]:
        return answers_and_kernels(tensor(index))


def dispatch_to_overrides(worker: int = 0) -> None:
    """To the end of the process."""
    if DEVICE == "cpu":
        from flag_gems_overrides import interpreter

        interpreter.activate()
    import flag_gems

    import flag_gems_overrides
    from flag_gems_overrides.registration import upstream

    names = _for_good.enter_context(flag_gems_overrides.use_overrides())
    _for_good.enter_context(upstream.use_gems(flag_gems, names))


def share_caches(folder: str, together: Barrier) -> None:
    """At the start of a process, before anything looks where the caches are."""
    global _together
    _together = together
    os.environ["FLAGGEMS_CACHE_DIR"], os.environ["TRITON_CACHE_DIR"] = folder + "/flag_gems", folder + "/triton"
    dispatch_to_overrides()


def tune_and_compile() -> tuple[list[list], list[str], list[bool]]:
    """At the same time as the other process: what the overrides answer, which kernels they launched, and what a
    function of upstream's answers that writes what it tunes to the database."""
    import flag_gems

    assert _together is not None
    x = tensor(0)
    _together.wait(120)
    results, kernels = answers_and_kernels(x)
    tuned = [bool(flag_gems.ops.mv(x[:, :columns], x[0, :columns]).isnan().any()) for columns in range(40, 300, 40)]
    return [result.tolist() for result in results], kernels, tuned
