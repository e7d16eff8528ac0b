# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import importlib.metadata

import pytest

from flag_gems_overrides import requirements
from flag_gems_overrides.registration import upstream

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


@pytest.mark.parametrize("version", ["3.5.1", "3.8.0"])
def test_another_is_refused_with_what_is_supported(version, installed):
    installed(version)
    with pytest.raises(RuntimeError, match=rf"triton<3.8,>=3.6 and triton {version} is installed: pip install"):
        upstream.load()


def test_a_source_folder_asks_for_nothing(monkeypatch):
    def requires(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", requires)
    requirements.check_triton()


def test_the_installed_one_is_supported():
    requirements.check_triton()
