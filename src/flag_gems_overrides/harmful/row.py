# SPDX-License-Identifier: Apache-2.0
"""An operator of flag_gems that is known to answer wrongly or to crash."""

from __future__ import annotations

import re
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import Version


@dataclass(frozen=True)
class Harmful:
    """One operator.

    Attributes:
        name: ``__name__`` of the function that flag_gems registers.
        reason: what goes wrong.
        reproduction: a Python expression of ``torch`` and ``F`` (torch.nn.functional) whose value differs from
            PyTorch's, or which raises, while flag_gems has the operator registered.
        versions: of flag_gems, as package requirements write them.
        capabilities: lowest and highest compute capability of the devices concerned; None for all devices.
        issue: upstream's number, None if none is known.
    """

    name: str
    reason: str
    reproduction: str
    versions: str = ">=5.0.2"
    capabilities: tuple[tuple[int, int], tuple[int, int]] | None = None
    issue: int | None = None

    def holds(self, version: str, capability: tuple[int, int] | None) -> bool:
        """Whether it concerns this flag_gems on this device; ``capability`` is None where that has none."""
        release = re.match(r"\d+(\.\d+)*", version)
        if release is None or Version(release[0]) not in SpecifierSet(self.versions):
            return False
        if self.capabilities is None:
            return True
        lowest, highest = self.capabilities
        return capability is not None and lowest <= capability <= highest
