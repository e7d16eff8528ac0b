# SPDX-License-Identifier: Apache-2.0
"""English for numbers of things."""

from __future__ import annotations


def many(count: int, noun: str) -> str:
    """``1 case``, ``2 cases``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
