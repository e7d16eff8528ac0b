# SPDX-License-Identifier: Apache-2.0
"""What is measured: cases, and the file of shapes that lists them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

LEVELS = ("core", "comprehensive", "interpreter")
_DTYPES = "float16, float32, bfloat16, float64, int8, uint8, int16, int32, int64, bool"
DTYPES = tuple(_DTYPES.split(", "))
TIMED_DTYPES = ("float16", "float32", "bfloat16")
COUNTED_DTYPES = ("float32", "bfloat16")

# Who is measured side by side: PyTorch's own kernel, flag_gems' function, ours, and others that may be installed.
NATIVE, UPSTREAM, OVERRIDE = "native", "upstream", "override"
PEERS = ("compile", "liger", "quack", "quack_rmsnorm")


class CaseError(ValueError):
    """A case or a shape file that cannot be used; the message names the place and the remedy."""


@dataclass(frozen=True)
class Case:
    """One (op, shape, other arguments, dtype)."""

    op: str
    shape: tuple[int, ...]
    dtype: str
    arguments: tuple[tuple[str, int], ...] = ()

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
    op, size, *rest = key.split()
    *arguments, dtype = rest or [""]
    return make(op, size, dtype, arguments)


def make(op: str, size: str, dtype: str, arguments: Sequence[str] = ()) -> Case:
    """A case from words: ``make("softmax", "64x512x512", "bfloat16", ["dim=1"])``."""
    if not re.fullmatch(r"\d+(x\d+)*", size):
        raise CaseError(f"shape {size!r} is not of the form 64x512x512")
    if dtype not in DTYPES:
        raise CaseError(f"dtype {dtype!r} is not known; known: {_DTYPES}")
    pairs = []
    for word in arguments:
        match = re.fullmatch(r"(\w+)=(-?\d+)", word)
        if not match:
            raise CaseError(f"argument {word!r} is not of the form dim=1")
        pairs.append((match[1], int(match[2])))
    return Case(op, tuple(int(n) for n in size.split("x")), dtype, tuple(pairs))


class Shapes:
    """A shape file: per op a list of shapes for each level. See ``benchmark/core_shapes.yaml``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            table = yaml.safe_load(path.read_text())
        except OSError as error:
            raise CaseError(f"{path}: {error.strerror}; give the path of a shape file") from None
        except yaml.YAMLError as error:
            raise CaseError(f"{path} is not YAML: {error}") from None
        if not isinstance(table, dict):
            raise CaseError(f"{path}: expected a mapping from op to its shapes")
        self._table = {op: self._levels(op, entry) for op, entry in table.items() if not op.startswith("_")}

    @property
    def ops(self) -> tuple[str, ...]:
        return tuple(self._table)

    def cases(self, op: str, level: str, dtypes: Sequence[str]) -> list[Case]:
        """The cases of one op, dtype by dtype. The comprehensive level includes the core."""
        if op not in self._table:
            raise CaseError(f"{self.path}: no op {op!r}; there are {', '.join(self._table)}")
        levels = ("core", "comprehensive") if level == "comprehensive" else (level,)
        sizes = dict.fromkeys(size for each in levels for size in self._table[op][each])
        return [Case(op, shape, dtype, arguments) for dtype in dtypes for shape, arguments in sizes]

    def _levels(self, op: str, entry: Any) -> dict[str, list[tuple[tuple[int, ...], tuple[tuple[str, int], ...]]]]:
        if not isinstance(entry, dict):
            raise CaseError(f"{self.path}: {op}: expected a mapping with {', '.join(LEVELS)}")
        unknown = entry.keys() - {*LEVELS, "shape_desc"}
        if unknown:
            raise CaseError(f"{self.path}: {op}: unknown {', '.join(sorted(unknown))}; known: {', '.join(LEVELS)}")
        return {
            level: [self._size(f"{op}.{level}[{i}]", item) for i, item in enumerate(entry.get(level, []))]
            for level in LEVELS
        }

    def _size(self, where: str, item: Any) -> tuple[tuple[int, ...], tuple[tuple[str, int], ...]]:
        arguments = {} if isinstance(item, list) else item
        shape = item if isinstance(item, list) else isinstance(item, dict) and item.get("shape")
        if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
            raise CaseError(f"{self.path}: {where}: {item!r} is neither a list of sizes nor has one as shape")
        pairs = tuple((name, value) for name, value in arguments.items() if name != "shape")
        wrong = [name for name, value in pairs if type(value) is not int]
        if wrong:
            raise CaseError(f"{self.path}: {where}: {wrong[0]} must be an integer")
        return tuple(shape), pairs
