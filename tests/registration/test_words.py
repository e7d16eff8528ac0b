# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from flag_gems_overrides.words import many


def test_one_is_one() -> None:
    assert [many(n, "case") for n in (0, 1, 2)] == ["0 cases", "1 case", "2 cases"]
