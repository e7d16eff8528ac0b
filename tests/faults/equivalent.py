# SPDX-License-Identifier: Apache-2.0
"""Faults that are none: other in text, right in effect; each with the reason."""

from __future__ import annotations

EQUIVALENT: dict[str, str] = {}
