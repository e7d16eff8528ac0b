# SPDX-License-Identifier: Apache-2.0
"""The templates beside this file."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

_environment = Environment(
    loader=PackageLoader("flag_gems_overrides.upstreaming", "templates"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


def render(template: str, **values: Any) -> str:
    return _environment.get_template(template).render(**values)
