# SPDX-License-Identifier: Apache-2.0
"""The shell of the workflows, with GitHub's command line replaced by one that writes down what it was asked."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
TITLE = "nightly: tests fail on newest"

GH = """\
#!/bin/sh
echo "$1 $2 $3" >> calls
case $2 in
list) cat number 2> /dev/null || true;;
create) echo 7 > number;;
esac
"""
FAILING = """\
import pytest

@pytest.mark.parametrize("i", range(3))
def test_of(i):
    assert i == 1, "the first line\\nand a second"

def test_without_its_fixture(missing):
    pass
"""


def jobs(workflow: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / ".github" / "workflows" / f"{workflow}.yml").read_text())["jobs"]


@pytest.fixture
def step(tmp_path):
    """The step of the nightly workflow that opens an issue, in a folder of its own."""
    (script,) = [each["run"] for each in jobs("nightly")["newest"]["steps"] if each.get("if") == "failure()"]
    for name, text in (
        ("gh", GH),
        ("python", f'#!/bin/sh\nexec {sys.executable} "$@"\n'),
        (".tox/newest/bin/python", "#!/bin/sh\necho torch==2.15.0\necho numpy==2.0\necho flag_gems==5.3.4\n"),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    (tmp_path / ".github").symlink_to(ROOT / ".github")

    def run(environment="newest") -> str:
        environ = os.environ | {
            "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
            "TOX_ENV": environment,
            "TITLE": TITLE,
            "RUN": "https://github.com/o/r/actions/runs/1",
        }
        # As GitHub runs `shell: bash`.
        bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
        done = subprocess.run(bash, cwd=tmp_path, env=environ, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return (tmp_path / "body.md").read_text()

    return run


def test_a_failed_night_opens_one_issue_and_the_next_brings_it_up_to_date(step, tmp_path):
    (tmp_path / "test_them.py").write_text(FAILING)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(tmp_path)]
    subprocess.run([*command, "--junitxml", "junit.xml", "test_them.py"], cwd=tmp_path, capture_output=True)
    text = step()
    assert text == step()
    assert (tmp_path / "calls").read_text().splitlines() == [
        *("issue list --state", "issue create --title"),
        *("issue list --state", "issue edit 7"),
    ]
    head, names = text.split("```\n\n")
    assert head == "https://github.com/o/r/actions/runs/1\n\n```\ntorch==2.15.0\nflag_gems==5.3.4\n"
    first, second, third = names.splitlines()
    assert first == "- `test_them::test_of[0]`: AssertionError: the first line"
    assert second.startswith("- `test_them::test_of[2]`: ")
    assert third.startswith("- `test_them::test_without_its_fixture`: failed on setup")


def test_a_night_without_an_environment_opens_an_issue_too(step):
    assert step("newest-nightly").endswith("- no test ran: see the run\n")


def test_a_long_list_of_names_is_cut(tmp_path):
    case = '<testcase classname="c" name="n{}"><failure message="m"/></testcase>'
    junit, versions = tmp_path / "junit.xml", tmp_path / "versions.txt"
    junit.write_text(f"<testsuite>{''.join(case.format(i) for i in range(205))}</testsuite>")
    versions.write_text("")
    command = [sys.executable, str(ROOT / ".github" / "failing.py"), str(junit), str(versions), "url"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines[-2:] == ["- `c::n199`: m", "- and 5 more"]


@pytest.mark.parametrize("run", [each["run"] for each in jobs("nightly")["long"]["strategy"]["matrix"]["include"]])
def test_options_of_the_long_runs_are_known_to_what_they_run(run):
    environment, _, arguments = run.partition(" -- ")
    command = ["tests/faults/judges.py"] if environment == "mutation" else ["-m", "pytest"]
    done = subprocess.run([sys.executable, *command, "--help"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(re.findall(r"--[a-z-]+", arguments)) <= set(re.findall(r"--[a-z-]+", done.stdout))
