# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin under which upstream's own tests run: ``-p flag_gems_overrides.upstreaming.stage``.

On a GPU or, where there is none, in Triton's interpreter; with the overrides if ``GEMS_STAGE`` says so.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator

import pytest
import torch

from flag_gems_overrides import compat, install, interpreter
from flag_gems_overrides.upstreaming.defects import DEFECTS

if not torch.cuda.is_available():
    interpreter.activate()

# On a Triton that LibEntry does not know nothing else of upstream could be seen.
compat.apply()
if os.environ.get("GEMS_STAGE") == "overrides":
    install()

# Elements of the largest parameter; the interpreter takes minutes for upstream's largest shapes.
LIMIT = int(os.environ.get("GEMS_STAGE_LIMIT", "0" if torch.cuda.is_available() else "60000"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    large = {f"test_{row.id.lower()}" for row in DEFECTS.values() if row.needs_gpu}
    for item in items:
        if LIMIT and (item.name in large or max(_sizes(item), default=0) > LIMIT):
            item.add_marker(pytest.mark.skip(reason="too large for the interpreter"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    torch.manual_seed(0)
    # Upstream writes beyond its tensors here and there; interpreted, that ends the process sooner or later.
    with interpreter.check_bounds() if interpreter.is_active() else contextlib.nullcontext():
        yield


def _sizes(item: pytest.Item) -> Iterator[int]:
    spec = getattr(item, "callspec", None)
    for value in spec.params.values() if spec else ():
        if isinstance(value, (tuple, list)) and all(type(size) is int for size in value):
            yield math.prod(value)
