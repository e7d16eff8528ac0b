# SPDX-License-Identifier: Apache-2.0
"""tox.ini makes of every environment that is named somewhere what its name says."""

from __future__ import annotations

import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMING = ["README.md", "CONTRIBUTING.md", "tox.ini", ".github/workflows/gpu.yml"]


def test_on_torch_2_11_an_environment_runs_what_it_runs_elsewhere(tmp_path):
    """tox runs the ordinary tests for a name that no section has, without an error."""
    names = {name for file in NAMING for name in re.findall(r"\b([a-z]+)-torch211\b", (ROOT / file).read_text())}
    assert {"accuracy", "perf"} <= names
    command = [sys.executable, "-m", "tox", "config", "--workdir", str(tmp_path), "--root", str(ROOT)]
    envs = ",".join(f"{name},{name}-torch211" for name in sorted(names))
    answer = subprocess.run([*command, "-e", envs, "-k", "commands", "deps"], capture_output=True, text=True, cwd=ROOT)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    found = ConfigParser(interpolation=None)
    found.read_string(answer.stdout)
    for name in names:
        here, there = found[f"testenv:{name}"], found[f"testenv:{name}-torch211"]
        assert there["commands"].replace("-torch211", "") == here["commands"]
        assert "torch==2.13.0" in here["deps"]
        assert "torch==2.11.0" in there["deps"]
