# SPDX-License-Identifier: Apache-2.0
"""The one file of upstream that every patch changes: ``flag_gems/ops/__init__.py``."""

from __future__ import annotations

import ast

from flag_gems_overrides.errors import UserError

PATH = "src/flag_gems/ops/__init__.py"
_WIDTH = 88  # black's


class UpstreamError(UserError):
    """Upstream is not as a patch expects it; the message names the file and what is missing."""


def redirect(text: str, module: str, functions: tuple[str, ...]) -> str:
    """Let ``ops/__init__.py`` take these functions from ``planned/<module>``, and the module's others as before.

    The new imports are relative, which isort puts last. The import of a submodule sets a name of the package, and
    ``flag_gems.ops.softmax`` has to end as the function: were ``planned`` imported before ``flag_gems.ops.softmax``,
    which on newer lines still has the ``_out`` variants, it would end as that module.

    Raises:
        UpstreamError: the functions are not imported from there.
    """
    tree = ast.parse(text)
    lines = text.splitlines(keepends=True)
    found = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    old = [node for node in found if node.module == f"flag_gems.ops.{module}" and node.level == 0]
    names = {alias.name for node in old for alias in node.names}
    if len(old) != 1 or not names.issuperset(functions):
        raise UpstreamError(f"{PATH}: has no import of {', '.join(functions)} from flag_gems.ops.{module}")

    planned = {node.module or "": [alias.name for alias in node.names] for node in found if node.level == 1}
    planned[f"planned.{module}"] = sorted(functions)
    block = "".join(_line(f".{name}", planned[name]) for name in sorted(planned))

    for node in reversed(found):
        assert node.end_lineno is not None
        here = slice(node.lineno - 1, node.end_lineno)
        if node.level == 1:
            del lines[here]
        elif node is old[0]:
            kept = sorted(names - set(functions))
            lines[here] = [_line(f"flag_gems.ops.{module}", kept)] if kept else []
    last = max(n.end_lineno or 0 for n in ast.parse("".join(lines)).body if isinstance(n, ast.ImportFrom))
    rest = "".join(lines[last:]).lstrip("\n")
    return "".join(lines[:last]) + "\n" + block + "\n" + rest


def _line(module: str, names: list[str]) -> str:
    line = f"from {module} import {', '.join(names)}\n"
    if len(line) <= _WIDTH + 1:
        return line
    return f"from {module} import (\n" + "".join(f"    {name},\n" for name in names) + ")\n"
