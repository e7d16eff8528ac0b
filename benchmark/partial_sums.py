# SPDX-License-Identifier: Apache-2.0
"""Four ways to add up layer_norm's gradients of weight and bias over the rows, timed beside each other.

    python benchmark/partial_sums.py [--output FILE]

    shipped        what the override launches
    two launches   every program stores its partial sums, a second kernel adds them up in order
    last program   one launch: the last program to arrive adds them up, in the same order
    atomics        one launch: every program adds its sums to one float32 for each column by atomics, in any order; the
                   last program to arrive rounds them and leaves them zero for the next launch

Only the first two are in the package. All read x and dy once, with the same programs and tiles; but for few rows, where
`shipped` has programs for columns beside those for rows. bfloat16, cold L2 cache, interleaved in one process.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import torch
import triton
import triton.language as tl

from flag_gems_overrides.ops.families.norm import plan
from flag_gems_overrides.ops.families.norm.backward import accumulate_chunks, input_gradient, row_sums
from flag_gems_overrides.ops.families.norm.call import backward
from flag_gems_overrides.ops.families.norm.launches import Problem, Rows, launch
from flag_gems_overrides.ops.families.norm.partial_sums import store_partial_sums, zeros
from flag_gems_overrides.ops.families.norm.tile import body_offset, chunk, load_parameters
from flag_gems_overrides.ops.launch import devices
from flag_gems_overrides.ops.launch.workspace import is_last
from flag_gems_overrides.perf.timing import Timer

COLUMNS = (1024, 4096)
ROWS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536)
# Of the partial sums that the last program has at a time: 32 elements to each of 128 threads.
SUM_ROWS, SUM_COLUMNS = 32, 128
Call = Callable[[], tuple[torch.Tensor, ...]]


@triton.jit(do_not_specialize=["M"])
def gradients(
    dy_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, dx_ptr, dweight_ptr, dbias_ptr, sums_ptr, counter_ptr, M, N,
    ATOMICS: tl.constexpr, BLOCK_M: tl.constexpr, CHUNKS: tl.constexpr, BLOCK_N: tl.constexpr, VEC: tl.constexpr,
    STAGES: tl.constexpr, SUM_ROWS: tl.constexpr, SUM_COLUMNS: tl.constexpr,
):  # fmt: skip
    """The override's gradients of whole rows, with another end.

    dy_ptr, x_ptr, dx_ptr: [M, N]    weight_ptr, dweight_ptr, dbias_ptr: [N]    mean_ptr, rstd_ptr: [M]
    sums_ptr: float32 [2, N] with ATOMICS, [2, programs, N] without; counter_ptr: [1], zero before and after. So is
    sums_ptr with ATOMICS.
    """
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    end = tl.minimum(CHUNKS * BLOCK_N, N // VEC * VEC)
    weights, _ = load_parameters(weight_ptr, None, 0, 0, end, CHUNKS, BLOCK_N)
    dweights = zeros(BLOCK_M, CHUNKS, BLOCK_N, tl.float32)
    dbiases = zeros(BLOCK_M, CHUNKS, BLOCK_N, tl.float32)
    for first in tl.range(program * BLOCK_M, M, programs * BLOCK_M, num_stages=STAGES):
        rows = first + tl.arange(0, BLOCK_M)[:, None]
        body = body_offset(rows, N, VEC, False)
        mean = tl.load(mean_ptr + rows, mask=rows < M, other=0.0)
        rstd = tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)
        xhats, wdys, dweights, dbiases = accumulate_chunks(
            x_ptr + body, dy_ptr + body, rows < M, mean, rstd, weights, dweights, dbiases, 0, end, CHUNKS, BLOCK_N, True
        )
        c1, c2 = row_sums(xhats, wdys, CHUNKS)
        for c in tl.static_range(CHUNKS):
            offsets, mask = chunk(c, 0, end, rows < M, BLOCK_N)
            tl.store(dx_ptr + body + offsets, input_gradient(xhats[c], wdys[c], rstd, c1 / N, c2 / N), mask=mask)
    if ATOMICS:
        for c in tl.static_range(CHUNKS):
            offsets, mask = chunk(c, 0, end, None, BLOCK_N)
            tl.atomic_add(sums_ptr + offsets, tl.sum(dweights[c], 0, keep_dims=True), mask=mask, sem="relaxed")
            tl.atomic_add(sums_ptr + N + offsets, tl.sum(dbiases[c], 0, keep_dims=True), mask=mask, sem="relaxed")
    else:
        store_partial_sums(sums_ptr, dweights, program, N, 0, 0, end, CHUNKS, BLOCK_N)
        store_partial_sums(sums_ptr, dbiases, programs + program, N, 0, 0, end, CHUNKS, BLOCK_N)
    if is_last(counter_ptr, programs, "acq_rel"):
        if ATOMICS:
            for c in tl.static_range(CHUNKS):
                offsets, mask = chunk(c, 0, end, None, BLOCK_N)
                move(sums_ptr, dweight_ptr, offsets, mask)
                move(sums_ptr + N, dbias_ptr, offsets, mask)
        else:
            for start in tl.range(0, N, SUM_COLUMNS):
                add_up(sums_ptr, dweight_ptr, start, programs, N, SUM_ROWS, SUM_COLUMNS)
                add_up(sums_ptr + programs * N, dbias_ptr, start, programs, N, SUM_ROWS, SUM_COLUMNS)


@triton.jit
def move(sums_ptr, out_ptr, offsets, mask):
    """Store the sums, and leave them zero. sums_ptr, out_ptr: [N]"""
    tl.store(out_ptr + offsets, tl.load(sums_ptr + offsets, mask=mask), mask=mask)
    tl.store(sums_ptr + offsets, 0.0, mask=mask)


@triton.jit
def add_up(partial_ptr, out_ptr, start, P, N, SUM_ROWS: tl.constexpr, SUM_COLUMNS: tl.constexpr):
    """The columns from ``start``. partial_ptr: [P, N]; out_ptr: [N]"""
    columns = start + tl.arange(0, SUM_COLUMNS)[None, :]
    column_sum = tl.zeros([SUM_ROWS, SUM_COLUMNS], tl.float32)
    for first in tl.range(0, P, SUM_ROWS):
        rows = first + tl.arange(0, SUM_ROWS)[:, None]
        column_sum += tl.load(partial_ptr + rows * N + columns, mask=(rows < P) & (columns < N), other=0.0)
    tl.store(out_ptr + columns, tl.sum(column_sum, 0, keep_dims=True), mask=columns < N)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("partial_sums.json"))
    options = parser.parse_args()
    device = torch.device("cuda", 0)
    timer = Timer(device)
    rows = []
    for N in COLUMNS:
        for M in ROWS:
            rows.append(measured(M, N, timer))
            medians = {way: each["us"] for way, each in rows[-1]["ways"].items()}
            print(json.dumps({"M": M, "N": N, **medians}), flush=True)
    record = {
        "what": "us of layer_norm's gradients, bfloat16, cold L2 cache: medians of interleaved rounds",
        "device": torch.cuda.get_device_name(),
        "versions": {name: version(name) for name in ("torch", "triton", "flag_gems")},
        "rows": rows,
    }
    options.output.write_text(json.dumps(record, indent=1) + "\n")


def measured(M: int, N: int, timer: Timer) -> dict[str, object]:
    """Times of each way, its largest error, and whether ten calls gave the same bits."""
    calls: dict[str, list[Call]] = {}
    for _ in range(timer.group(3 * 2 * M * N)):
        for way, call in ways(*inputs(M, N, timer.device)).items():
            calls.setdefault(way, []).append(call)
    right = exact(*inputs(M, N, timer.device))
    checked = {way: (error(each[0](), right), repeats(each[0])) for way, each in calls.items()}
    times = timer.device_times(calls)
    return {
        "M": M,
        "N": N,
        "clock_mhz": times.clock_mhz,
        "ways": {
            way: {
                "us": round(statistics.median(samples) * 1e3, 2),
                "error": checked[way][0],
                "same_bits": checked[way][1],
                "samples_us": [round(sample * 1e3, 3) for sample in samples],
            }
            for way, samples in times.samples_ms.items()
        },
    }


def inputs(M: int, N: int, device: torch.device | str) -> tuple[torch.Tensor, ...]:
    """dy, x, weight, mean, rstd."""
    torch.manual_seed(0)
    x, dy = (torch.randn(M, N, device=device).bfloat16() for _ in range(2))
    weight = torch.randn(N, device=device).bfloat16()
    variance, mean = torch.var_mean(x.float(), 1, correction=0, keepdim=True)
    return dy, x, weight, mean, (variance + 1e-5).rsqrt()


def ways(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor
) -> dict[str, Call]:
    """A call for each way, which returns dx, dweight and dbias."""
    M, N = x.shape
    limits = devices.limits(x.get_device())
    problem = Problem(M, N, 1, x.element_size(), True)
    rows = next(each for each in plan.configurations(problem, limits) if each.kernel == "rows")
    chosen = launch(problem, rows, limits)
    assert isinstance(chosen, Rows)
    shipped = functools.partial(backward, dy, x, [N], mean, rstd, weight, weight, [True] * 3)

    def one_launch(atomics: bool) -> Call:
        sums = torch.zeros(2, 1 if atomics else chosen.programs, N, device=x.device)
        counter = torch.zeros(1, dtype=torch.int32, device=x.device)

        def call() -> tuple[torch.Tensor, ...]:
            dx, dweight, dbias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(weight)
            gradients[(chosen.programs,)](
                dy, x, weight, mean, rstd, dx, dweight, dbias, sums, counter, M, N,
                ATOMICS=atomics, BLOCK_M=chosen.block_m, CHUNKS=chosen.chunks, BLOCK_N=chosen.block_n, VEC=chosen.vec,
                STAGES=chosen.stages, SUM_ROWS=SUM_ROWS, SUM_COLUMNS=SUM_COLUMNS, num_warps=chosen.warps,
            )  # fmt: skip
            return dx, dweight, dbias

        return call

    return {
        "shipped": shipped,
        "two launches": functools.partial(shipped, rows),
        "last program": one_launch(False),
        "atomics": one_launch(True),
    }


def exact(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor, rstd: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """dweight and dbias in float64."""
    xhat = (x.double() - mean) * rstd
    return (dy.double() * xhat).sum(0), dy.double().sum(0)


def error(result: tuple[torch.Tensor, ...], right: tuple[torch.Tensor, torch.Tensor]) -> float:
    """The largest of dweight and dbias, as a share of the largest value."""
    pairs = zip(result[1:], right, strict=True)
    return max(float((ours.double() - truth).abs().max() / truth.abs().max()) for ours, truth in pairs)


def repeats(call: Call) -> bool:
    first = call()
    return all(torch.equal(a, b) for _ in range(9) for a, b in zip(call(), first, strict=True))


if __name__ == "__main__":
    main()
