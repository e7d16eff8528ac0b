# SPDX-License-Identifier: Apache-2.0
"""What is measured: cases, and the file of shapes that lists them."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from flag_gems_overrides.errors import UserError
from flag_gems_overrides.operators import OPERATORS, REAL

LEVELS = ("core", "comprehensive", "interpreter")
MODES = ("kernel", "operator", "wrapper")
DTYPES = REAL
TIMED_DTYPES = ("float16", "float32", "bfloat16")
COUNTED_DTYPES = ("float32", "bfloat16")

# Who is measured side by side: PyTorch's own kernel, flag_gems' function, ours, and others that may be installed.
NATIVE, UPSTREAM, OVERRIDE = "native", "upstream", "override"
PEERS = ("compile", "liger", "quack", "quack_rmsnorm")


class CaseError(UserError):
    """A case or a shape file that cannot be used; the message names the place and the remedy."""


def check(what: str, word: str, known: Sequence[str]) -> None:
    """Raise a CaseError unless ``word`` is among those that are ``known``."""
    if word not in known:
        raise CaseError(f"{what} {word!r} is not known; known: {', '.join(known) or 'none'}")


def taken(op: str, dtypes: Sequence[str]) -> Sequence[str]:
    """The dtypes to measure ``op`` in: these, but an op of one dtype is measured in that, whatever others are."""
    check("op", op, tuple(OPERATORS))
    own = OPERATORS[op].dtypes
    return dtypes if len(own) > 1 else own


@dataclass(frozen=True)
class Case:
    """One (op, shape, other arguments, dtype).

    Raises:
        CaseError: there is no such op, or it does not take the arguments or the dtype, or needs another argument.
    """

    op: str
    shape: tuple[int, ...]
    dtype: str
    arguments: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        check("op", self.op, tuple(OPERATORS))
        check(f"{self.op}: dtype", self.dtype, OPERATORS[self.op].dtypes)
        ndim = OPERATORS[self.op].ndim
        if ndim not in (None, len(self.shape)):
            raise CaseError(f"{self.op}: shape {self.size!r} does not have {ndim} dimensions")
        names = [name for name, _ in self.arguments]
        for name in names:
            check(f"{self.op}: argument", name, OPERATORS[self.op].arguments)
            if names.count(name) > 1:
                raise CaseError(f"{self.op}: argument {name!r} is given twice; give it once")
        for name in OPERATORS[self.op].required:
            if name not in names:
                raise CaseError(f"{self.op}: argument {name!r} is missing; give it, as in '64x512 dim=1'")

    @property
    def size(self) -> str:
        """Shape and arguments, as in ``"64x512x512 dim=1"``."""
        return " ".join(["x".join(map(str, self.shape)), *(f"{name}={value}" for name, value in self.arguments)])

    @property
    def key(self) -> str:
        """The whole case in one line, unique: ``"softmax 64x512x512 dim=1 bfloat16"``."""
        return f"{self.op} {self.size} {self.dtype}"

    def get(self, name: str, default: int) -> int:
        return dict(self.arguments).get(name, default)


def parse(key: str) -> Case:
    """The case that has this :attr:`Case.key`."""
    op, _, rest = key.partition(" ")
    size, _, dtype = rest.rpartition(" ")
    return make(op, size, dtype)


def make(op: str, size: str, dtype: str) -> Case:
    """A case from words: ``make("softmax", "64x512x512 dim=1", "bfloat16")``."""
    shape, *arguments = size.split() or [""]
    if not re.fullmatch(r"\d+(x\d+)*", shape):
        raise CaseError(f"shape {shape!r} is not of the form 64x512x512")
    pairs = []
    for word in arguments:
        match = re.fullmatch(r"(\w+)=(-?\d+)", word)
        if not match:
            raise CaseError(f"argument {word!r} is not of the form dim=1")
        pairs.append((match[1], int(match[2])))
    return Case(op, tuple(int(n) for n in shape.split("x")), dtype, tuple(pairs))


class _Loader(yaml.SafeLoader):
    """Refuses a key that a mapping has twice: YAML keeps the last and drops the first without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: list[Any] = []
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value!r} is a duplicate key", key.start_mark)
            seen.append(key.value)
        return super().construct_mapping(node, deep)


class Shapes:
    """A shape file: per op a list of shapes for each level. See ``benchmark/core_shapes.yaml``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            table = yaml.load(path.read_text(), _Loader)
        except OSError as error:
            raise CaseError(f"{path}: {error.strerror}; give the path of a shape file") from None
        except yaml.YAMLError as error:
            raise CaseError(f"{path} is not YAML: {error}") from None
        if not isinstance(table, dict):
            raise CaseError(f"{path}: expected a mapping from op to its shapes")
        # Lists that several ops share begin with an underscore.
        entries = {op: entry for op, entry in table.items() if op in OPERATORS or not str(op).startswith("_")}
        self._table = {op: self._levels(op, entry) for op, entry in entries.items()}

    @property
    def ops(self) -> tuple[str, ...]:
        return tuple(self._table)

    def cases(self, op: str, level: str, dtypes: Sequence[str]) -> list[Case]:
        """The cases of one op, dtype by dtype. The comprehensive level includes the core."""
        if op not in self._table:
            raise CaseError(f"{self.path}: no op {op!r}; there are {', '.join(self._table)}")
        check("level", level, LEVELS)
        levels = ("core", "comprehensive") if level == "comprehensive" else (level,)
        cases = dict.fromkeys(case for each in levels for case in self._table[op][each])
        return [replace(case, dtype=dtype) for dtype in taken(op, dtypes) for case in cases]

    def _levels(self, op: str, entry: Any) -> dict[str, list[Case]]:
        """Cases of one dtype that the op takes."""
        check(f"{self.path}: op", op, tuple(OPERATORS))
        if not isinstance(entry, dict):
            raise CaseError(f"{self.path}: {op}: expected a mapping with {', '.join(LEVELS)}")
        unknown = entry.keys() - {*LEVELS, "shape_desc"}
        if unknown:
            raise CaseError(f"{self.path}: {op}: unknown {', '.join(sorted(unknown))}; known: {', '.join(LEVELS)}")
        return {
            level: [self._case(op, f"{op}.{level}[{i}]", item) for i, item in enumerate(entry.get(level, []))]
            for level in LEVELS
        }

    def _case(self, op: str, where: str, item: Any) -> Case:
        arguments = {} if isinstance(item, list) else item
        shape = item if isinstance(item, list) else isinstance(item, dict) and item.get("shape")
        if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
            raise CaseError(f"{self.path}: {where}: {item!r} is neither a list of sizes nor has one as shape")
        pairs = tuple((name, value) for name, value in arguments.items() if name != "shape")
        wrong = [name for name, value in pairs if type(value) is not int]
        if wrong:
            raise CaseError(f"{self.path}: {where}: {wrong[0]} must be an integer")
        try:
            return Case(op, tuple(shape), OPERATORS[op].dtypes[0], pairs)
        except CaseError as error:
            raise CaseError(f"{self.path}: {where}: {error}") from None
