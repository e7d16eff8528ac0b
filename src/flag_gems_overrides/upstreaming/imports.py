# SPDX-License-Identifier: Apache-2.0
"""The one file of upstream that every kernel's patch changes: ``_nvidia/ops/__init__.py``, whose functions replace the
generic ones of the same name on NVIDIA."""

from __future__ import annotations

import ast

from flag_gems_overrides.errors import UserError

PATH = "src/flag_gems/runtime/backend/_nvidia/ops/__init__.py"
_WIDTH = 88  # black's


class UpstreamError(UserError):
    """Upstream is not as a patch expects it; the message names the file and what is missing."""


def register(text: str, exports: tuple[tuple[str, tuple[str, ...]], ...]) -> str:
    """Let ``_nvidia/ops/__init__.py`` have these functions from the modules beside it, and keep what it has.

    Raises:
        UpstreamError: there is something in that file other than comments, imports and ``__all__``.
    """
    body = ast.parse(text).body
    names: dict[str, set[str]] = {}
    start = None
    for node in body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            names[node.module or ""] = {alias.name for alias in node.names}
        elif not (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"):
            raise UpstreamError(f"{PATH}: has {ast.unparse(node).splitlines()[0]!r}, which no patch expects")
        start = min(start or node.lineno, node.lineno)
    for module, functions in exports:
        names[module] = names.get(module, set()) | set(functions)
    head = "".join(text.splitlines(keepends=True)[: start - 1] if start else [text]).rstrip("\n")
    imported = "".join(_line(f".{module}", sorted(names[module])) for module in sorted(names))
    listed = "".join(f'    "{name}",\n' for name in sorted(set().union(*names.values())))
    return (f"{head}\n\n" if head else "") + f"{imported}\n__all__ = [\n{listed}]\n"


def _line(module: str, names: list[str]) -> str:
    line = f"from {module} import {', '.join(names)}\n"
    if len(line) <= _WIDTH + 1:
        return line
    return f"from {module} import (\n" + "".join(f"    {name},\n" for name in names) + ")\n"
