# SPDX-License-Identifier: Apache-2.0
"""What one row says, and the few checks that rows share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from packaging.version import Version

from flag_gems_overrides.operators import OPERATORS

Backend = Literal["interpreter", "cuda"]

FIXED = "fixed"


class Seen(NamedTuple):
    """How a defect shows on bare upstream: the start of ``Class: text``, FIXED, or None where it cannot."""

    interpreter: str | None
    cuda: str | None


@dataclass(frozen=True)
class Defect:
    """One thing that upstream answers differently from PyTorch.

    Attributes:
        id: as in the project's issues and patches, e.g. ``"L1"``.
        title: what upstream does, in one line.
        pytorch: what PyTorch answers.
        references: upstream's issues and pull requests, ``"#5392"``.
        upstream: from which flag_gems release on the reproduction shows what.
        reproduce: runs the operators through PyTorch's dispatcher on a device; raises exactly when the answer
            is not PyTorch's.
        hidden: why it cannot show on a backend for which ``upstream`` says ``None``.
        native_cpu: how PyTorch's own CPU kernel differs from its CUDA kernel here, if it does. The overrides
            follow CUDA.
        needs_gpu: whether the reproduction is too large for the interpreter, with any implementation.
    """

    id: str
    title: str
    pytorch: str
    references: tuple[str, ...]
    upstream: Mapping[str, Seen]
    reproduce: Callable[[torch.device], None]
    hidden: str = ""
    native_cpu: str = ""
    needs_gpu: bool = False

    @property
    def functions(self) -> tuple[str, ...]:
        """Upstream's functions that have it, by their names in the table of operators."""
        return tuple(operator.name for operator in OPERATORS.values() if self.id in operator.defects)

    def recorded(self, release: str, backend: Backend) -> str | None:
        """What bare upstream is known to do: the record of the newest release that is not later; None if none had the
        function yet."""
        known = [r for r in self.upstream if Version(r) <= Version(release)]
        if not known:
            return None
        return getattr(self.upstream[max(known, key=Version)], backend)

    def surprise(self, outcome: str, release: str, backend: Backend) -> str | None:
        """What is new about ``outcome`` on bare upstream; None if it is what the record says."""
        recorded = self.recorded(release, backend)
        if recorded is not None and outcome.startswith(recorded):
            return None
        if outcome == FIXED:
            return (
                f"{self.id}: flag_gems {release} answers right. Does it on the other backend? Record it, "
                f"and drop the override of {' and '.join(self.functions)} once no other defect needs it."
            )
        return f"{self.id}: flag_gems {release} shows {outcome!r} ({backend}), not {recorded!r} as recorded."


def defect(
    id: str,
    *,
    title: str,
    pytorch: str,
    upstream: Mapping[str, Seen],
    references: tuple[str, ...] = (),
    **notes: Any,
) -> Callable[[Callable[[torch.device], None]], Defect]:
    """Decorator that makes a row of a reproduction."""

    def row(reproduce: Callable[[torch.device], None]) -> Defect:
        return Defect(id, title, pytorch, references, upstream, reproduce, **notes)

    return row


def since_4_2(interpreter: str | None, cuda: str | None) -> Mapping[str, Seen]:
    """Both backends' outcome, the same in every release since 4.2.0."""
    return {"4.2.0": Seen(interpreter, cuda)}


def everywhere(outcome: str) -> Mapping[str, Seen]:
    """The same outcome on both backends in every release since 4.2.0."""
    return since_4_2(outcome, outcome)


def sample(*shape: int, device: torch.device, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """The same normally distributed numbers on every device."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device, dtype)


def check_close(actual: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-5) -> None:
    """``actual`` has the shape of ``expected`` and its numbers, to ``tolerance`` relative to 1 or more."""
    assert actual.shape == expected.shape, f"shape {tuple(actual.shape)}, not {tuple(expected.shape)}"
    error = (actual.double() - expected.double()).abs() / expected.double().abs().clamp(min=1)
    # Not by the largest error: a NaN must fail, and no operator under test shall judge itself.
    wrong = int((~(error <= tolerance)).sum())
    assert wrong == 0, f"{wrong} of {error.numel()} elements wrong"


def check_value(actual: torch.Tensor, expected: float, dtype: torch.dtype) -> None:
    """``actual`` is one element of ``dtype`` that equals ``expected``."""
    assert actual.dtype == dtype, f"dtype {actual.dtype}, not {dtype}"
    assert actual.item() == expected, f"{actual.item()}, not {expected}"


def check_raises(error: type[Exception], text: str, call: Callable[[], object]) -> None:
    """``call`` raises ``error`` with ``text`` in its message; another exception is let out."""
    try:
        answer = call()
    except error as raised:
        message = str(raised)
    else:
        raise AssertionError(f"answered {answer} instead of raising {error.__name__}")
    assert text in message, f"{error.__name__} without {text!r}: {message}"
