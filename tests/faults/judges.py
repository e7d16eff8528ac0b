# SPDX-License-Identifier: Apache-2.0
"""Plant faults in what judges, reports and registers, and run the tests that must notice: tox run -e mutation.

    python tests/faults/judges.py [--count N] [PATTERN...]

mutmut makes the faults of the modules that pyproject.toml names and runs for each the tests that reach it. PATTERN is
of a fault's name, as in "*.perf.gates.*"; of all that match, N are drawn, always the same ones.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import random
import subprocess
from pathlib import Path

SEED = 26
# What decides whether a change may land. A sample of the rest says where tests are thin.
GATE = [f"*.perf.{module}.*" for module in ("baselines", "gates", "statistics", "verdict")]


def names() -> list[str]:
    """Of all faults, which mutmut writes into the folder mutants."""
    import mutmut.__main__ as mutmut

    mutmut.set_mutant_under_test("mutant_generation")
    Path("mutants").mkdir(exist_ok=True)
    for make in (mutmut.copy_src_dir, mutmut.copy_also_copy_files, mutmut.setup_source_paths):
        make()
    mutmut.create_mutants(1)
    return [
        name
        for path in sorted(Path("mutants/src").rglob("*.py.meta"))
        for name in json.loads(path.read_text())["exit_code_by_key"]
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int)
    parser.add_argument("patterns", nargs="*", default=GATE)
    options = parser.parse_args()
    chosen = [name for name in names() if any(fnmatch.fnmatch(name, pattern) for pattern in options.patterns)]
    total = len(chosen)
    if options.count is not None and options.count < total:
        chosen = random.Random(SEED).sample(chosen, options.count)
    print(f"{len(chosen)} of {total} faults")
    environ = {name: value for name, value in os.environ.items() if name != "MUTANT_UNDER_TEST"}
    children = environ.get("MUTATION_CHILDREN", "2")
    subprocess.run(["mutmut", "run", "--max-children", children, *chosen], env=environ, check=True)


if __name__ == "__main__":
    main()
