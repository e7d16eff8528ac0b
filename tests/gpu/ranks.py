# SPDX-License-Identifier: Apache-2.0
"""What each process of a distributed training runs: a few steps of the example's decoder."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import nll_loss
from torch.nn.parallel import DistributedDataParallel

sys.path.append(str(Path(__file__).parents[2] / "examples"))
from train_transformer import TINY, Decoder, batches, sums

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
STEPS = 3


def replicated(model: Decoder) -> nn.Module:
    return DistributedDataParallel(model)


def sharded(model: Decoder) -> nn.Module:
    mesh = init_device_mesh(DEVICE, (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def run(rank: int, world_size: int, folder: Path) -> None:
    """Train in each way, natively and with the overrides; leave the losses, and the kernels of ours that were launched,
    in ``folder``."""
    if DEVICE == "cuda":
        torch.cuda.set_device(rank)
    else:
        from flag_gems_overrides import interpreter

        interpreter.activate()
    import flag_gems

    import flag_gems_overrides
    from flag_gems_overrides.perf.launches import captured
    from flag_gems_overrides.registration import upstream

    backend = "nccl" if DEVICE == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{folder}/store", rank=rank, world_size=world_size)
    results = {}
    for wrap in (replicated, sharded):
        native = _train(wrap, rank, world_size)
        with ExitStack() as stack:
            names = stack.enter_context(flag_gems_overrides.use_overrides())
            stack.enter_context(upstream.use_gems(flag_gems, names))
            launches = stack.enter_context(captured())
            ours = _train(wrap, rank, world_size)
        kernels = sorted({launch.kernel for launch in launches})
        results[wrap.__name__] = {"native": native, "ours": ours, "kernels": kernels}
    (folder / f"{rank}.json").write_text(json.dumps(results))
    dist.destroy_process_group()


def _train(wrap: Callable[[Decoder], nn.Module], rank: int, world_size: int) -> list[float]:
    """The losses of this rank's share of each batch."""
    torch.manual_seed(0)
    model = wrap(Decoder(TINY, affine=True).to(DEVICE))
    optimizer = torch.optim.AdamW(model.parameters(), lr=TINY.learning_rate)
    losses = []
    for (text, following), _ in zip(batches(sums(2000), TINY), range(STEPS), strict=False):
        text, following = (part[rank::world_size].to(DEVICE) for part in (text, following))
        loss = nll_loss(model(text).flatten(0, 1), following.flatten())
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return losses
