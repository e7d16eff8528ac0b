# SPDX-License-Identifier: Apache-2.0
"""The versions of FlagGems that patches are made for, and what of them a patch changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Edit(NamedTuple):
    """Text that a file of upstream has exactly once, and what becomes of it."""

    path: str
    old: str
    new: str


class Benchmark(NamedTuple):
    """How a line writes benchmarks.

    Attributes:
        path: of an operator's new file, with a place for its name.
        imports: lines of it.
        base: the benchmark class that has an ``input_fn`` parameter.
        dtypes: the name of the floating types.
    """

    path: str
    imports: tuple[str, ...]
    base: str
    dtypes: str


class Line(NamedTuple):
    """One version of FlagGems.

    Attributes:
        release: the flag_gems release whose functions it has.
        base: the commit that the patches are made on.
        header: what new files start with.
        marks: pytest's marks of functions where they differ from the function's name.
        include: what ``use_gems(include=...)`` calls a function, likewise.
        benchmark: how it writes benchmarks.
        edits: changes beside ``ops/__init__.py``, by upstream's ops module, or by ``<module>-tests`` in a patch of
            their own.
        explicit_calls: whether new tests have to call ``flag_gems.<function>`` instead of PyTorch's dispatcher.
        differences: upstream's tests (a pattern) that fail in these variants of a rehearsal, and why they do.
    """

    name: str
    release: str
    base: str
    header: str
    marks: Mapping[str, str]
    include: Mapping[str, str]
    benchmark: Benchmark
    edits: Mapping[str, tuple[Edit, ...]]
    explicit_calls: bool = False
    differences: tuple[tuple[str, tuple[str, ...], str], ...] = ()


_LICENCE = """\
# Copyright 2026 FlagOS Contributors
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""
_NORM_TESTS = "tests/test_layer_norm.py"

LINES = {
    line.name: line
    for line in (
        Line(
            "v5.0.2",
            "5.0.2",
            "30bfcc0735b8ebd48bd7339ef752ec64df69663f",
            header="",
            marks={"prod_dim": "prod_dim_int"},
            include={},
            benchmark=Benchmark(
                "benchmark/test_{}_sizes_perf.py",
                (
                    "from benchmark.attri_util import FLOAT_DTYPES",
                    "from benchmark.performance_utils import GenericBenchmark",
                ),
                "GenericBenchmark",
                "FLOAT_DTYPES",
            ),
            edits={},
        ),
        Line(
            "main",
            "5.3.4",
            "ed2508bcb5a03000e9774734201d840ba362cd11",
            header=_LICENCE,
            explicit_calls=True,
            marks={"prod_dim": "prod_dim_int", "log_softmax_backward": "log_softmax_backward_data"},
            include={"layer_norm": "native_layer_norm"},
            benchmark=Benchmark(
                "benchmark/test_{}_sizes.py",
                ("from . import base, consts",),
                "base.GenericBenchmark",
                "consts.FLOAT_DTYPES",
            ),
            edits={
                "layernorm": (
                    Edit(
                        "src/flag_gems/ops/native_layer_norm.py",
                        "from flag_gems.ops.layernorm import layer_norm",
                        "from flag_gems.ops.planned.layernorm import layer_norm",
                    ),
                    # Statistics of half inputs are float32, as PyTorch's are; these tests ask for half.
                    Edit(
                        _NORM_TESTS,
                        "    for actual, expected in zip(result, ref_result):",
                        "    dtypes = (dtype, torch.float32, torch.float32)\n"
                        "    for actual, expected, kind in zip(result, ref_result, dtypes):",
                    ),
                    Edit(
                        _NORM_TESTS,
                        "gems_assert_close(actual, expected, dtype)",
                        "gems_assert_close(actual, expected, kind)",
                    ),
                ),
                # A patch of its own: 5.3.4, where the rest of the series applies, does not have this test.
                "layernorm-tests": tuple(
                    Edit(_NORM_TESTS, f"ref_{statistic}, dtype,", f"ref_{statistic}, torch.float32,")
                    for statistic in ("mean", "rstd")
                ),
            },
            differences=(
                (
                    "^test_layer_norm::test_native_layer_norm",
                    ("overrides",),
                    "asks for statistics of half inputs in half; PyTorch's CUDA kernel keeps float32, and so do "
                    "we. The patches change the test",
                ),
            ),
        ),
    )
}
