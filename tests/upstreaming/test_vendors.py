# SPDX-License-Identifier: Apache-2.0
"""What other vendors have of their own beside the files that a fix changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.upstreaming import vendors
from flag_gems_overrides.upstreaming.defects import DEFECTS


def write(tree: Path, path: str, text: str) -> None:
    file = tree / "src/flag_gems" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.mark.parametrize("module", dict.fromkeys(operator.module for operator in OPERATORS.values()))
def test_what_was_read_is_of_this_module(module: str) -> None:
    titles = {row.title for row in DEFECTS.values() for name in row.functions if OPERATORS[name].module == module}
    for vendor, what in vendors.alike(module).items():
        assert set(what.split("; ")) <= titles, vendor


def test_a_name_that_a_vendor_imports_must_stay(tmp_path: Path) -> None:
    write(tmp_path, "ops/max.py", "import torch\nfrom flag_gems.utils import wrap\n\ndef max_kernel(): pass\n")
    write(tmp_path, "runtime/backend/_acme/ops/max.py", "from flag_gems.ops.max import max_kernel, torch, wrap\n")
    assert list(vendors.dangling(tmp_path)) == []
    write(
        tmp_path,
        "runtime/backend/_acme/fused/all.py",
        "def f():\n    from flag_gems.ops.max import max_1, max_kernel\n",
    )
    assert list(vendors.dangling(tmp_path)) == [
        "src/flag_gems/runtime/backend/_acme/fused/all.py: imports max_1 from flag_gems.ops.max, which does not have it"
    ]


def test_vendors_with_files_of_their_own(tmp_path: Path) -> None:
    for vendor in ("acme", "nvidia", "zeta"):
        write(tmp_path, f"runtime/backend/_{vendor}/ops/max.py", "")
    assert vendors.copies(tmp_path, "max") == ["acme", "zeta"]
    assert vendors.copies(tmp_path, "min") == []
