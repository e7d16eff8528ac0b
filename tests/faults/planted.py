# SPDX-License-Identifier: Apache-2.0
"""The accuracy suite goes red for every planted fault. ``tox run -e faults``."""

from __future__ import annotations

import functools
import pkgutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from faults.equivalent import EQUIVALENT
from faults.judging import OPS, Suite, place
from faults.mutations import Fault, faults

from flag_gems_overrides import ops

ACCURACY = Path(__file__).parents[1] / "accuracy"
# Of the whole suite of a fault.
SECONDS = 500

# The accuracy tests that judge a family; those of all families judge what families share.
JUDGES = {
    "norm": [
        "layernorm",
        "layernorm_errors",
        "rms_norm",
        "skip_layernorm",
        "fused_add_rms_norm",
        "norm_kernels",
        "norm_blocks",
    ],
    "group_norm": ["group_norm"],
    "batch_norm": ["batch_norm", "batch_norm_held", "batch_norm_rows", "batch_norm_runs"],
    "softmax": ["softmax", "log_softmax"],
    "reduction": ["reduction", "product", "moments", "pairs", "out"],
    "scan": ["cumsum"],
    "gather": ["nll_loss", "cross_entropy_loss"],
}


def _modules() -> dict[str, tuple[str, ...]]:
    """The modules of ops, and for each the accuracy tests that must notice a fault in it."""
    found = {}
    for module in pkgutil.walk_packages(ops.__path__, f"{OPS}."):
        if not module.ispkg:
            family = _family(module.name)
            judges = JUDGES[family] if family else [name for names in JUDGES.values() for name in names]
            found[module.name] = tuple(str(ACCURACY / f"test_{name}.py") for name in [*judges, "far"])
    return found


def _family(module: str) -> str | None:
    """The family whose folder a module is in, or whose public functions it has; None for what families share."""
    name = place(module)
    imported = next((family for family in JUDGES if f"families.{family}." in _source(module)), None)
    return next((family for family in JUDGES if name.startswith(f"{family}/")), imported)


def _source(module: str) -> str:
    return Path(find_spec(module).origin).read_text(encoding="utf-8")


MODULES = _modules()
PLANTED = [fault for module in MODULES for fault in faults(_source(module), module, place(module))]


@pytest.fixture(scope="session")
def suites(tmp_path_factory):
    """Suites by their files, started when they are asked for."""
    return functools.cache(lambda files: Suite(files, tmp_path_factory.mktemp("suite")))


@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: fault.name)
def test_fault_is_noticed(fault: Fault, suites, record_property):
    if fault.name in EQUIVALENT:
        pytest.skip(EQUIVALENT[fault.name])
    test = suites(MODULES[fault.module]).noticed_by(fault, SECONDS)
    assert test is not None, "no test notices"
    record_property("noticed by", test)
