# SPDX-License-Identifier: Apache-2.0
"""The patches of a line: portable fixes of upstream's own files first, then this package's kernels for NVIDIA alone.

A fix changes ``flag_gems/ops/<module>.py``, which every vendor runs; it is a file of ``fixes/``. The kernels come from
this package's ops and stand in ``runtime/backend/_nvidia/ops``, which flag_gems imports on NVIDIA alone. No file
belongs to a fix and to a kernel, so that either can be merged without the other.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from packaging.version import Version

import flag_gems_overrides.ops
from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.upstreaming.benchmarks import benchmarks, size_tests
from flag_gems_overrides.upstreaming.lines import Line
from flag_gems_overrides.upstreaming.templates import render

if TYPE_CHECKING:
    from flag_gems_overrides.upstreaming.defects import Defect

Kind = Literal["tests", "fix", "kernel"]

OPS = Path(next(iter(flag_gems_overrides.ops.__path__)))
FIXES = Path(__file__).parent / "fixes"
FOLDER = "src/flag_gems/runtime/backend/_nvidia/ops"

# What they are imported as: flag_gems puts its folder of vendors on sys.path.
PACKAGE = "_nvidia.ops"

# Why a module has no fix. Each would change all of its kernels, by far more than 150 lines.
KERNEL_ALONE = {
    "batch_norm": "both kernels compute in float32 and read parameters as contiguous; the gradient is that of training",
    "groupnorm": "a group, or a channel of all samples, is one tile in each of its kernels",
    "rms_norm": "all of its kernels read a weight, and compute in float32",
    "skip_layernorm": "its kernel reads weight and bias, holds a row in one tile and has no gradient",
    "fused_add_rms_norm": "its kernel reads a weight, holds a row in one tile and has no gradient",
    "cross_entropy_loss": "all of its kernels sum exponentials without the maximum, and read the logits of any target",
}

# The kernels of a family come with the first operator that needs them.
_OF_A_FAMILY = "families/.+/"
_SPDX = "# SPDX-License-Identifier: Apache-2.0\n"


class Patch(NamedTuple):
    """One patch, and one pull request.

    Attributes:
        name: upstream's ops module, or ``shared`` for the helpers of all kernels.
        kind: ``"fix"`` changes upstream's own file, ``"kernel"`` adds files for NVIDIA, ``"tests"`` changes tests.
        functions: those of upstream's functions that it is about.
        defects: what it fixes, as far as a test shows it.
        added: the files it adds, by their paths in FlagGems, not yet formatted.
        changes: the file of ``fixes/`` with what it changes; None if it adds files only.
        exports: what ``_nvidia/ops/__init__.py`` gets from each module of that folder.
        stands_on: the patches, by :attr:`id`, that have to be there before.
    """

    name: str
    kind: Kind
    functions: tuple[str, ...]
    defects: tuple[Defect, ...] = ()
    added: Mapping[str, str] = MappingProxyType({})
    changes: Path | None = None
    exports: tuple[tuple[str, tuple[str, ...]], ...] = ()
    stands_on: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.name}-{self.kind}"


def series(line: Line) -> list[Patch]:
    """The patches of a line, in their order."""
    functions: dict[str, tuple[str, ...]] = {}
    for override in OPERATORS.values():
        if override.since is None or Version(override.since) <= Version(line.release):
            functions[override.module] = (*functions.get(override.module, ()), override.name)
    tests = [Patch(module, "tests", names) for module, names in functions.items() if f"{module}-tests" in line.edits]
    return [*tests, *_fixes(line, functions), *_kernels(line, functions)]


def without_fix(line: Line) -> dict[str, str]:
    """The modules of the line's kernels that no portable fix is written for, and why."""
    patches = series(line)
    fixed = {patch.name for patch in patches if patch.kind == "fix"}
    kernels = [patch.name for patch in patches if patch.kind == "kernel" and patch.functions]
    return {name: KERNEL_ALONE.get(name, "not written yet") for name in kernels if name not in fixed}


def fix_file(line: Line, module: str) -> Path | None:
    """The fix of a module: the line's own or, where one fits several lines, the one for all."""
    candidates = (FIXES / line.name / f"{module}.patch", FIXES / f"{module}.patch")
    return next((path for path in candidates if path.exists()), None)


def _fixes(line: Line, functions: dict[str, tuple[str, ...]]) -> list[Patch]:
    # They import PyTorch, without which `gems-overrides doctor` must start too.
    from flag_gems_overrides.upstreaming import regression
    from flag_gems_overrides.upstreaming.defects import DEFECTS

    order = [module for module in functions if fix_file(line, module)]
    modules = {name: module for module in order for name in functions[module]}
    patches = []
    for module in order:
        rows = []
        others: dict[str, None] = {}
        for row in DEFECTS.values():
            if modules.keys() >= set(row.functions):
                concerned = {modules[name] for name in row.functions}
                # A reproduction that calls several modules' functions is of use once the last of them is there.
                if max(concerned, key=order.index) == module:
                    rows.append(row)
                    others |= dict.fromkeys(sorted(f"{other}-fix" for other in concerned - {module}))
        text = regression.tests(rows, line)
        patches.append(
            Patch(
                module,
                "fix",
                functions[module],
                tuple(row for row in DEFECTS.values() if set(row.functions) & set(functions[module])),
                {f"tests/test_{module}_as_pytorch.py": text} if text else {},
                fix_file(line, module),
                stands_on=(*_tests_of(line, module), *others),
            )
        )
    return patches


def _kernels(line: Line, functions: dict[str, tuple[str, ...]]) -> list[Patch]:
    from flag_gems_overrides.upstreaming.defects import DEFECTS

    needed = {module: _needs(f"{module}.py") for module in functions}
    shared = {file for files in needed.values() for file in files if not re.match(_OF_A_FAMILY, file)}
    patches = [Patch("shared", "kernel", (), added=_files(shared, line))]
    owners = dict.fromkeys(shared, patches[0].id)
    for module, names in functions.items():
        files = {f"{module}.py", *needed[module]} - owners.keys()
        stands_on = {owners[file]: None for file in sorted(needed[module]) if file in owners}
        owners |= dict.fromkeys(files, f"{module}-kernel")
        added = _files(files, line)
        exports = [(module, names)]
        for name in names:
            # Newer lines register some functions by a wrapper with a name of its own.
            if name in line.include:
                alias = line.include[name]
                added[f"{FOLDER}/{alias}.py"] = line.header + render(
                    "alias.py.j2", name=name, module=module, alias=alias
                )
                exports.append((alias, (alias,)))
        patches.append(
            Patch(
                module,
                "kernel",
                names,
                tuple(row for row in DEFECTS.values() if set(row.functions) & set(names)),
                added | size_tests(module, names, line) | benchmarks(module, names, line),
                exports=tuple(exports),
                stands_on=(*_tests_of(line, module), *stands_on),
            )
        )
    return patches


def _tests_of(line: Line, module: str) -> tuple[str, ...]:
    return (f"{module}-tests",) if f"{module}-tests" in line.edits else ()


def _files(files: Iterable[str], line: Line) -> dict[str, str]:
    return {f"{FOLDER}/{file}": _source(file, line) for file in sorted(files)}


def _source(file: str, line: Line) -> str:
    text = (OPS / file).read_text()
    text = re.sub(r"\bflag_gems_overrides\.ops\b", PACKAGE, text)
    return text.replace(_SPDX, line.header, 1) if line.header else text


def _needs(file: str, seen: frozenset[str] = frozenset()) -> frozenset[str]:
    """The files that an ops file imports and those that they import, with the packages that they are in and the
    tables of plans.

    Files are named by their path below ``ops``.
    """
    found: set[str] = set()
    for level, name, aliases in _relative_imports((OPS / file).read_text()):
        module = Path(file).parents[level - 1].joinpath(*name.split("."))
        if (OPS / module.with_suffix(".py")).exists():
            found.add(f"{module.as_posix()}.py")
        else:
            found |= {(module / f"{alias}.py").as_posix() for alias in aliases}
    found |= {(folder / "__init__.py").as_posix() for each in found for folder in Path(each).parents[:-1]}
    for helper in found - seen:
        seen |= {helper}
        if helper == "plans/table.py":
            seen |= {path.relative_to(OPS).as_posix() for path in (OPS / "plans").glob("*.json")}
        seen |= _needs(helper, seen) if helper.endswith(".py") else seen
    return seen


@functools.cache
def _relative_imports(text: str) -> list[tuple[int, str, list[str]]]:
    """The level, the module and the names of each relative import; a file is asked for once for each operator."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom) and node.level]
    return [(node.level, node.module or "", [alias.name for alias in node.names]) for node in nodes]
