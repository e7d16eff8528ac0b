# SPDX-License-Identifier: Apache-2.0
"""Faults that are none: other in text, right in effect; by the reason."""

from __future__ import annotations

_LOOP = "norm/loop/layer_norm_loop"
_PASSES = "norm/two_passes"
_COLUMNS_OF_PASSES = f"{_PASSES}/gradients_of_columns"
_COLUMN_SUMS = "norm/columns/sum_columns_of_rows"
_GROUPS = "group_norm/backward"
_FEW = f"{_GROUPS}_few"
_FLAT = "gather/nll_flat/nll_gradient_flat"
_SHORT = "gather/nll_short"
_SHARED = "gather/cross_entropy_shared"
_WAITING = "batch_norm/waiting"
_MOMENTS_OF_CLASSES = "reduction/moment_classes/moments_of_classes_kernel"
_SHORT_ROWS = (
    *(f"short_rows/{does}_short_rows" for does in ("reduce", "locate")),
    "moment_short_rows/moments_of_short_rows",
    "pair_short_rows/reduce_pairs_of_short_rows",
)
_ROWS = ("unaligned_rows", "split_rows", "looped_rows")
_WEIGHT, _BIAS = (f"tl.load({name}_ptr + head + offsets, mask=mask, other=0.0)" for name in ("weight", "bias"))
_AT_FIRST = "target_ptr + lanes, mask=lanes < positions, other=0)"
_AFTER = "after, mask=after < positions, other=0)"
_WORDS = [f"tl.load({words}_ptr, mask=mask, other=1, volatile=True)" for words in ("words", "first", "second")]


def _any_other(function: str, load: str) -> tuple[str, str]:
    return f"{function}/wrong_other: {load}", f"{function}/drop_other: {load}"


_REASONS: dict[str, tuple[str, ...]] = {
    "the axis is 0 from Triton 3.7 on": (
        "softmax/tile/lanes_and_depths/minus_dropped: 1 - AXIS",
        "group_norm/vectors/rows_from/minus_dropped: 1 - AXIS",
        "reduction/moment_columns/moments_of_columns_kernel/minus_dropped: 1 - AXIS",
        "reduction/pairs/reduce_pairs_of_columns_kernel/minus_dropped: 1 - AXIS",
        *(f"group_norm/vectors/sum_rows/minus_dropped: 1 - AXIS{which}" for which in ("", " (2)")),
        *(f"group_norm/vectors/sums_of_rows/minus_dropped: 1 - AXIS{which}" for which in ("", " (2)", " (3)")),
    ),
    "the last row again changes no pair of which the other number is nothing's": (
        "reduction/pairs/reduce_pairs_of_columns_kernel/off_by_one: tile + n < N",
        "reduction/pairs/reduce_pairs_of_columns_kernel/off_by_one: tile + n < N (2)",
    ),
    "the next row begins behind the vector": (f"{_SHORT}/nll_gradient_short/off_by_one: begin + VEC > C",),
    "a whole tile may have a mask": (
        f"{_SHORT}/nll_gradient_short/off_by_one: left >= VECTORS * VEC",
        "norm/flat/layer_norm_flat/off_by_one: first + BLOCK_M <= M",
        "norm/rms_flat/rms_norm_flat/off_by_one: first + BLOCK_M <= M",
        "norm/short_rows/layer_norm_short_rows/off_by_one: first + BLOCK_M <= M",
        "norm/rms_short_rows/rms_norm_short_rows/off_by_one: first + BLOCK_M <= M",
        "group_norm/short_rows/group_norm_short_rows/off_by_one: first + BLOCK_M <= M",
        f"{_SHARED}/cross_entropy_shared/minus_dropped: length - 1",
        "gather/nll/clear_block/off_by_one: size - start >= BLOCK",
        "scan/flat/cumsum_flat/off_by_one: left >= ROWS * N",
        "scan/flat/cumsum_flat/off_by_one: left >= ROWS * N (2)",
    ),
    "elements behind the last run, and edges that are not there, have masks": (
        "batch_norm/held/places_of/minus_dropped: total // of_run - 1",
        *_any_other("batch_norm/held/batch_norm_backward_held", "tl.load(x_ptr + at_edges, mask=in_edges, other=0.0)"),
    ),
    "which thread has a column changes no sum": (f"{_COLUMN_SUMS}/off_by_one: BLOCK_M > 1",),
    "a whole tile needs no mask": ("group_norm/short_rows/group_norm_short_rows/off_by_one: VEC > 1",),
    "a row that is not there mixes with no other": tuple(
        name
        for statistic in ("mean", "rstd")
        for name in _any_other(
            "norm/columns/gradient_of_rows", f"tl.load({statistic}_ptr + rows, mask=rows < M, other=0.0)"
        )
    )
    + tuple(_any_other("norm/rms_backward/gradient_of_rows", "tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)"))
    + tuple(f"reduction/moment_rows/moments_of_rows_kernel/off_by_one: m < M{which}" for which in (" (3)", " (6)")),
    "one neighbour has no squares": tuple(
        f"reduction/moment_rows/{where}/off_by_one: NEIGHBOURS > 1" for where in ("moments_of_rows_kernel", "_sum")
    ),
    "all columns of a row of a few are there": tuple(
        f"norm/flat/normalize_flat/off_by_one: columns < N{which}" for which in ("", " (2)")
    )
    + ("norm/rms_flat/normalize_flat/off_by_one: columns < N",),
    "kept on a GPU only, where the faults are not planted": (
        "launch/workspace/_counters/not_zeroed: torch.zeros(size, dtype=dtype, device=like.device)",
    ),
    "multiplied with an output that is 0 there, or not added": (
        *(
            f"softmax/{file}/softmax_backward_{kernel}/wrong_other: tl.load(g_ptr + {offsets}, other=0.0){which}"
            for file, kernels, offsets, which in (
                ("backward_rows", ("rows",), "row * N + column, mask=mask", ""),
                ("backward_rows", _ROWS, "start + offsets, mask=mask", ""),
                ("backward_columns", ("columns", "looped_columns"), "start + offsets, mask=mask", ""),
                ("backward_rows", ("split_rows",), "start + offsets, mask=mask", " (2)"),
                ("backward_rows", _ROWS, "edge_offsets, mask=edge_mask", ""),
                ("backward_rows", ("split_rows",), "next_start + offsets, mask=next_mask", ""),
                ("backward_strided", ("strided_merge",), "first_edge, mask=first_mask", ""),
                ("backward_strided", ("strided_merge",), "last_edge, mask=last_mask", ""),
            )
            for kernel in kernels
        ),
    ),
    "multiplied with a gradient that is 0 there, or not added": (
        "softmax/backward_rows/row_in_tiles/wrong_other: tl.load(y_ptr + i * WIDTH + offsets, mask=mask, other=0.0)",
    ),
    "a row of several tiles is longer than one": (
        "softmax/backward_rows/row_in_tiles/off_by_one: tl.arange(0, WIDTH // 2)[None, None, :] * 2 < N",
    ),
    "either exponential is right": ("softmax/backward_rows/softmax_backward_rows/off_by_one: DEPTH * WIDTH <= 4096",),
    "a lane behind a step may have another column's numbers: it stores nothing": tuple(
        f"softmax/{kernel}/{fault}"
        for kernel, numbers in (
            ("forward_strided/softmax_strided", {"max": "0.0", "sum": "1.0"}),
            ("backward_strided/softmax_backward_strided", {"sum": "0.0"}),
        )
        for fault in (
            *(f"off_by_one: column < step{which}" for which in ("", " (2)")[: len(numbers)]),
            *(
                f"{way}: tl.load(row_{of}_ptr + row * K + column % K, mask=column < step, other={other})"
                for of, other in numbers.items()
                for way in ("drop_mask", "wrong_other", "drop_other")
            ),
        )
    ),
    "a part that is not there has the maximum -inf": (
        "softmax/forward_strided/softmax_strided_merge/wrong_other: tl.load(sum_ptr + read, mask=mask, other=0.0)",
    ),
    "a round more of tiles that are not there": (
        "softmax/strided/rounds/minus_dropped: stride - 1",
        "softmax/strided/rounds/minus_dropped: inside - first",
    ),
    "the slice behind the last is empty": ("norm/statistics/group_statistics/off_by_one: rank < GROUP",),
    "a block without a column more": (
        f"{_LOOP}/minus_dropped: size - 1",
        f"{_PASSES}/norm_backward_sums/minus_dropped: body - 1",
        "norm/blocks/norm_backward_blocks/minus_dropped: N - 1",
    ),
    "a block more of elements, vectors, channels or parts that are not there": (
        "group_norm/forward/group_norm_loop/minus_dropped: vectors - 1",
        f"{_GROUPS}_passes/group_norm_backward_loop/minus_dropped: vectors - 1",
        f"{_GROUPS}_passes/group_norm_backward_loop/minus_dropped: D - 1",
        f"{_GROUPS}_passes/group_norm_backward_sums/minus_dropped: D - 1",
        f"{_GROUPS}_passes/group_norm_backward_apply/minus_dropped: PARTS - 1",
    ),
    "a channel that begins with a vector has it as its first edge": (
        f"{_GROUPS}_passes/sums_of_unaligned_channels/minus_dropped: VEC - 1",
    ),
    "no tensor has as many channels of four vectors": (
        f"{_GROUPS}_passes/sums_of_unaligned_channels/offset_in_32_bits: tl.cast(out_row, tl.int64)",
    ),
    "whole channels begin at 0": (f"{_GROUPS}_passes/sums_of_channels/minus_dropped: end - begin",),
    "a run as long as a tile is divided either way, and no tile has as many vectors as would be too many": (
        "batch_norm/tile/run_of/off_by_one: vectors < UNITS",
        "batch_norm/tile/run_of/off_by_one: 2 * UNITS * UNITS < 1 << 30",
    ),
    "the first chunk begins at 0, and no other has this edge": (
        "scan/cumsum/cumsum_chunk_sums/minus_dropped: x_ptr - along(chunk * length, K, COLUMNS)",
    ),
    "the word behind is of the next step, which is cleared before": (
        "scan/cumsum/cumsum_shared/off_by_one: word * WORDS < words (2)",
    ),
    "only columns have more than one sum": ("scan/cumsum/cumsum_shared/wrong_axis: tl.sum(carry + total, 1)",),
    "no launch that is tested has so few lanes": ("group_norm/vectors/edges_of/off_by_one: LANES >= 2 * VEC",),
    "each lane is one of the lanes": ("scan/exchange/look/off_by_one: lane < LANES",),
    "each program has a sample": tuple(
        f"{_GROUPS}_rows/group_norm_backward_rows/off_by_one: first < N{which}" for which in ("", " (2)")
    ),
    "all programs of a group store the same": tuple(
        f"group_norm/forward/group_norm_apply/drop_mask: tl.store({store}, mask=tile == 0)"
        for store in ("mean_ptr + row, mean_to_store(mean, variance)", "rstd_ptr + row, rstd")
    ),
    "a slice that is not there counts nothing, and has the mean 0 and no deviation": (
        "group_norm/forward/group_norm_apply/wrong_other: "
        "tl.load(partial_mean_ptr + places, mask=split < SPLITS, other=0.0)",
        "group_norm/forward/group_norm_apply/off_by_one: split < SPLITS",
        "group_norm/forward/group_norm_apply/off_by_one: split < SPLITS (4)",
    ),
    "a lane without an element counts nothing": (
        "group_norm/vectors/merged/off_by_one: lane_count > 0",
        f"{_MOMENTS_OF_CLASSES}/off_by_one: lane < STEP",
    ),
    "an element that is not there has its product chosen as 0, and is not stored": tuple(
        name
        for load in (
            "x_ptr + offsets, mask=mask, other=0.0)",
            "x_ptr + offsets, mask=mask, other=0.0) (2)",
            "x_ptr + at_rest, mask=in_rest, other=0.0)",
            "dy_ptr + offsets, mask=mask, other=0.0) (2)",
        )
        for name in _any_other("batch_norm/backward/batch_norm_backward_channels", f"tl.load({load}")
    ),
    "an element that is not there is no deviation": _any_other(
        "group_norm/vectors/running_statistics", "tl.load(x_ptr + elements_of(vector, VEC), mask=mask, other=0.0)"
    ),
    "moments of no element are those of rows": (
        f"{_MOMENTS_OF_CLASSES}/off_by_one: N > 0",
        f"{_MOMENTS_OF_CLASSES}/off_by_one: N > 0 (2)",
        "reduction/moment_columns/moments_of_columns_kernel/off_by_one: N > 0",
    ),
    "a result that is not stored may have any shift, and there are two elements for each at least": (
        f"{_MOMENTS_OF_CLASSES}/off_by_one: k < K (2)",
    ),
    "a column behind the last is added up and not stored": (
        "norm/partial_sums/sum_columns/off_by_one: columns < N (2)",
    ),
    "a lane without a word has the word 1, of which one half is 1e-45 and the other 0": tuple(
        f"norm/exchange/collect_pairs/off_by_one: rank < GROUP ({n})" for n in (2, 3)
    ),
    "a loop of the interpreter counts in Python's integers; tests/gpu has 2**30 rows and more": (
        "norm/backward/layer_norm_backward_rows/offset_in_32_bits: tl.cast(M, tl.int64)",
        "norm/forward/layer_norm_rows/offset_in_32_bits: tl.cast(M, tl.int64)",
        "scan/stacked/cumsum_stacked/offset_in_32_bits: tl.cast(M, tl.int64)",
    ),
    "few rows are at most 16384, of at most 8192 columns": (
        f"{_COLUMN_SUMS}/offset_in_32_bits: tl.cast(rows, tl.int64)",
        "norm/columns/gradient_of_rows/offset_in_32_bits: tl.cast(rows, tl.int64)",
    ),
    "the programs of a launch are never 2**31": (
        "norm/exchange/clear_previous/offset_in_32_bits: tl.cast(groups, tl.int64)",
    ),
    "of two equals either will do: 0.0 and -0.0 are equal": (
        "reduction/extremum/larger/off_by_one: a <= b",
        "reduction/extremum/smaller/off_by_one: a >= b",
    ),
    "a program of short rows has all of its block": tuple(
        f"reduction/{kernel}_kernel/off_by_one: rows < BLOCK_M" for kernel in _SHORT_ROWS
    ),
    "short rows have no partial results": tuple(
        f"reduction/{kernel}_kernel/offset_in_32_bits: tl.full([], M, tl.int64)" for kernel in _SHORT_ROWS
    ),
    "there are at most as many partial results as programs on the device hold: never 2**31": (
        *(
            f"reduction/{file}/{does}_{file}_kernel/offset_in_32_bits: tl.full([], M, tl.int64)"
            for file in ("rows", "classes", "columns")
            for does in ("reduce", "locate")
        ),
        *(
            f"reduction/moment_{file}/moments_of_{file}_kernel/offset_in_32_bits: tl.full([], M, tl.int64)"
            for file in ("rows", "classes", "columns")
        ),
        "reduction/pairs/reduce_pairs_of_columns_kernel/offset_in_32_bits: tl.full([], M, tl.int64)",
        "scan/cumsum/cumsum_chunk_sums/offset_in_32_bits: tl.program_id(0).to(tl.int64)",
        "scan/cumsum/cumsum_chunks/offset_in_32_bits: block.to(tl.int64)",
        f"{_GROUPS}/group_norm_backward_tile/offset_in_32_bits: tl.cast(tl.program_id(0) // blocks, tl.int64)",
        f"{_GROUPS}_channels/group_norm_backward_channels/offset_in_32_bits: tl.cast(share, tl.int64)",
        f"{_GROUPS}_rows/group_norm_backward_rows/offset_in_32_bits: tl.cast(first, tl.int64)",
        *(
            f"{_GROUPS}_rows/group_norm_backward_rows/offset_in_32_bits: tl.cast(first, tl.int64) ({which})"
            for which in (3, 4)
        ),
        f"{_GROUPS}_rows/group_norm_backward_rows/offset_in_32_bits: tl.cast(tl.program_id(0), tl.int64)",
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
        "scan/cumsum/cumsum_shared/offset_in_32_bits: block.to(tl.int64)",
        "scan/cumsum/cumsum_shared/offset_in_32_bits: (tl.num_programs(0) // group).to(tl.int64)",
        f"{_GROUPS}_rows/group_norm_backward_rows/offset_in_32_bits: tl.cast(n + step, tl.int64)",
    ),
    "a row's tile is shorter than 2**31: in 64 bits its offsets need fewer registers": (
        "softmax/tile/row_tile/offset_in_32_bits: tl.cast(lane * VEC + k, tl.int64)",
    ),
    "gradients of rows that are not there are not stored": tuple(
        name
        for word in ("rows * 2", "rows * 2 + 1")
        for name in _any_other(_COLUMNS_OF_PASSES, f"tl.load(sums_ptr + {word}, mask=row_mask, other=0.0)")
    ),
    "a lane without a word may hold what it likes, except 0 (and undefined integers are -1 in the interpreter)": (
        *(
            name
            for function, loads in (("collect", _WORDS[:1]), ("collect_two", _WORDS[1:]))
            for load in loads
            for which in ("", " (2)")
            for name in _any_other(f"launch/workspace/{function}", load + which)
        ),
        *(
            name
            for which in ("", " (2)")
            for name in _any_other(
                "norm/blocks/sums_of_words", f"tl.load(words_ptr + rank, mask=mask, other=1, volatile=True){which}"
            )
        ),
        *(
            name
            for place in ("read_ptr", "read_ptr + 1")
            for name in _any_other("scan/exchange/read", f"tl.load({place}, mask=known, other=1, volatile=True)")
        ),
        *_any_other("scan/exchange/collect_sums", "tl.load(read_ptr, mask=known, other=1, volatile=True)"),
    ),
    "multiplied with a gradient that is 0 there": (
        "norm/backward/layer_norm_backward_rows/wrong_other: tl.load(mean_ptr + rows, mask=rows < M, other=0.0)",
        "norm/backward/layer_norm_backward_rows/wrong_other: tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)",
        "norm/backward/accumulate_chunks/wrong_other: tl.load(x_ptr + offsets, mask=mask, other=0.0)",
        "norm/columns/gradient_of_rows/wrong_other: tl.load(x_ptr + offsets, mask=mask, other=0.0)",
        "norm/rms_backward/gradient_of_rows/wrong_other: tl.load(x_ptr + offsets, mask=mask, other=0.0)",
        f"{_PASSES}/terms_of/wrong_other: tl.load(x_ptr + columns, mask=row_mask & mask, other=0.0)",
        f"{_COLUMNS_OF_PASSES}/wrong_other: tl.load(x_ptr + offsets, mask=mask, other=0.0)",
        *(
            f"{_PASSES}/load_statistics/wrong_other: tl.load({of}_ptr + rows, mask=row_mask, other=0.0)"
            for of in ("mean", "rstd")
        ),
        "norm/blocks/load_block/wrong_other: tl.load(x_ptr + offsets, mask=mask, other=0.0)",
        *(
            f"norm/blocks/norm_backward_blocks/wrong_other: tl.load({of}_ptr + rows, mask=row_mask, other=0.0)"
            for of in ("mean", "rstd")
        ),
        f"{_COLUMN_SUMS}/wrong_other: tl.load(x_ptr + offsets, mask=mask, other=0.0)",
        f"{_COLUMN_SUMS}/wrong_other: tl.load(mean_ptr + rows, mask=rows < M, other=0.0)",
        f"{_COLUMN_SUMS}/wrong_other: tl.load(rstd_ptr + rows, mask=rows < M, other=0.0)",
        *(
            f"{_GROUPS}/statistics/wrong_other: tl.load({of}_ptr + places, mask=mask, other=0.0)"
            for of in ("mean", "rstd")
        ),
        *(
            f"{_GROUPS}_rows/group_norm_backward_rows/wrong_other: tl.load(x_ptr + {what}, other=0.0)"
            for what in (
                "start + edge, mask=edge_mask & (first < N)",
                "next_places, mask=edge_mask & (n + step < N)",
                "offsets, mask=vector < vectors",
            )
        ),
        *(
            f"{_GROUPS}_channels/group_norm_backward_channels/wrong_other: tl.load(x_ptr + {what}, other=0.0){which}"
            for what, which in (
                ("start + offsets, mask=mask", ""),
                ("start + offsets, mask=mask", " (2)"),
                ("after + offsets, mask=mask & (n >= shares)", ""),
            )
        ),
        f"{_GROUPS}_passes/terms/wrong_other: tl.load(x_ptr + offsets + elements, mask=mask, other=0.0)",
        *(
            f"{_GROUPS}_passes/sums_of_unaligned_channels/wrong_other: tl.load(x_ptr + {what}, other=0.0){which}"
            for what, which in (
                ("start + edge, mask=edge_mask", ""),
                ("places, mask=mask", ""),
                ("places, mask=mask", " (2)"),
            )
        ),
        *(
            f"{_GROUPS}_channels/group_norm_backward_group_sums/wrong_other: tl.load(x_ptr + {what}, other=0.0)"
            for what in ("offsets, mask=mask", "places, mask=edge_mask")
        ),
        f"{_FEW}/sums_of_channels/wrong_other: tl.load(x_ptr + offsets, mask=mask, other=0.0)",
        *(
            f"{_FEW}/sums_of_channels/wrong_other: tl.load({of}_ptr + groups, mask=of_channels, other=0.0)"
            for of in ("mean", "rstd")
        ),
        "group_norm/tile/load_parameter/wrong_other: tl.load(ptr + channels, mask=mask, other=0.0)",
    ),
    "multiplied with a gradient that is 0 there, or comes out in elements that are not stored only": (
        f"norm/tile/load_parameters/wrong_other: {_WEIGHT}",
        "norm/tile/load_parameter_at/wrong_other: tl.load(ptr + columns, mask=mask, other=0.0)",
        f"{_FEW}/gradient_of_groups/wrong_other: tl.load(x_ptr + offsets, mask=mask, other=0.0)",
        *(
            f"group_norm/vectors/of_channels/wrong_other: tl.load(ptr + channels, mask=mask, other=0.0){which}"
            for which in ("", " (2)", " (3)")
        ),
    ),
    "the last channel has all other elements of a vector": (
        "group_norm/vectors/of_channels/wrong_other: "
        "tl.load(ptr + channels + 1, mask=mask & (channels + 1 < D), other=0.0)",
    ),
    "a position of no class takes the value of no element, and one that is not there is not stored": (
        *_any_other("gather/nll/nll_gradient_fill", "tl.load(target_ptr + position, mask=mask, other=0)"),
        *_any_other("gather/nll/nll_gradient_tile", "tl.load(target_ptr + n * D + d, mask=mask, other=0)"),
        *_any_other("gather/nll/nll_gradient_tile", "tl.load(weight_ptr + target, mask=target >= 0, other=0)"),
        *_any_other("gather/targets/load_gradient", "tl.load(grad_ptr + positions * grad_stride, mask=mask, other=0)"),
        *_any_other("gather/targets/gradients", "tl.load(target_ptr + positions, mask=mask, other=0)"),
        *_any_other(_FLAT, "tl.load(target_ptr + position, mask=mask, other=0)"),
        *_any_other(_FLAT, "tl.load(weight_ptr + wanted, mask=mask & exists, other=0)"),
        *_any_other(f"{_SHORT}/load_classes", "tl.load(target_ptr + row, mask=mask, other=0)"),
        *_any_other(f"{_SHORT}/weighted", "tl.load(weight_ptr + target, mask=counts, other=0)"),
    ),
    "what is behind the end of a row is added to no element before it": _any_other(
        "scan/cumsum/cumsum_shared", "tl.load(x_ptr + tail, mask=tail_mask, other=0)"
    ),
    "what is in no whole vector of the row is in an edge": (
        "scan/interleaved/_inside/off_by_one: begins >= first",
        "scan/interleaved/_inside/off_by_one: begins + VEC <= end",
    ),
    "an assumption may be weaker": ("gather/nll/nll_gradient_tile/off_by_one: split * BLOCK_C < C",),
    "the weight behind the last block is not used": (
        f"{_GROUPS}_passes/sums_of_channels/off_by_one: block + 1 < last_block",
    ),
    "comes out in elements that are not stored only": (
        *_any_other(f"{_FEW}/gradient_of_groups", "tl.load(mean_ptr + rows, mask=rows < groups, other=0.0)"),
        *_any_other(f"{_FEW}/gradient_of_groups", "tl.load(rstd_ptr + rows, mask=rows < groups, other=0.0)"),
        *_any_other("norm/tile/load_parameters", _BIAS),
        *_any_other("scan/stacked/_vectors", "tl.load(x_ptr + (at + lanes), mask=at + WIDTH <= end, other=0)"),
        *_any_other(
            "scan/stacked/_with_cut", "tl.load(x_ptr + (at + lanes), mask=is_cut & (at + lanes < end), other=0)"
        ),
        *_any_other("scan/interleaved/_load", "tl.load(x_ptr + (at + lanes), mask=inside, other=0)"),
        *_any_other("norm/rms_forward/rms_norm_apply", "tl.load(x_ptr + tail, mask=tail_mask, other=0.0)"),
        *_any_other("group_norm/vectors/store_tile", "tl.load(x_ptr + elements_of(vector, VEC), mask=mask, other=0.0)"),
        *_any_other("group_norm/vectors/store_edges", "tl.load(x_ptr + places, mask=mask, other=0.0)"),
        *(
            name
            for function in ("store_gradient", "store_gradient_of_edges")
            for of in ("dy", "x")
            for name in _any_other(f"{_GROUPS}_passes/{function}", f"tl.load({of}_ptr + offsets, mask=mask, other=0.0)")
        ),
    ),
    "columns behind the last mix with no other, and behind each row of a loop there is another to read": (
        *_any_other(
            "softmax/tile/load_tile",
            "tl.load(pointers, mask=k < columns, other=0.0, eviction_policy=EVICT)",
        ),
        "softmax/tile/load_tile/drop_mask: tl.load(pointers, mask=k < columns, other=0.0, eviction_policy=EVICT)",
        "softmax/tile/load_tile/off_by_one: k < columns",
    ),
    "a row that is not there, or does not count, has its loss and gradient chosen as 0": (
        *_any_other("gather/targets/load_targets", "tl.load(target_ptr + positions, mask=mask, other=0)"),
        *_any_other("gather/nll/losses_at", "tl.load(x_ptr, mask=mask, other=0)"),
        *_any_other("gather/nll/losses_at", "tl.load(x_ptr + target * stride_c, mask=counts, other=0)"),
        *(
            name
            for load in ("position, mask=mask, other=0)", "position, mask=mask, other=0) (2)", _AFTER)
            for name in _any_other("gather/nll/nll_forward", f"tl.load(target_ptr + {load}")
        ),
        *_any_other(f"{_SHARED}/merge_rows", "tl.load(target_ptr + rows, mask=exists, other=0)"),
        *_any_other(f"{_SHARED}/merge_rows", "tl.load(x_ptr + rows.to(tl.int64) * C + target, mask=counts, other=0)"),
        *_any_other("gather/cross_entropy/load_rows", "tl.load(target_ptr + row, mask=row < R, other=0)"),
        *_any_other("gather/cross_entropy/losses_of_rows", "tl.load(x_ptr + row * C + target, mask=inside, other=0)"),
        *_any_other("gather/cross_entropy/row_gradient", "tl.load(grad_ptr + row * grad_stride, mask=counts, other=0)"),
        *(
            name
            for load in (
                *(f"tl.load({what}_ptr + row, mask=counts, other=0)" for what in ("row_max", "log_sum", "q_sum")),
                "tl.load(x_ptr + i * WIDTH + offsets, mask=mask, other=0)",
            )
            for name in _any_other("gather/cross_entropy/cross_entropy_rows_gradient", load)
        ),
    ),
    "there are more positions than all programs load at first": (
        *_any_other("gather/nll/nll_forward", f"tl.load({_AT_FIRST}"),
        f"gather/nll/nll_forward/drop_mask: tl.load({_AT_FIRST}",
        "gather/nll/nll_forward/off_by_one: lanes < positions",
    ),
    "what it writes besides, its own program writes too, and the same": (
        "gather/nll/nll_gradient_fill/off_by_one: offset < BLOCK",
        "gather/nll/nll_gradient_images/off_by_one: aligned + vectors < tl.cdiv(start + D, ALIGN) * ALIGN",
    ),
    "of a sample that begins in the next block nothing is stored": (
        "gather/nll/nll_gradient_fill/off_by_one: begin + n * sample < BLOCK",
    ),
    "added to a number of 64 bits, or taken from one": (
        "gather/nll/nll_gradient_images/offset_in_32_bits: after.to(tl.int64)",
        f"{_GROUPS}_channels/group_norm_backward_channels/offset_in_32_bits: "
        "tl.cast(group * D + block * BLOCK_D, tl.int64)",
    ),
    "a loop over rows has no row behind the last": tuple(
        f"gather/cross_entropy_looped/cross_entropy_looped{kernel}/off_by_one: row < R{which}"
        for kernel, which in (("", ""), ("", " (2)"), ("", " (3)"), ("_gradient", ""))
    ),
    "a target behind the last class does not count": ("gather/cross_entropy/losses_of_rows/off_by_one: target < C",),
    "a row that is not there has class 0, which there is": (
        "gather/nll_scattered/nll_gradient_scatter/off_by_one: n < N (2)",
        "gather/cross_entropy/losses_of_rows/off_by_one: row < R (4)",
    ),
    "what rows of probabilities weigh is not asked for": (
        f"{_SHARED}/cross_entropy_shared/off_by_one: n >= 0",
        "gather/cross_entropy/losses_of_rows/off_by_one: row < R (10)",
    ),
    "what a row should have where there is no class is chosen as 0": (
        *_any_other("gather/cross_entropy/distribution", "tl.load(weight_ptr + c, mask=mask, other=0)"),
        *_any_other("gather/cross_entropy/distribution", "tl.load(p_ptr, mask=mask, other=0)"),
    ),
    "programs that run at once have less than 2**31 rows, and a loop counts in its longest type": tuple(
        f"gather/{kernel}/offset_in_32_bits: {what}.to(tl.int64)"
        for kernel in ("cross_entropy/cross_entropy_total", "nll/nll_forward")
        for what in ("program", "programs")
    ),
    "no class is -1 in 32 bits too": tuple(
        f"gather/cross_entropy/{function}/offset_in_32_bits: tl.full(row.shape, -1, tl.int64)"
        for function in ("load_row_targets", "losses_of_rows")
    ),
    "before the first row of a matrix nothing is of the same one": (
        "scan/stacked/cumsum_stacked/off_by_one: position > 0",
    ),
    "none of the whole vectors has the end in it": (
        "scan/stacked/_cut/off_by_one: at < end",
        "scan/stacked/_cut/off_by_one: at + WIDTH > end",
        "scan/stacked/cumsum_stacked/off_by_one: end % WIDTH > 0",
        "scan/stacked/cumsum_stacked/off_by_one: end % WIDTH > 0 (2)",
    ),
    "edges may be combined with a row before or after warps exchange it": (
        "reduction/rows/reduce_rows_kernel/off_by_one: bits >= 32",
        "reduction/rows/reduce_rows_kernel/off_by_one: BLOCK_M > 1",
        "reduction/rows/reduce_rows_kernel/off_by_one: BLOCK_N > 32 * VECTOR",
    ),
    "neighbours may be combined before they meet others or one by one": (
        "reduction/rows/reduce_rows_kernel/off_by_one: VECTOR * bits >= 32",
    ),
    "the one statistic is at offset 0": ("softmax/group/group_words/off_by_one: STATISTICS > 1",),
    "an element that is met twice, at one place, changes no extreme": (
        "reduction/classes/locate_classes_kernel/off_by_one: lane < STEP",
    ),
    "a group of one is found where it was": ("reduction/rows/locate_rows_kernel/off_by_one: NEIGHBOURS > 1",),
    "nothing of a group is masked, unless none has the result: then no position is less than N": (
        "reduction/rows/locate_rows_kernel/off_by_one: offsets < body",
    ),
    "one share is counted once more by its own counter, and has a list of one flag": tuple(
        f"{_WAITING}/{function}/off_by_one: SHARES > 1" for function in ("arrives_last", "announce")
    ),
    "the other loop waits": tuple(
        f"{_WAITING}/wait_for/not_waited_for: while {flag} == 0:" for flag in ("flag", "acquired")
    ),
    "0 may be added twice": tuple(
        f"{_WAITING}/wait_for/counted_twice: tl.atomic_add(flag_ptr, 0, sem='acquire'){which}" for which in ("", " (2)")
    ),
    "a line later: behind the workspace only if blocks are a multiple of 32, which no test has": tuple(
        f"{_WAITING}/{function}/minus_dropped: blocks + LINE - 1" for function in ("flag_at", "words_at")
    ),
    "clears the first word of the next part, which its own block may still read only if programs run at once": (
        f"{_WAITING}/words_of_block/off_by_one: channels < C",
    ),
    "summed over both axes": ("norm/blocks/sums_of_words/wrong_axis: tl.sum((words == 0).to(tl.int32), 1)",),
    "the word behind the last is the counter, which is zero again": (
        "norm/blocks/clear_all/off_by_one: word < M * PROGRAMS",
    ),
}

EQUIVALENT = {name: reason for reason, names in _REASONS.items() for name in names}
