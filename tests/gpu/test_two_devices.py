# SPDX-License-Identifier: Apache-2.0
"""A second device: one that is not the current one, and one for each process of a training."""

from __future__ import annotations

import json
import math

import pytest
import torch

import flag_gems_overrides
from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.perf import op_inputs
from flag_gems_overrides.perf.answers import Reference
from flag_gems_overrides.perf.cases import Case
from gpu import ranks

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two devices, and a worker of xdist has one"),
    pytest.mark.filterwarnings("ignore:Warning only once for all operators"),
]

# By one program for each row, by groups of programs, by columns.
SHAPES = [((512, 1000), 1), ((3, 300001), 1), ((4, 8192, 64), 1)]


def _case(op: str, shape: tuple[int, ...], dim: int, dtype: str) -> Case:
    operator = OPERATORS[op]
    if operator.ndim is not None:
        shape = ((*shape[:2], *shape[2:], 1, 1)[: operator.ndim - 1]) + (math.prod(shape[operator.ndim - 1 :]),)
    values = {"groups": 1, "normalized": len(shape) - dim, "dim": dim, "training": 1, "gradient": 1}
    dtype = dtype if dtype in operator.dtypes else operator.dtypes[0]
    return Case(op, shape, dtype, tuple((name, values[name]) for name in operator.arguments))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("shape", "dim"), SHAPES, ids=str)
@pytest.mark.parametrize("op", OPERATORS)
def test_other_device_than_the_current_one(op, shape, dim, dtype, overridden):
    torch.cuda.set_device(0)
    inputs = op_inputs.arguments(_case(op, shape, dim, dtype), "cuda:1")
    here = op_inputs.arguments(_case(op, shape, dim, dtype), "cuda:0")
    native = op_inputs.native(op)
    reference = Reference(op, inputs)
    dispatched = {override.name for override in flag_gems_overrides.catalog() if override.left_out is None}
    function = op_inputs.on_copies(op, native if op in dispatched else op_inputs.override(op))
    with overridden():
        # Launches and counters that are kept are kept for each device.
        results = [function(*inputs), function(*here), function(*inputs)]
    for result in results[::2]:
        assert {x.device for x in op_inputs.outputs(result)} == {torch.device("cuda:1")}
        assert reference.is_right(result)
    assert Reference(op, here).is_right(results[1])
    assert torch.cuda.current_device() == 0


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    folder = tmp_path_factory.mktemp("ranks")
    torch.multiprocessing.spawn(ranks.run, (2, folder), nprocs=2)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("way", ["replicated", "sharded"])
def test_training_on_both(way, trained):
    for rank in trained:
        run = rank[way]
        assert len(run["ours"]) == ranks.STEPS
        assert run["ours"] == pytest.approx(run["native"], rel=1e-4)
        assert {"layer_norm_rows", "layer_norm_backward_rows", "softmax_rows", "softmax_backward_rows"} <= {
            *run["kernels"]
        }
