# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[1] / "examples" / "train_transformer.py"
README = Path(__file__).parents[1] / "README.md"
STEPS = 6


@pytest.mark.skipif(version("flag_gems") == "4.2.0", reason="its use_gems has no include, as the readme says")
def test_what_the_readme_shows_runs_without_a_warning(device: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    # The interpreter must come before the others, and what stays enabled after them.
    blocks.sort(key=lambda block: ("interpreter" not in block, "with " not in block))
    code = "\n".join(blocks[device != "cpu" :])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2
    assert "Warning" not in done.stderr


def test_the_overrides_train_like_pytorch_and_flag_gems_alone_does_not(tmp_path: Path, device: str) -> None:
    output = tmp_path / "example"
    command = [sys.executable, str(EXAMPLE), "--steps", str(STEPS), "--output", str(output)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (output / "loss_curves.png").read_bytes().startswith(b"\x89PNG")
    record = json.loads((output / "loss_curves.json").read_text())
    for ways in record["runs"].values():
        _check_curves(ways["native"], ways["upstream"], ways["overrides"])
        if version("flag_gems") != "4.2.0":  # whose log has other names
            _check_operators(ways, record["size"]["layers"])
    _check_stray_writes(record["runs"]["affine"]["upstream"], device)


def _check_curves(native: dict, upstream: dict, overrides: dict) -> None:
    assert len(native["losses"]) == len(overrides["losses"]) == STEPS
    assert overrides["distance"] < 1e-5
    assert upstream["distance"] is None or upstream["distance"] > 100 * overrides["distance"]
    assert not native["stopped"]
    assert not overrides["stopped"]


def _check_stray_writes(upstream: dict, device: str) -> None:
    """They end flag_gems alone in the first step."""
    if device == "cpu":  # the interpreter's bounds check; on a GPU the damage takes some steps to show
        assert "OutOfBoundsError" in upstream["stopped"]
        assert len(upstream["losses"]) == 1
    assert upstream["distance"] is None


def _check_operators(ways: dict, layers: int) -> None:
    """They really ran through flag_gems."""
    times = {"layer_norm": 2 * layers + 1, "softmax": layers, "log_softmax": 1}
    times |= {f"{name}_backward": count for name, count in times.items()}
    assert ways["native"]["operators"] == {}
    assert ways["overrides"]["operators"] == {name: count * STEPS for name, count in times.items()}
