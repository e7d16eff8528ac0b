# SPDX-License-Identifier: Apache-2.0
"""The text of the issue about a nightly run that failed: python failing.py JUNIT_XML VERSIONS_TXT RUN_URL"""

import sys
from pathlib import Path
from xml.etree import ElementTree

MAX_NAMES = 200  # GitHub cuts an issue's text off at 65536 characters


def failing(junit: Path) -> list[str]:
    """The tests that failed, each with the first line of why."""
    if not junit.exists():
        return ["no test ran: see the run"]
    names = []
    for test in ElementTree.parse(junit).iter("testcase"):
        for kind in ("failure", "error"):
            found = test.find(kind)
            if found is not None:
                why = (found.get("message") or kind).splitlines()[0][:150]
                names.append(f"`{test.get('classname')}::{test.get('name')}`: {why}")
    return names or ["no test failed, but the run did: see the run"]


def main() -> None:
    junit, versions, run = sys.argv[1:]
    names = failing(Path(junit))
    left = len(names) - MAX_NAMES
    print(f"{run}\n\n```\n{Path(versions).read_text()}```\n")
    print("\n".join(f"- {name}" for name in names[:MAX_NAMES]) + (f"\n- and {left} more" if left > 0 else ""))


if __name__ == "__main__":
    main()
