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
        include: what flag_gems registers in a function's place, and ``use_gems(include=...)`` calls it.
        benchmark: how it writes benchmarks.
        edits: what patches change beside the fixes and ``_nvidia/ops/__init__.py``, by the patch's id.
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
_RUNTIME = "src/flag_gems/runtime/__init__.py"
_NVIDIA = "src/flag_gems/runtime/backend/_nvidia"


def _example(path: str, body: str) -> Edit:
    """What 5.3 did to these files when it began to use them on NVIDIA: functions that nobody had called stay unused."""
    return Edit(path, body, f'"""\nExample for multi-backend ops.\n\n\n{body}"""\n')


# 5.0.2 imports _nvidia/ops on NVIDIA and does not use it.
_USE_VENDOR_OPS = (
    Edit(
        "src/flag_gems/runtime/__init__.py", "from . import backend, common, error\n", "from . import backend, error\n"
    ),
    Edit(_RUNTIME, "if device.vendor != common.vendors.NVIDIA:", "if extended_ops:"),
    _example(
        f"{_NVIDIA}/ops/__init__.py",
        'from .add import add\nfrom .gelu import gelu\n\n__all__ = [\n    "add",\n    "gelu",\n]\n',
    ),
    _example(
        f"{_NVIDIA}/fused/__init__.py",
        'from .fused_add_rms_norm import fused_add_rms_norm\n\n__all__ = [\n    "fused_add_rms_norm",\n]\n',
    ),
)

# These tests ask for statistics of half inputs in half, and PyTorch's are float32. Whichever they are, so that the
# patch can be merged before the fix, before the kernels, or alone; the fix brings a test of the dtype.
_ANY_DTYPE = Edit(
    _NORM_TESTS,
    "        utils.gems_assert_close(actual, expected, dtype)\n\n\n@pytest.mark.layer_norm",
    "        utils.gems_assert_close(actual, expected, actual.dtype)\n\n\n@pytest.mark.layer_norm",
)
_ANY_DTYPE_SINCE_MAIN = tuple(
    Edit(
        _NORM_TESTS,
        f"    utils.gems_assert_close(res_{statistic}, ref_{statistic}, dtype, reduce_dim=reduce_dim)\n",
        f"    utils.gems_assert_close(res_{statistic}, ref_{statistic}, res_{statistic}.dtype, "
        "reduce_dim=reduce_dim)\n",
    )
    for statistic in ("mean", "rstd")
)

# These tests ask for 1 / root mean square in one dimension, [M]; PyTorch's has the input's shape with ones for the
# normalized dimensions. Whichever it is, as above.
_ANY_SHAPE = tuple(
    Edit(
        "tests/test_fused_rms_norm.py",
        f"{before}    utils.gems_assert_close(res_inv_rms, ref_inv_rms, torch.float32)\n",
        f"{before}    utils.gems_assert_close(res_inv_rms.flatten(), ref_inv_rms, torch.float32)\n",
    )
    for before in (
        "    # Check forward outputs\n    utils.gems_assert_close(res_out, ref_out, dtype)\n",
        "weight=None, eps=eps\n    )\n\n    utils.gems_assert_close(res_out, ref_out, dtype)\n",
        "    utils.gems_assert_close(res_out, ref_out, torch.float32)\n",
    )
)

_WITH_NATIVE_LAYER_NORM = Line(
    "v5.3.4",
    "5.3.4",
    "f7c55cb2fe1fb90fc713eafa6f63d7cbb73453a9",
    header=_LICENCE,
    explicit_calls=True,
    marks={
        "prod_dim": "prod_dim_int",
        "log_softmax_backward": "log_softmax_backward_data",
        "_is_all_true": "is_all_true",
        "_fused_rms_norm": "fused_rms_norm",
        "_fused_rms_norm_backward": "fused_rms_norm_backward",
    },
    include={"layer_norm": "native_layer_norm"},
    benchmark=Benchmark(
        "benchmark/test_{}_sizes.py",
        ("from . import base, consts",),
        "base.GenericBenchmark",
        "consts.FLOAT_DTYPES",
    ),
    edits={"layernorm-tests": (_ANY_DTYPE,), "_fused_rms_norm-tests": _ANY_SHAPE},
    differences=(
        (
            "^test_layer_norm::test_native_layer_norm",
            ("overrides",),
            "asks for statistics of half inputs in half; PyTorch's CUDA kernel keeps float32, and so do we. The "
            "patches change the test",
        ),
        (
            r"^test_fused_rms_norm::test_fused_rms_norm(_no_weight\[|_aten_dispatch$|\[)",
            ("overrides",),
            "asks for 1 / root mean square in one dimension; PyTorch's has the input's shape with ones for the "
            "normalized dimensions, and so has ours. The patches change the test",
        ),
    ),
)

LINES = {
    line.name: line
    for line in (
        Line(
            "v5.0.2",
            "5.0.2",
            "30bfcc0735b8ebd48bd7339ef752ec64df69663f",
            header="",
            marks={"prod_dim": "prod_dim_int", "_is_all_true": "is_all_true", "var_correction": "var"},
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
            edits={"shared-kernel": _USE_VENDOR_OPS},
        ),
        _WITH_NATIVE_LAYER_NORM,
        _WITH_NATIVE_LAYER_NORM._replace(
            name="main",
            release="5.4.0.dev0",
            base="ed2508bcb5a03000e9774734201d840ba362cd11",
            edits={"layernorm-tests": (_ANY_DTYPE, *_ANY_DTYPE_SINCE_MAIN), "_fused_rms_norm-tests": _ANY_SHAPE},
        ),
    )
}
