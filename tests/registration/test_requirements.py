# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ast
import importlib.metadata
import re
from pathlib import Path

import pytest
from packaging.version import Version

from flag_gems_overrides import requirements
from flag_gems_overrides.registration import upstream

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "flag_gems_overrides"
ASKED = ["torch>=2.11", "triton>=3.6,<3.8", "triton-model-analyzer; extra == 'other'"]


@pytest.fixture(autouse=True)
def looked_at_anew():
    requirements.check_triton.cache_clear()
    yield
    requirements.check_triton.cache_clear()


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch):
    """A function that installs this Triton, and what the package asks for."""

    def install(triton: str) -> None:
        monkeypatch.setattr(importlib.metadata, "requires", lambda name: ASKED)
        monkeypatch.setattr(importlib.metadata, "version", lambda name: triton)

    return install


@pytest.mark.parametrize("version", ["3.6.0", "3.7.1", "3.7.0+git1a2b3c"])
def test_a_triton_that_is_asked_for(version, installed):
    installed(version)
    requirements.check_triton()


def test_an_older_one_is_refused_with_what_is_needed(installed):
    installed("3.5.1")
    with pytest.raises(RuntimeError, match=r"needs triton<3.8,>=3.6 and triton 3.5.1 is installed: pip install"):
        upstream.load()


@pytest.mark.parametrize("version", ["3.8.0", "4.0.0+git1a2b3c"])
def test_a_newer_one_has_not_been_tried(version, installed):
    installed(version)
    with pytest.raises(RuntimeError) as refusal:
        upstream.load()
    text = str(refusal.value)
    assert f"triton {version} has not been tried" in text
    for remedy in ("pip install 'triton<3.8,>=3.6'", "tox run -e newest", "FLAG_GEMS_OVERRIDES_ANY_TRITON=1"):
        assert remedy in text


@pytest.mark.parametrize("version", ["3.5.1", "3.8.0"])
def test_the_user_may_go_on_with_any(version, installed, monkeypatch):
    installed(version)
    monkeypatch.setenv("FLAG_GEMS_OVERRIDES_ANY_TRITON", "1")
    requirements.check_triton()


@pytest.mark.parametrize(
    ("torch_version", "triton_version", "tried"),
    [
        ("2.11.0+cu130", "3.6.0", True),
        ("2.13.0+cpu", "3.7.1", True),
        ("2.14.1", "3.8.0", True),
        ("2.15.0", "3.9.0", True),
        ("2.13.0", "3.6.0", False),
        ("2.1.0", "3.6.0", False),
        ("2.16.0", "3.10.0", False),
        ("2.12.0", "not installed", False),
    ],
)
def test_pairs(torch_version, triton_version, tried):
    found = requirements.cautions({"torch": torch_version, "triton": triton_version, "flag_gems": "5.0.2"})
    assert len(found) == (not tried)
    for caution in found:
        assert f"torch {torch_version} + triton {triton_version} have not been tried together" in caution
        assert "tox run -e newest" in caution


def test_a_flag_gems_that_was_not_tried_is_named():
    (caution,) = requirements.cautions({"torch": "2.15.0", "triton": "3.9.0", "flag_gems": "5.1.0"})
    assert "flag_gems 5.1.0 has not been tried, only 4.2.0, 5.0.2, 5.3.4" in caution


def test_a_source_folder_asks_for_nothing(monkeypatch):
    def requires(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", requires)
    requirements.check_triton()


def test_the_installed_one_is_supported():
    requirements.check_triton()


def test_pairs_are_what_the_package_asks_for():
    """pyproject.toml's limits are those of the oldest and the newest pair."""
    text = (ROOT / "pyproject.toml").read_text()
    for name, versions in zip(("torch", "triton"), zip(*requirements.PAIRS, strict=True), strict=True):
        newest = Version(versions[-1])
        assert f'"{name}>={versions[0]},<{newest.major}.{newest.minor + 1}"' in text


def test_one_file_does_what_depends_on_tritons_version():
    """It asks for the version itself; the other two say whether one was tried, and write it into a survey."""
    asking, naming = set(), set()
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        tree = ast.parse(path.read_text())
        asked = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, (ast.Attribute, ast.Call))}
        if any(re.fullmatch(r"triton\.__version__|(.*\.)?version\('triton'\)", text) for text in asked):
            asking.add(name)
        texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        if any(isinstance(text, str) and re.fullmatch(r"[<>=~!]*3\.\d+(\.\d+)?", text) for text in texts):
            naming.add(name)
    assert asking == {"ops/launch/triton_versions.py", "requirements.py", "perf/compile_only.py"}
    assert naming == {"ops/launch/triton_versions.py", "requirements.py"}


def test_one_file_of_the_interpreter_takes_from_tritons_internals():
    """The others import what is public: the language, its libdevice, and the runtime's driver."""
    public = re.compile(r"triton|triton\.language(\.extra\..*)?|triton\.runtime\.driver")
    taking = set()
    for path in (PACKAGE / "interpreter").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, (ast.Import, ast.ImportFrom)) or getattr(node, "level", 0):
                continue
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            names = [module + alias.name for alias in node.names]
            if any(name.partition(".")[0] == "triton" and not public.fullmatch(name) for name in names):
                taking.add(path.name)
    assert taking == {"triton_internals.py"}
