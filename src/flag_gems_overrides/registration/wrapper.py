# SPDX-License-Identifier: Apache-2.0
"""The function that stands in upstream's place: ours for supported inputs, PyTorch's own kernel for all others."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

# With the parameters spelled out and everything passed by position a wrapper costs 0.2 us, most of it the
# predicate's look at the tensors; with *args and **kwargs it is 0.5 us (Python 3.11, one tensor). softmax as
# a whole is 8 us.
_SOURCE = """\
def {name}{signature}:
    if notice is not None:
        notice({arguments})
    if supports({judged}):
        return implementation({arguments})
    return otherwise({arguments})


def is_supported{signature}:
    return supports({judged})
"""


class Wrapper:
    """Holds :attr:`function`, which has the name and parameters of ``implementation``.

    The function outlives :meth:`turn_off`, because flag_gems or the dispatcher may have kept it; it then
    hands every call to ``upstream``.
    """

    def __init__(
        self,
        implementation: Callable[..., Any],
        supports: Callable[..., bool],
        native: Callable[..., Any],
        upstream: Callable[..., Any],
    ) -> None:
        self.upstream = upstream
        self._supports = supports
        self._native = native
        self._scope: dict[str, Any] = {"implementation": implementation}
        self._notice: Callable[..., None] | None = None
        self.turn_off()
        name = implementation.__name__
        parameters = inspect.signature(implementation).parameters.values()
        source = _SOURCE.format(
            name=name,
            signature=inspect.Signature([p.replace(annotation=p.empty) for p in parameters]),
            judged=", ".join(inspect.signature(supports).parameters),
            arguments=", ".join(f"{p.name}={p.name}" if p.kind is p.KEYWORD_ONLY else p.name for p in parameters),
        )
        exec(compile(source, f"<override of flag_gems {name}>", "exec"), self._scope)
        self.function: Callable[..., Any] = functools.update_wrapper(self._scope[name], implementation)
        # Found there by those who look it up by name, such as pickle.
        self.function.__module__ = upstream.__module__
        self.is_supported: Callable[..., bool] = self._scope["is_supported"]

    def call_first(self, notice: Callable[..., None]) -> None:
        """Have ``notice`` called with the arguments of every call, while the override is on."""
        self._notice = notice

    @property
    def is_on(self) -> bool:
        return self._scope["supports"] is self._supports

    # Another thread may call the function between the two assignments; it must then get PyTorch's kernel.

    def turn_on(self) -> None:
        self._scope["otherwise"] = self._native
        self._scope["supports"] = self._supports
        self._scope["notice"] = self._notice

    def turn_off(self) -> None:
        self._scope["notice"] = None
        self._scope["supports"] = _nothing
        self._scope["otherwise"] = self.upstream


def _nothing(*_: object) -> bool:
    return False
