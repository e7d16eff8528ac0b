# SPDX-License-Identifier: Apache-2.0
"""Host time of every operator at 64 x 64: native, the override through Python, the override through C++.

    python benchmark/host_path.py [--output FILE]

In one process, in the order A B C C B A. Before that, the kernel is built if it is not yet, and what goes through it
is compared with what goes through Python: results, streams, graph capture.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

import flag_gems
import torch

from flag_gems_overrides import install, uninstall
from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.perf import op_inputs
from flag_gems_overrides.perf.cases import make
from flag_gems_overrides.perf.statistics import compare
from flag_gems_overrides.registration import installation, upstream
from flag_gems_overrides.registration.host import extension

CALLS, ROUNDS = 100, 15
WAYS = ("native", "python", "cpp")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("host_path.json"))
    options = parser.parse_args()

    seconds = time.perf_counter()
    path = extension.build()
    print(f"built in {time.perf_counter() - seconds:.0f} s: {path.name}", flush=True)
    rows = []
    registered = upstream.rows(flag_gems)
    for op, operator in OPERATORS.items():
        if operator.overload not in registered:
            print(f"{op}: flag_gems {flag_gems.__version__} does not register {operator.overload}", flush=True)
            continue
        size = " ".join(
            ["x".join(["64", "64", "1", "1"][: operator.ndim or 2]), *(f"{n}=1" for n in operator.arguments)]
        )
        dtype = "bfloat16" if "bfloat16" in operator.dtypes else operator.dtypes[0]
        arguments = op_inputs.arguments(make(op, size, dtype), torch.device("cuda"))
        rows.append({"op": op, **times(op, arguments), **checks(op, arguments)})
        print(json.dumps({name: value for name, value in rows[-1].items() if name != "samples_us"}), flush=True)
    record = {
        "what": f"host time in us, median of {ROUNDS} rounds of {CALLS} calls, 64 x 64, bfloat16 if any, by aten",
        "device": torch.cuda.get_device_name(),
        "versions": {name: version(name) for name in ("torch", "triton", "flag_gems")},
        "rows": rows,
    }
    options.output.write_text(json.dumps(record, indent=1) + "\n")


def host_path(op: str) -> Any:
    made = installation._installation
    assert made is not None
    return next(path for path in made._host_paths if path._overload == OPERATORS[op].overload)


def enabled(stack: ExitStack, op: str, cpp: bool) -> None:
    """The override of ``op`` in force, through C++ or not."""
    stack.callback(uninstall)
    install(include=[op])
    path = host_path(op)
    path._wrapper._scope["notice"] = path.notice if cpp else None
    stack.enter_context(upstream.use_gems(flag_gems, [op]))


def times(op: str, arguments: tuple) -> dict[str, Any]:
    call = op_inputs.native(op)
    samples: dict[str, list[float]] = {way: [] for way in WAYS}
    replayed = 0
    for _ in range(ROUNDS):
        pairs: dict[str, list[float]] = {way: [] for way in WAYS}
        for way in (*WAYS, *reversed(WAYS)):
            with ExitStack() as stack:
                if way != "native":
                    enabled(stack, op, cpp=way == "cpp")
                for _ in range(10):
                    call(*arguments)
                before = host_path(op).replayed if way == "cpp" else 0
                torch.cuda.synchronize()
                pairs[way].append(one(call, arguments))
                if way == "cpp":
                    replayed = host_path(op).replayed - before
        for way, pair in pairs.items():
            samples[way].append(sum(pair) / 2)
    found: dict[str, Any] = {f"{way}_us": round(statistics.median(samples[way]), 2) for way in WAYS}
    for way in ("python", "cpp"):
        ratio, low, high, _ = compare(samples[way], samples["native"], seed=op)
        found[f"native_over_{way}"] = [round(value, 3) for value in (ratio, low, high)]
    return {**found, "replayed": f"{replayed}/{CALLS}", "samples_us": samples}


def one(call: Callable, arguments: tuple) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        call(*arguments)
    elapsed = time.perf_counter() - start
    torch.cuda.synchronize()
    return elapsed / CALLS * 1e6


def checks(op: str, arguments: tuple) -> dict[str, bool]:
    """The same bits as through Python: in a row, on another stream, from a captured graph, from another thread."""
    call = op_inputs.native(op)
    with ExitStack() as stack:
        enabled(stack, op, cpp=False)
        want = op_inputs.outputs(call(*arguments))
    with ExitStack() as stack:
        enabled(stack, op, cpp=True)
        same = all(_equal(op_inputs.outputs(call(*arguments)), want) for _ in range(5))
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            on_stream = all(_equal(op_inputs.outputs(call(*arguments)), want) for _ in range(3))
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = op_inputs.outputs(call(*arguments))
        for tensor in result:
            if tensor is not None:
                tensor.zero_()
        graph.replay()
        torch.cuda.synchronize()
        return {"same": same, "on_stream": on_stream, "in_graph": _equal(result, want)}


def _equal(some: Any, others: Any) -> bool:
    return all(torch.equal(a, b) for a, b in zip(some, others, strict=True) if a is not None)


if __name__ == "__main__":
    main()
