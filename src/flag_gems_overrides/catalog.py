# SPDX-License-Identifier: Apache-2.0
"""The table: which override stands for which upstream function.

Names follow one rule. The upstream function ``flag_gems.ops.<module>.<name>`` is replaced by
``flag_gems_overrides.ops.<module>.<name>`` for the inputs that ``flag_gems_overrides.takes.<name>`` says yes
to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module


@dataclass(frozen=True)
class Override:
    """One row of the table, and of what :func:`flag_gems_overrides.catalog` returns."""

    name: str
    """``__name__`` of the upstream function; what ``include`` and ``exclude`` mean here, and in flag_gems but for
    ``layer_norm``, which it registers as ``native_layer_norm`` from 5.3.4 on."""
    module: str
    """Upstream's file, ``flag_gems.ops.<module>``."""
    overload: str
    """The aten overload that upstream registers the function for, as in ``"max.dim"``."""
    fixes: tuple[str, ...]
    """What upstream answers wrongly and the override does not."""
    since: str | None = None
    """The first flag_gems release that has the function, if not all that are supported do."""
    installed: bool = False
    """Whether it is in force now."""
    left_out: str | None = None
    """Why the loaded flag_gems cannot have it; None if it can, or if flag_gems is not loaded yet."""

    @property
    def implementation(self) -> str:
        """Where the function that replaces upstream's lives, as ``"package.module:function"``."""
        return f"flag_gems_overrides.ops.{self.module}:{self.name}"

    def load(self) -> tuple[Callable, Callable[..., bool]]:
        """The implementation, and the predicate over its inputs. Imports torch, triton and flag_gems."""
        module, name = self.implementation.split(":")
        return getattr(import_module(module), name), getattr(import_module("flag_gems_overrides.takes"), name)


OVERRIDES = {
    override.name: override
    for override in (
        Override(
            "layer_norm",
            "layernorm",
            "native_layer_norm",
            (
                "statistics in half precision",
                "statistics of the wrong shape",
                "ZeroDivisionError on empty rows",
                "float64 computed in float32",
            ),
        ),
        Override(
            "layer_norm_backward",
            "layernorm",
            "native_layer_norm_backward",
            (
                "wrong gradients and stray writes unless 2-D and normalized over the last dimension",
                "ZeroDivisionError without rows",
                "32-bit offsets beyond 2**31 elements",
                "float64 computed in float32",
            ),
        ),
        Override(
            "softmax",
            "softmax",
            "_softmax",
            (
                "0-d input refused",
                "half_to_float ignored on empty input",
                "long float64 rows do not compile",
                "NaN lost in long rows",
                "32-bit offsets",
            ),
        ),
        Override(
            "softmax_backward",
            "softmax",
            "_softmax_backward_data",
            ("wrong with a non-contiguous output", "0-d and empty input refused", "32-bit offsets"),
        ),
        Override(
            "log_softmax",
            "log_softmax",
            "_log_softmax",
            (
                "NaN lost in the first 256 columns",
                "more than 65535 columns behind dim refused",
                "0-d and empty input refused",
                "float64 computed in float32",
            ),
        ),
        Override(
            "log_softmax_backward",
            "log_softmax",
            "_log_softmax_backward_data",
            (
                "wrong with a non-contiguous output",
                "more than 65535 columns behind dim refused",
                "0-d and empty input refused",
                "masked lanes undefined",
            ),
        ),
        Override(
            "prod",
            "prod",
            "prod",
            (
                "integers and bool not promoted to int64",
                "int64 and float64 multiplied in float32",
                "half partial products overflow",
                "strided input read as contiguous",
                "ZeroDivisionError on empty input",
            ),
        ),
        Override(
            "prod_dim",
            "prod",
            "prod.dim_int",
            (
                "integers and bool not promoted to int64",
                "int64 and float64 multiplied in float32",
                "empty and 0-d input refused",
            ),
        ),
        Override("max", "max", "max", ("NaN dropped", "ZeroDivisionError on empty input")),
        Override(
            "max_dim",
            "max",
            "max.dim",
            ("NaN dropped", "0-d input refused", "ZeroDivisionError on empty input"),
        ),
        Override(
            "amax",
            "amax",
            "amax",
            ("NaN dropped", "strided input read as contiguous with dim=()", "dim out of range not refused"),
        ),
        Override(
            "min",
            "min",
            "min",
            ("NaN dropped", "strided input read as contiguous", "ZeroDivisionError on empty input"),
        ),
        Override("min_dim", "min", "min.dim", ("NaN dropped", "0-d input refused", "ZeroDivisionError on empty input")),
        Override(
            "amin",
            "amin",
            "amin",
            (
                "NaN dropped",
                "integers refused",
                "strided input read as contiguous with dim=()",
                "dim out of range not refused",
            ),
            since="5.3.1",
        ),
        Override(
            "argmax",
            "argmax",
            "argmax",
            ("NaN passed over", "some sizes do not compile", "0-d input refused", "empty rows answered with 0"),
        ),
        Override(
            "argmin",
            "argmin",
            "argmin",
            ("NaN passed over, positions beyond the row", "ZeroDivisionError on empty input", "bool not refused"),
        ),
    )
}


def select(include: Iterable[str] | None = None, exclude: Iterable[str] | None = None) -> tuple[str, ...]:
    """The names that ``include`` (default: all) lists and ``exclude`` (default: none) does not, in catalog
    order.

    Raises:
        TypeError: ``include`` or ``exclude`` is a string instead of a list of names.
        ValueError: a name is not in the catalog; the message lists those that are.
    """
    chosen = set(OVERRIDES) if include is None else _known("include", include)
    chosen -= set() if exclude is None else _known("exclude", exclude)
    return tuple(name for name in OVERRIDES if name in chosen)


def _known(argument: str, names: Iterable[str]) -> set[str]:
    if isinstance(names, str):
        raise TypeError(f"{argument} must be a list of names, like [{names!r}], not a string")
    names = set(names)
    unknown = sorted(names - set(OVERRIDES), key=str)
    if unknown:
        raise ValueError(f"{argument}: no override named {unknown}; known: {', '.join(OVERRIDES)}")
    return names
