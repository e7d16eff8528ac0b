# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from flag_gems_overrides import environment
from flag_gems_overrides.cli._plain import say, styled
from flag_gems_overrides.words import many


def doctor() -> None:
    """Say whether the overrides can be used here, and which. Exit status 0 if they can, 2 if not."""
    found = environment.examine()
    facts = {**found.versions, "device": found.device, "plans": found.plans}
    width = max(map(len, facts))
    for name, fact in facts.items():
        say(f"{name:{width}}  {fact}")
    for caution in found.cautions:
        say(f"\n{styled('caution', 'yellow')} {caution}")

    if found.problem is None:
        can = [override for override in found.overrides if override.left_out is None]
        say(f"\n{len(can)} of {len(found.overrides)} overrides would be installed:")
        say(", ".join(override.name for override in can))
        for override in found.overrides:
            if override.left_out is not None:
                say(f"{styled('left out', 'yellow')} {override.left_out}")
        say(f"\nhost path: {environment.host_path()}")
        left = environment.left_to_pytorch()
        say(f"enable() leaves {many(len(left), 'operator')} of flag_gems to PyTorch{':' if left else ''}")
        for row in left:
            say(f"  {row.name}: {row.reason}")
    else:
        say(f"\n{styled('problem', 'red')} {found.problem}")
    say(f"\n{styled('usable', 'green') if found.usable else styled('not usable', 'red')}")
    raise SystemExit(0 if found.usable else 2)
