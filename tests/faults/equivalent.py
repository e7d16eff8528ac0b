# SPDX-License-Identifier: Apache-2.0
"""Faults that are none: other in text, right in effect; by the reason."""

from __future__ import annotations

_LOOP = "norm/loop/forward_kernel"
_INPUT = "norm/loop/input_kernel"
_SUMS = "norm/loop/weight_bias_kernel"
_BACKWARD = "softmax/backward/softmax_backward_split"
_FORWARD = "softmax/forward/softmax_split"
_WEIGHT, _BIAS = (f"tl.load({name}_ptr + head + position, mask=mask, other=0.0)" for name in ("weight", "bias"))
_EDGE_WEIGHT, _EDGE_BIAS = (f"tl.load({name}_ptr + edge, mask=edge_mask, other=0.0)" for name in ("weight", "bias"))
_WORDS, _NEXT_WORDS = (
    f"tl.load(read_ptr{more}, mask=exists, other=1, volatile=True)" for more in ("", " + STATISTICS")
)
_SLOTS = "tl.load(slots_ptr + member, mask=member < GROUP, other=1, volatile=True)"


def _any_other(function: str, load: str) -> tuple[str, str]:
    return f"{function}/wrong_other: {load}", f"{function}/drop_other: {load}"


_REASONS: dict[str, tuple[str, ...]] = {
    "the axis is 0 from Triton 3.7 on": ("softmax/tile/lanes_and_depths/minus_dropped: 1 - AXIS",),
    "all programs of a group store the same": tuple(
        f"norm/forward/split_rows_kernel/drop_mask: tl.store({name}_ptr + row, {value}, mask=member == 0)"
        for name, value in (("mean", "stored_mean(mean, variance)"), ("rstd", "rstd"))
    ),
    "kept on a GPU only, where the faults are not planted": (
        "launch/workspace/counters/not_zeroed: torch.zeros(size, dtype=dtype, device=like.device)",
    ),
    "multiplied with an output that is 0 there, or not added": (
        "softmax/backward/softmax_backward_rows/wrong_other: tl.load(g_ptr + row * N + column, mask=inside, other=0.0)",
        *(
            f"{_BACKWARD}/wrong_other: tl.load(g_ptr + {at}, mask={mask}, other=0.0){which}"
            for at, mask, which in (
                ("at + lanes", "inside", ""),
                ("at + lanes", "inside", " (2)"),
                ("edge_at", "edge_inside", ""),
                ("next_at + lanes", "next_inside", ""),
            )
        ),
    ),
    "multiplied with a count that is 0": (f"{_LOOP}/off_by_one: count > 0",),
    "the slice behind the last is empty": ("norm/forward/group_statistics/off_by_one: member < GROUP",),
    "a block without a column more": tuple(f"{kernel}/minus_dropped: N - 1" for kernel in (_LOOP, _INPUT, _SUMS)),
    "a column behind the last is added up and not stored": (
        "norm/backward/store_column_sums/off_by_one: columns < N (2)",
    ),
    "a lane without a word has the word 1, of which one half is 1e-45 and the other 0": tuple(
        f"norm/tile/collect/off_by_one: member < GROUP ({n})" for n in (2, 3)
    ),
    "a loop of the interpreter counts in Python's integers; tests/gpu has 2**30 rows and more": (
        "norm/backward/merged_kernel/offset_in_32_bits: tl.cast(M, tl.int64)",
        "norm/forward/whole_rows_kernel/offset_in_32_bits: tl.cast(M, tl.int64)",
    ),
    "the programs of a launch are never 2**31": ("norm/tile/clear_own/offset_in_32_bits: tl.cast(groups, tl.int64)",),
    "the word behind the group's is looked at once, and not used": ("norm/tile/collect/off_by_one: member < GROUP",),
    "of two equals either will do: 0.0 and -0.0 are equal": (
        "reduction/combine/_larger/off_by_one: a <= b",
        "reduction/combine/_smaller/off_by_one: a >= b",
    ),
    "there are at most as many partial results as programs on the device hold: never 2**31": (
        "reduction/kernels/reduce_kernel/offset_in_32_bits: tl.full([], M, tl.int64)",
        "reduction/kernels/reduce_with_index_kernel/offset_in_32_bits: tl.full([], M, tl.int64)",
        "norm/backward/merged_kernel/offset_in_32_bits: tl.cast(program, tl.int64)",
        "norm/backward/split_kernel/offset_in_32_bits: tl.cast(group, tl.int64)",
        "norm/backward/store_column_sums/offset_in_32_bits: tl.cast(rows, tl.int64)",
    ),
    "a program has hundreds of elements for each word: 2**31 words belong to more than a device holds": (
        "norm/backward/split_kernel/offset_in_32_bits: tl.cast(row, tl.int64)",
        "norm/forward/split_rows_kernel/offset_in_32_bits: tl.cast(row, tl.int64)",
        *(
            f"{kernel}/offset_in_32_bits: tl.cast({what}, tl.int64)"
            for kernel in (_BACKWARD, _FORWARD)
            for what in ("first", "groups", "blocks")
        ),
    ),
    "a row's tile is shorter than 2**31: in 64 bits its offsets need fewer registers": tuple(
        f"{kernel}/offset_in_32_bits: tl.cast(lane * VEC + k, tl.int64)" for kernel in (_BACKWARD, _FORWARD)
    ),
    "a lane without a word may hold what it likes, except 0 (and undefined integers are -1 in the interpreter)": (
        *_any_other(_BACKWARD, _WORDS),
        *_any_other(_BACKWARD, _WORDS + " (2)"),
        *_any_other(_FORWARD, _WORDS),
        *_any_other(_FORWARD, _WORDS + " (2)"),
        *_any_other(_FORWARD, _NEXT_WORDS),
        *_any_other(_FORWARD, _NEXT_WORDS + " (2)"),
        *_any_other("norm/tile/collect", _SLOTS),
        *_any_other("norm/tile/collect", _SLOTS + " (2)"),
    ),
    "multiplied with a gradient that is 0 there": (
        "norm/backward/merged_kernel/wrong_other: tl.load(mean_ptr + rows, mask=rows < M, other=0.0)",
        "norm/backward/merged_kernel/wrong_other: tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)",
        "norm/backward/merged_kernel/wrong_other: tl.load(x_ptr + base + position, mask=mask & (rows < M), other=0.0)",
        "norm/backward/split_kernel/wrong_other: tl.load(x_ptr + base + position, mask=mask, other=0.0)",
        "norm/backward/load_edges/wrong_other: tl.load(x_ptr + at, mask=mask & (rows < M), other=0.0)",
        *(
            f"norm/backward/{kernel}/wrong_other: {load}"
            for kernel in ("merged_kernel", "split_kernel")
            for load in (_WEIGHT, _EDGE_WEIGHT)
        ),
        f"{_INPUT}/wrong_other: tl.load(x_ptr + start + columns, mask=mask, other=0.0)",
        f"{_INPUT}/wrong_other: tl.load(weight_ptr + columns, mask=mask, other=0.0)",
        f"{_SUMS}/wrong_other: tl.load(x_ptr + offsets, mask=mask, other=0.0)",
        f"{_SUMS}/wrong_other: tl.load(mean_ptr + rows, mask=rows < M, other=0.0)",
        f"{_SUMS}/wrong_other: tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)",
    ),
    "comes out in elements that are not stored only": (
        *(
            name
            for kernel in ("whole_rows_kernel", "split_rows_kernel")
            for load in (_WEIGHT, _BIAS, _EDGE_WEIGHT, _EDGE_BIAS)
            for name in _any_other(f"norm/forward/{kernel}", load)
        ),
        *_any_other(_LOOP, "tl.load(x_ptr + start + columns, mask=mask, other=0.0) (2)"),
        *_any_other(_LOOP, "tl.load(weight_ptr + columns, mask=mask, other=0.0)"),
        *_any_other(_LOOP, "tl.load(bias_ptr + columns, mask=mask, other=0.0)"),
        *_any_other(_INPUT, "tl.load(dy_ptr + start + columns, mask=mask, other=0.0) (2)"),
        *_any_other(_INPUT, "tl.load(x_ptr + start + columns, mask=mask, other=0.0) (2)"),
        *_any_other(_INPUT, "tl.load(weight_ptr + columns, mask=mask, other=0.0) (2)"),
    ),
    "replaced by 0 where it is masked": _any_other(_LOOP, "tl.load(x_ptr + start + columns, mask=mask, other=0.0)"),
    "columns behind the last mix with no other, and behind each row of a loop there is another to read": (
        *_any_other(
            "softmax/tile/load_tile",
            "tl.load(pointers, mask=k < columns, other=0.0, eviction_policy=EVICT)",
        ),
        "softmax/tile/load_tile/drop_mask: tl.load(pointers, mask=k < columns, other=0.0, eviction_policy=EVICT)",
        "softmax/tile/load_tile/off_by_one: k < columns",
    ),
    "the one statistic is at offset 0": ("softmax/tile/group_words/off_by_one: STATISTICS > 1",),
    "an element that is met twice, at one place, changes no extreme": (
        "reduction/tiles/locate_flat/off_by_one: lane < STEP",
    ),
    "a group of one is found where it was": ("reduction/tiles/locate_flat/off_by_one: GROUP > 1",),
    "nothing of a group is masked, unless none has the result: then no position is less than length": (
        *_any_other(
            "reduction/tiles/locate_flat",
            "tl.load(x_ptrs + at, mask=(m < M) & (at < body), other=IDENTITY)",
        ),
        "reduction/tiles/locate_flat/off_by_one: at < body",
    ),
}

EQUIVALENT = {name: reason for reason, names in _REASONS.items() for name in names}
