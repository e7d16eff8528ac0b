# SPDX-License-Identifier: Apache-2.0
"""Ladders: one operator written again and again, from the obvious way to the fastest one.

A ladder is a folder of ``benchmark/ladders``. Its ``__init__.py`` says how the operator is called (``inputs``), what
the right answer is (``reference``, in float64), which shapes are measured, and in which order its rungs come. A rung
is a file of that folder: ``NAME.py`` with a function ``run``, or ``NAME.cu`` with a C function ``run``. The file's
docstring (of a ``.cu`` file: the comment at its top) says what the rung changes and why that should help.
"""

from __future__ import annotations

import functools
import importlib
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from flag_gems_overrides.errors import UserError

FOLDER = Path("benchmark/ladders")
NATIVE, COMPILED = "native", "compiled"
# Of the largest value of the reference. A float32 sum of 2**21 terms is off by 1e-5; a wrong kernel by far more.
TOLERANCE = 1e-4

Shape = tuple[int, ...]


class LadderError(UserError):
    """A ladder or rung that cannot be used; the message names it and the remedy."""


@dataclass(frozen=True)
class Rung:
    """What a ladder says of one of its rungs."""

    passes: float | None = None
    """Bytes moved per compulsory byte, as the docstring promises. The tests count them, but for CUDA C++, where they
    follow from its loops. None: up to a compiler, or different for the variants."""
    after: str | None = None
    """The rung that this one must beat."""
    target: Shape | None = None
    """Where it must: the shape that this step was made for. None: the ladder's own target."""
    max_n: int | None = None
    """The widest row that it supports, or that it handles in a time worth waiting for."""
    multiple: int = 1
    """What N must be a multiple of."""

    def supports(self, shape: Shape) -> bool:
        return shape[-1] % self.multiple == 0 and (self.max_n is None or shape[-1] <= self.max_n)


class Ladder:
    """One folder of rungs.

    Args:
        module: its ``__init__.py``; ``benchmark/ladders/__init__.py`` says what it has.
    """

    def __init__(self, name: str, module: ModuleType) -> None:
        self.name = name
        self.folder = Path(module.__file__ or "").parent
        self.title, self.text = split_docstring(module.__doc__ or "")
        self.rungs: dict[str, Rung] = module.RUNGS
        self.traps: dict[str, Rung] = getattr(module, "TRAPS", {})
        self.target: Shape = module.TARGET
        self.shapes: dict[str, list[Shape]] = module.SHAPES
        self.small_shapes: list[Shape] = module.SMALL_SHAPES
        self.variants: dict[str, tuple[int, ...]] = getattr(module, "VARIANTS", {})
        self.hot: list[Shape] = getattr(module, "HOT", [])
        self.operations: float = module.OPERATIONS
        self._inputs: Callable[..., tuple[Any, ...]] = module.inputs
        self._reference: Callable[..., Any] = module.reference

    def inputs(self, shape: Shape, device: str | torch.device, variant: int = 0) -> tuple[Any, ...]:
        """Arguments of a rung's ``run``; the same values on every call."""
        torch.manual_seed(0)
        return self._inputs(shape, device, variant) if self.variants else self._inputs(shape, device)

    def reference(self, *inputs: Any) -> tuple[torch.Tensor, ...]:
        """The answer in float64."""
        wide = (x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs)
        return _tensors(self._reference(*wide))

    def error(self, result: Any, reference: tuple[torch.Tensor, ...]) -> float:
        """The largest error, relative to the reference's largest value; infinite where shapes or NaNs differ."""
        results = _tensors(result)
        if [x.shape for x in results] != [x.shape for x in reference]:
            return math.inf
        return max(_error(x.double(), y) for x, y in zip(results, reference, strict=True))

    def compulsory(self, inputs: Iterable[Any], reference: Iterable[torch.Tensor]) -> tuple[int, int]:
        """Bytes that every implementation reads and writes: each input once, each output once, in float32."""
        read = sum(x.numel() * x.element_size() for x in inputs if isinstance(x, torch.Tensor))
        return read, sum(4 * x.numel() for x in reference)

    def cases(self) -> list[tuple[Shape, int]]:
        """Every shape that is measured, with every variant that is measured there."""
        shapes = dict.fromkeys(shape for group in self.shapes.values() for shape in group)
        targets = dict.fromkeys([self.target, *(r.target for r in self.rungs.values() if r.target)])
        variants = [v for values in self.variants.values() for v in values] or [0]
        extra = [(shape, v) for shape in targets for v in variants]
        return list(dict.fromkeys([*((shape, variants[0]) for shape in shapes), *extra]))

    def key(self, shape: Shape, variant: int = 0) -> str:
        """The case as records name it."""
        words = [f"{name}={variant}" for name in self.variants]
        return " ".join([self.name, "x".join(map(str, shape)), *words, "float32"])

    def source(self, rung: str) -> Path:
        for suffix in (".py", ".cu"):
            path = self.folder / f"{rung}{suffix}"
            if path.exists():
                return path
        raise LadderError(f"{self.folder}: there is no {rung}.py and no {rung}.cu; add one, or take it out of RUNGS")

    def describe(self, rung: str) -> tuple[str, str]:
        """The first line of a rung's docstring, and the rest."""
        path = self.source(rung)
        text = path.read_text()
        if path.suffix == ".cu":
            lines = [line for line in text.split("\n\n")[0].splitlines() if not line.startswith("// SPDX")]
            return split_docstring("\n".join(line.removeprefix("//").removeprefix(" ") for line in lines))
        return split_docstring(self.module(rung).__doc__ or "")

    def module(self, rung: str) -> ModuleType:
        return importlib.import_module(f"ladders.{self.name}.{rung}")

    def check(self, rungs: Iterable[str]) -> list[str]:
        """The rungs of these names; all of them if none is given."""
        chosen = list(rungs)
        for rung in chosen:
            if rung not in self.rungs:
                raise LadderError(f"{self.name} has no rung {rung!r}; it has {', '.join(self.rungs)}")
        return [rung for rung in self.rungs if rung in chosen] if chosen else list(self.rungs)


def names(folder: Path = FOLDER) -> tuple[str, ...]:
    """The ladders in a folder that is called ``ladders``, in their order."""
    if folder.resolve().name != "ladders" or not (folder / "__init__.py").exists():
        raise LadderError(f"{folder}: holds no ladders; give the folder benchmark/ladders of a checkout")
    parent = str(folder.resolve().parent)
    if parent not in sys.path:
        sys.path.insert(0, parent)
    found: tuple[str, ...] = importlib.import_module("ladders").LADDERS
    return found


def load(name: str, folder: Path = FOLDER) -> Ladder:
    """The ladder of this name. Imports Triton."""
    known = names(folder)
    if name not in known:
        raise LadderError(f"no ladder {name!r} in {folder}; there are {', '.join(known)}")
    return _loaded(name)


@functools.cache
def _loaded(name: str) -> Ladder:
    return Ladder(name, importlib.import_module(f"ladders.{name}"))


def split_docstring(text: str) -> tuple[str, str]:
    title, _, rest = text.strip().partition("\n")
    return title.strip().rstrip("."), rest.strip()


def _tensors(result: Any) -> tuple[torch.Tensor, ...]:
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)


def _error(x: torch.Tensor, y: torch.Tensor) -> float:
    if not torch.equal(x.isnan(), y.isnan()):
        return math.inf
    known = ~y.isnan()
    if not known.any():
        return 0.0
    scale = float(y[known].abs().max()) or 1.0
    return float((x - y)[known].abs().max()) / scale
