# SPDX-License-Identifier: Apache-2.0
"""What each patch of a line adds to FlagGems: shared helpers first, then one operator's file after the other.

The files come from this package's ops. They stand beside upstream's as ``flag_gems.ops.planned``.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from packaging.version import Version

import flag_gems_overrides.ops
from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.upstreaming.benchmarks import benchmarks
from flag_gems_overrides.upstreaming.lines import Line
from flag_gems_overrides.upstreaming.templates import render

if TYPE_CHECKING:
    from flag_gems_overrides.upstreaming.defects import Defect

OPS = Path(next(iter(flag_gems_overrides.ops.__path__)))
FOLDER = "src/flag_gems/ops/planned"

# The kernels of a family come with the first operator that needs them.
_FAMILIES = "families/"
_SPDX = "# SPDX-License-Identifier: Apache-2.0\n"


class Patch(NamedTuple):
    """One patch.

    Attributes:
        name: upstream's ops module; ``shared`` for the helpers; ``<module>-tests`` for changes of upstream's tests.
        functions: those of upstream's functions that it replaces.
        defects: what it fixes, as far as a test shows it.
        added: the files it adds, by their paths in FlagGems, not yet formatted.
    """

    name: str
    functions: tuple[str, ...]
    defects: tuple[Defect, ...]
    added: dict[str, str]


def series(line: Line) -> list[Patch]:
    """The patches of a line, in their order."""
    # They import PyTorch, without which `gems-overrides doctor` must start too.
    from flag_gems_overrides.upstreaming import regression
    from flag_gems_overrides.upstreaming.defects import DEFECTS

    functions: dict[str, tuple[str, ...]] = {}
    for override in OPERATORS.values():
        if override.since is None or Version(override.since) <= Version(line.release):
            functions[override.module] = (*functions.get(override.module, ()), override.name)
    modules = {name: module for module, names in functions.items() for name in names}
    order = list(functions)
    known = [row for row in DEFECTS.values() if modules.keys() >= set(row.functions)]

    needed = {module: _needs(f"{module}.py") for module in order}
    shared = {file for files in needed.values() for file in files if not file.startswith(_FAMILIES)}
    added = {f"{FOLDER}/__init__.py": line.header + render("package.py.j2")}
    patches = [Patch("shared", (), (), added | {_path(file): _source(file, line) for file in sorted(shared)})]
    done = shared
    for module in order:
        files = {f"{module}.py", *needed[module]} - done
        done = done | files
        # A reproduction that calls several modules' functions is of use once the last of them is there.
        rows = tuple(row for row in known if max((modules[f] for f in row.functions), key=order.index) == module)
        added = {_path(file): _source(file, line) for file in sorted(files)}
        tests = regression.tests(rows, line)
        if tests:
            added[f"tests/test_{module}_as_pytorch.py"] = tests
        added |= benchmarks(module, functions[module], line)
        patches.append(Patch(module, functions[module], rows, added))
        if f"{module}-tests" in line.edits:
            patches.append(Patch(f"{module}-tests", (), (), {}))
    return patches


def _path(file: str) -> str:
    return f"{FOLDER}/{file}"


def _source(file: str, line: Line) -> str:
    text = (OPS / file).read_text()
    text = re.sub(r"\bflag_gems_overrides\.ops\b", "flag_gems.ops.planned", text)
    return text.replace(_SPDX, line.header, 1) if line.header else text


def _needs(file: str, seen: frozenset[str] = frozenset()) -> frozenset[str]:
    """The files that an ops file imports and those that they import, with the packages that they are in.

    Files are named by their path below ``ops``.
    """
    found: set[str] = set()
    for node in ast.walk(ast.parse((OPS / file).read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = Path(file).parents[node.level - 1]
            module = folder.joinpath(*(node.module or "").split("."))
            if (OPS / module.with_suffix(".py")).exists():
                found.add(f"{module.as_posix()}.py")
            else:
                found |= {(module / f"{alias.name}.py").as_posix() for alias in node.names}
    found |= {(folder / "__init__.py").as_posix() for each in found for folder in Path(each).parents[:-1]}
    for helper in found - seen:
        seen |= {helper}
        seen |= _needs(helper, seen)
    return seen
