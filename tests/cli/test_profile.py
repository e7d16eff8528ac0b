# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from flag_gems_overrides.perf import resources


def test_profile_names_what_is_wrong(invoke):
    status, output = invoke("profile", "softmax", "")
    assert status == 2
    assert output.endswith("error: shape '' is not of the form 64x512x512")


def test_profile_looks_at_its_folder_before_it_compiles(invoke, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setattr(resources, "survey", lambda *_, **__: pytest.fail("compiled first"))
    status, output = invoke("profile", "softmax", "8x8 dim=1", "--output", "file/deep")
    assert (status, output) == (2, "error: file/deep: Not a directory; name a folder that can be written")
