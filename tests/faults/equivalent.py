# SPDX-License-Identifier: Apache-2.0
"""Faults that are none: other in text, right in effect; by the reason."""

from __future__ import annotations

_LOOP = "norm/loop/layer_norm_loop"
_LOOP_DX = "norm/loop/layer_norm_backward_loop"
_COLUMN_SUMS = "norm/columns/sum_columns_of_rows"
_ROWS = ("unaligned_rows", "split_rows", "looped_rows")
_HELD = (*_ROWS, "columns", "looped_columns")
_WEIGHT, _BIAS = (f"tl.load({name}_ptr + head + offsets, mask=mask, other=0.0)" for name in ("weight", "bias"))
_WORDS = [f"tl.load({words}_ptr, mask=mask, other=1, volatile=True)" for words in ("words", "first", "second")]


def _any_other(function: str, load: str) -> tuple[str, str]:
    return f"{function}/wrong_other: {load}", f"{function}/drop_other: {load}"


_REASONS: dict[str, tuple[str, ...]] = {
    "the axis is 0 from Triton 3.7 on": ("softmax/tile/lanes_and_depths/minus_dropped: 1 - AXIS",),
    "a whole tile may have a mask": ("norm/flat/layer_norm_flat/off_by_one: first + BLOCK_M <= M",),
    "a row that is not there mixes with no other": tuple(
        name
        for statistic in ("mean", "rstd")
        for name in _any_other(
            "norm/columns/gradient_of_rows", f"tl.load({statistic}_ptr + rows, mask=rows < M, other=0.0)"
        )
    ),
    "all columns of a row of a few are there": tuple(
        f"norm/flat/normalize_flat/off_by_one: columns < N{which}" for which in ("", " (2)")
    ),
    "kept on a GPU only, where the faults are not planted": (
        "launch/workspace/_counters/not_zeroed: torch.zeros(size, dtype=dtype, device=like.device)",
    ),
    "multiplied with an output that is 0 there, or not added": (
        "softmax/backward/softmax_backward_rows/wrong_other: tl.load(g_ptr + row * N + column, mask=mask, other=0.0)",
        *(
            f"softmax/backward/softmax_backward_{kernel}/wrong_other: tl.load(g_ptr + {offsets}, other=0.0){which}"
            for kernels, offsets, which in (
                (_HELD, "start + offsets, mask=mask", ""),
                (("split_rows",), "start + offsets, mask=mask", " (2)"),
                (_ROWS, "edge_offsets, mask=edge_mask", ""),
                (("split_rows",), "next_start + offsets, mask=next_mask", ""),
            )
            for kernel in kernels
        ),
    ),
    "the slice behind the last is empty": ("norm/statistics/group_statistics/off_by_one: rank < GROUP",),
    "a block without a column more": tuple(f"{kernel}/minus_dropped: size - 1" for kernel in (_LOOP, _LOOP_DX)),
    "a column behind the last is added up and not stored": (
        "norm/partial_sums/sum_columns/off_by_one: columns < N (2)",
    ),
    "a lane without a word has the word 1, of which one half is 1e-45 and the other 0": tuple(
        f"norm/exchange/collect_pairs/off_by_one: rank < GROUP ({n})" for n in (2, 3)
    ),
    "a loop of the interpreter counts in Python's integers; tests/gpu has 2**30 rows and more": (
        "norm/backward/layer_norm_backward_rows/offset_in_32_bits: tl.cast(M, tl.int64)",
        "norm/forward/layer_norm_rows/offset_in_32_bits: tl.cast(M, tl.int64)",
    ),
    "the programs of a launch are never 2**31": (
        "norm/exchange/clear_previous/offset_in_32_bits: tl.cast(groups, tl.int64)",
    ),
    "of two equals either will do: 0.0 and -0.0 are equal": (
        "reduction/extremum/larger/off_by_one: a <= b",
        "reduction/extremum/smaller/off_by_one: a >= b",
    ),
    "there are at most as many partial results as programs on the device hold: never 2**31": (
        *(
            f"reduction/{file}/{does}_{file}_kernel/offset_in_32_bits: tl.full([], M, tl.int64)"
            for file in ("rows", "classes", "columns")
            for does in ("reduce", "locate")
        ),
        "norm/partial_sums/store_partial_sums/offset_in_32_bits: tl.cast(partial, tl.int64)",
        "norm/partial_sums/store_partial_sums_of_edges/offset_in_32_bits: tl.cast(partial, tl.int64)",
        "norm/partial_sums/sum_columns/offset_in_32_bits: tl.cast(rows, tl.int64)",
    ),
    "a program has hundreds of elements for each word: 2**31 words belong to more than a device holds": (
        "norm/backward/layer_norm_backward_split/offset_in_32_bits: tl.cast(row, tl.int64)",
        "norm/forward/layer_norm_split/offset_in_32_bits: tl.cast(row, tl.int64)",
        *(
            f"softmax/group/group_workspace/offset_in_32_bits: tl.cast({what}, tl.int64)"
            for what in ("first", "groups", "blocks")
        ),
    ),
    "a row's tile is shorter than 2**31: in 64 bits its offsets need fewer registers": (
        "softmax/tile/row_tile/offset_in_32_bits: tl.cast(lane * VEC + k, tl.int64)",
    ),
    "a lane without a word may hold what it likes, except 0 (and undefined integers are -1 in the interpreter)": (
        *(
            name
            for function, loads in (("collect", _WORDS[:1]), ("collect_two", _WORDS[1:]))
            for load in loads
            for which in ("", " (2)")
            for name in _any_other(f"launch/workspace/{function}", load + which)
        ),
    ),
    "multiplied with a gradient that is 0 there": (
        "norm/backward/layer_norm_backward_rows/wrong_other: tl.load(mean_ptr + rows, mask=rows < M, other=0.0)",
        "norm/backward/layer_norm_backward_rows/wrong_other: tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)",
        "norm/backward/accumulate_chunks/wrong_other: tl.load(x_ptr + offsets, mask=mask, other=0.0)",
        "norm/columns/gradient_of_rows/wrong_other: tl.load(x_ptr + offsets, mask=mask, other=0.0)",
        "norm/loop/load_terms/wrong_other: tl.load(x_ptr + columns, mask=mask, other=0.0)",
        f"{_COLUMN_SUMS}/wrong_other: tl.load(x_ptr + offsets, mask=mask, other=0.0)",
        f"{_COLUMN_SUMS}/wrong_other: tl.load(mean_ptr + rows, mask=rows < M, other=0.0)",
        f"{_COLUMN_SUMS}/wrong_other: tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)",
    ),
    "multiplied with a gradient that is 0 there, or comes out in elements that are not stored only": (
        f"norm/tile/load_parameters/wrong_other: {_WEIGHT}",
        "norm/tile/load_parameter_at/wrong_other: tl.load(ptr + columns, mask=mask, other=0.0)",
    ),
    "comes out in elements that are not stored only": (*_any_other("norm/tile/load_parameters", _BIAS),),
    "columns behind the last mix with no other, and behind each row of a loop there is another to read": (
        *_any_other(
            "softmax/tile/load_tile",
            "tl.load(pointers, mask=k < columns, other=0.0, eviction_policy=EVICT)",
        ),
        "softmax/tile/load_tile/drop_mask: tl.load(pointers, mask=k < columns, other=0.0, eviction_policy=EVICT)",
        "softmax/tile/load_tile/off_by_one: k < columns",
    ),
    "the one statistic is at offset 0": ("softmax/group/group_words/off_by_one: STATISTICS > 1",),
    "an element that is met twice, at one place, changes no extreme": (
        "reduction/classes/locate_classes_kernel/off_by_one: lane < STEP",
    ),
    "a group of one is found where it was": ("reduction/rows/locate_rows_kernel/off_by_one: NEIGHBOURS > 1",),
    "nothing of a group is masked, unless none has the result: then no position is less than N": (
        "reduction/rows/locate_rows_kernel/off_by_one: offsets < body",
    ),
}

EQUIVALENT = {name: reason for reason, names in _REASONS.items() for name in names}
