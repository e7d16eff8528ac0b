# SPDX-License-Identifier: Apache-2.0
"""The templates beside this file."""

from __future__ import annotations

import re
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

# What Markdown would read as markup, and a table as the end of a cell.
_MARKUP = re.compile(r"[|*<>`~]|\](?=[(\[])")


def _escaped(text: object) -> str:
    return _MARKUP.sub(r"\\\g<0>", str(text))


_environment = Environment(
    loader=PackageLoader("flag_gems_overrides.perf.report", "templates"),
    autoescape=lambda name: name is not None and name.endswith(".html.j2"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_environment.filters["cell"] = _escaped
_environment.filters["whole_cell"] = lambda text: _escaped(text).replace(" ", "\N{NO-BREAK SPACE}")
_environment.filters["anchor"] = lambda key: re.sub(r"[^\w-]+", "-", key)


def render(template: str, **values: Any) -> str:
    return _environment.get_template(template).render(**values)
