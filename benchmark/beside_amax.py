# SPDX-License-Identifier: Apache-2.0
"""Reductions along a dimension timed in the same rounds as ``amax``, which reads as much and computes the least.

    python benchmark/beside_amax.py [--seed S] [--count N] [--output FILE]

The overrides, bfloat16 and float32, cold L2 cache, on the shapes of ``amax`` in core_shapes.yaml, a few odd ones and N
random ones. Names what takes longer than 1.05 times amax's time, ``var_mean`` 1.10 times. A case is appended to FILE as
soon as it is measured; cases that FILE has are not measured again.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import statistics
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import torch

from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.perf import op_inputs, problems
from flag_gems_overrides.perf.cases import Case, Shapes, make
from flag_gems_overrides.perf.files import write
from flag_gems_overrides.perf.timing import Timer

DTYPES = ("bfloat16", "float32")
ODD = ("77x5001x61", "1000x7777", "8x4096x1000", "4096x1023", "300000x33")
ODD_FIRST = ("30000x520", "60000x160")
ORDERS = (1.0, 2.0, float("inf"))
BOUND, VAR_MEAN_BOUND = 1.05, 1.10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=40, help="of random shapes")
    parser.add_argument("--output", type=Path, default=Path("beside-amax.jsonl"))
    options = parser.parse_args()
    timer = Timer(torch.device("cuda", 0))
    whole = whole_lines(options.output)
    known = {json.loads(line).get("key") for line in whole.splitlines()}
    write(options.output, whole)
    with options.output.open("a") as file:
        if not known:
            print(json.dumps(conditions(timer, options)), file=file, flush=True)
        for case in cases(options.seed, options.count):
            if case.key in known:
                continue
            us = measured(case, timer)
            print(json.dumps({"key": case.key, "us": us}), file=file, flush=True)
            beyond = {op: round(t / us["amax"], 3) for op, t in us.items() if t > bound(op) * us["amax"]}
            print(case.key, us["amax"], beyond or "", flush=True)


def whole_lines(path: Path) -> str:
    """What an earlier run wrote, without a line that its end cut off."""
    text = path.read_text() if path.exists() else ""
    return text[: text.rfind("\n") + 1]


def conditions(timer: Timer, options: argparse.Namespace) -> dict[str, object]:
    return {
        "what": "us of reductions along a dimension, cold L2 cache: medians of interleaved rounds",
        "seed": options.seed,
        "device": torch.cuda.get_device_name(),
        "versions": {name: version(name) for name in ("torch", "triton", "flag_gems")},
        "bandwidth": dict(zip(("copy_gbps", "read_gbps"), map(round, timer.bandwidth()), strict=True)),
    }


def cases(seed: int, count: int) -> list[Case]:
    shapes = Shapes(Path(__file__).parent / "core_shapes.yaml")
    listed = shapes.cases("amax", "comprehensive", DTYPES)
    odd = [make("amax", f"{size} dim=1", dtype) for size in ODD for dtype in DTYPES]
    odd += [make("amax", f"{size} dim=0", dtype) for size in ODD_FIRST for dtype in DTYPES]
    drawn = (case for case in problems.cases("amax", seed) if case.dtype in DTYPES)
    return [*listed, *odd, *itertools.islice(drawn, count)]


def measured(case: Case, timer: Timer) -> dict[str, float]:
    dim = case.get("dim", 0)
    need = op_inputs.compulsory(case).total
    inputs = [op_inputs.arguments(case, timer.device)[0] for _ in range(timer.group(need))]
    calls = {op: [functools.partial(call, x, dim) for x in inputs] for op, call in reductions().items()}
    times = timer.device_times(calls)
    return {op: round(statistics.median(samples) * 1e3, 3) for op, samples in times.samples_ms.items()}


def reductions() -> dict[str, Callable[[torch.Tensor, int], object]]:
    ops = ("amax", "sum_dim", "mean_dim", "any_dim", "vector_norm", "var_mean")
    function = {op: OPERATORS[op].load()[0] for op in ops}
    norm = function["vector_norm"]
    return {
        "amax": lambda x, dim: function["amax"](x, [dim]),
        "sum_dim": lambda x, dim: function["sum_dim"](x, [dim]),
        "mean_dim": lambda x, dim: function["mean_dim"](x, [dim]),
        "any_dim": lambda x, dim: function["any_dim"](x, dim),
        **{f"vector_norm ord={o}": functools.partial(lambda o, x, dim: norm(x, o, [dim]), o) for o in ORDERS},
        "var_mean": lambda x, dim: function["var_mean"](x, [dim]),
    }


def bound(op: str) -> float:
    return VAR_MEAN_BOUND if op == "var_mean" else BOUND


if __name__ == "__main__":
    main()
