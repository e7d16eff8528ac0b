# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
import torch

from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.perf import op_inputs
from flag_gems_overrides.perf.cases import CaseError, parse
from flag_gems_overrides.perf.problems import problems


def small(op: str, dtype: str | None = None):
    dtype = dtype or ("bfloat16" if "bfloat16" in OPERATORS[op].dtypes else OPERATORS[op].dtypes[0])
    shape = "6x8" if OPERATORS[op].ndim != 4 else "6x8x2x3"
    return parse(" ".join([op, shape, *(f"{name}=1" for name in OPERATORS[op].arguments), dtype]))


@pytest.mark.parametrize(
    ("op", "dtype"), [(op, dtype) for op, operator in OPERATORS.items() for dtype in operator.dtypes]
)
def test_native_takes_every_dtype(op, dtype):
    op_inputs.native(op, "cpu")(*op_inputs.arguments(small(op, dtype), "cpu"))


@pytest.mark.parametrize("op", OPERATORS)
def test_every_random_problem_has_arguments(op):
    for problem in problems([op], 60, 0, 0):
        op_inputs.arguments(problem.case, "meta")


def test_native_of_cpu_tensors_on_a_machine_with_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    inputs = op_inputs.arguments(small("_fused_rms_norm_backward"), "cpu")
    dx, dweight = op_inputs.native("_fused_rms_norm_backward", "cpu")(*inputs)
    assert dx.shape == inputs[1].shape
    assert dweight.shape == inputs[4].shape


@pytest.mark.parametrize("op", OPERATORS)
def test_native_takes_the_arguments_and_repeats_itself(op):
    first, second = (op_inputs.native(op, "cpu")(*op_inputs.arguments(small(op), "cpu")) for _ in range(2))
    assert op_inputs.agree(op, op_inputs.arguments(small(op), "cpu"), first, second)
    for a, b in zip(op_inputs.outputs(first), op_inputs.outputs(second), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("key", "read", "written"),
    [
        ("softmax 6x8 dim=1 bfloat16", 96, 96),
        ("softmax_backward 6x8 dim=1 float32", 2 * 192, 192),
        ("prod 48 float32", 192, 4),
        ("max_dim 6x8 dim=1 bfloat16", 96, 6 * (2 + 8)),
        ("amax 6x8 dim=0 int32", 192, 32),
        ("argmin 6x8 float32", 192, 8),
        ("argmin 6x8 dim=1 float32", 192, 48),
        ("layer_norm 6x8 normalized=1 float32", 192 + 2 * 32, 192 + 2 * 24),
        ("nll_loss_forward 6x8 bfloat16", 6 * (2 + 8), 2 + 2),
        ("nll_loss2d_backward 6x8x2x3 bfloat16", 2 + 36 * 8 + 2, 6 * 8 * 6 * 2),
        ("cross_entropy_loss 6x8 bfloat16", 96 + 6 * 8, 2),
        ("cross_entropy_loss 6x8 gradient=1 bfloat16", 96 + 6 * 8, 2 + 96),
        ("cumsum 6x8 dim=1 int8", 48, 384),
        ("cumsum_out 6x8 dim=1 bfloat16", 96, 96),
        # The bias is passed and need not be read.
        ("layer_norm_backward 2x3x8 normalized=1 float32", 2 * 192 + 2 * 24 + 32, 192 + 2 * 32),
    ],
)
def test_compulsory_bytes(key, read, written):
    assert op_inputs.compulsory(parse(key)) == (read, written)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("softmax 6x8 dim=2 float32", "dim=2 is out of range for 2 dimensions"),
        ("layer_norm 6x8 normalized=3 float32", "normalized=3 is out of range"),
        ("nll_loss2d_forward 6x8 float32", "does not have 4 dimensions"),
        ("batch_norm 8 float32", "two dimensions or more"),
        ("group_norm 2x6x5 groups=0 float32", "groups=0 does not divide the second dimension"),
        ("group_norm 2x6x5 groups=-3 float32", "groups=-3 does not divide the second dimension"),
        ("group_norm 2x6x5 groups=4 float32", "groups=4 does not divide the second dimension"),
        ("group_norm 6 groups=3 float32", "groups=3 does not divide the second dimension"),
    ],
)
def test_bad_cases_are_named(key, message):
    with pytest.raises(CaseError, match=message):
        op_inputs.compulsory(parse(key))


def agree(ours, theirs) -> bool:
    return op_inputs.agree("amax", (), ours, theirs)


def test_answers_agree_up_to_rounding_and_shape():
    x = torch.tensor([1.0, 2.0, 100.0])
    assert agree(x * 1.0001, x)
    assert agree(x.view(3, 1), x)
    assert agree(x.double() * (1 + 1e-13), x.double())
    assert agree(torch.tensor([torch.nan, torch.inf]), torch.tensor([torch.nan, torch.inf]))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (torch.tensor([1.0, 5.0]), torch.tensor([1.0, 1.0])),
        (torch.tensor([1.0, torch.nan]), torch.tensor([1.0, 1.0])),
        (torch.tensor([1.0]), torch.tensor([1.0, 1.0])),
        (torch.tensor([1.0]), torch.tensor([1])),
        # Computed in float32: other work than float64's.
        (torch.tensor([1 / 3]).double(), torch.tensor([1 / 3], dtype=torch.float64)),
        (torch.tensor([4]), torch.tensor([5])),
    ],
)
def test_wrong_answers_do_not_agree(ours, theirs):
    assert not agree(ours, theirs)


@pytest.mark.parametrize(
    ("op", "inputs", "right", "wrong"),
    [
        ("argmax", (torch.tensor([3.0, 1.0, 3.0]),), (0, 2), 1),
        ("argmin", (torch.tensor([[3.0, 1.0, 1.0], [0.0, 0.0, 2.0]]), 1), ([1, 0], [2, 1]), [1, 2]),
        ("argmin", (torch.tensor([[3.0, 1.0], [3.0, 0.0]]), 0), ([0, 1], [1, 1]), [0, 0]),
    ],
)
def test_which_of_equal_elements_an_index_names_does_not_matter(op, inputs, right, wrong):
    first, other, bad = (torch.tensor(index) for index in (*right, wrong))
    assert op_inputs.agree(op, inputs, other, first)
    assert not op_inputs.agree(op, inputs, bad, first)
    values = inputs[0].amax(inputs[1]) if len(inputs) > 1 else inputs[0].amax()
    dim = op.replace("arg", "") + "_dim"
    if len(inputs) > 1:
        assert op_inputs.agree(dim, inputs, (values, other), (values, first))
        assert not op_inputs.agree(dim, inputs, (values, bad), (values, first))


@pytest.mark.parametrize("index", [-1, 3, 6])
def test_an_index_out_of_range_names_nothing_and_does_not_agree(index):
    x = torch.zeros(2, 3)
    along, whole = torch.tensor([0, index]), torch.tensor(index)
    assert not op_inputs.agree("argmin", (x, 1), along, torch.tensor([0, 0]))
    assert not op_inputs.agree("min_dim", (x, 1), (torch.zeros(2), along), (torch.zeros(2), torch.tensor([0, 0])))
    assert op_inputs.agree("argmin", (x,), whole, torch.tensor(0)) == (index == 3)


@pytest.mark.parametrize(
    ("key", "unsafe"),
    [
        ("layer_norm_backward 4x8 normalized=1 float32", False),
        ("layer_norm_backward 2x4x8 normalized=2 float32", False),
        ("layer_norm_backward 2x4x8 normalized=1 float32", True),
        ("argmin 64x256 dim=1 float32", False),
        ("argmin 64x8192 dim=1 float32", False),
        ("argmin 64x255 dim=1 float32", True),
        ("argmin 5x256 dim=1 float32", True),
        ("argmin 4100x256 dim=-1 float32", True),
        ("argmin 5x255 dim=0 float32", False),
        ("argmin 255 float32", False),
        ("skip_layer_norm 2x131072 normalized=1 float32", False),
        ("skip_layer_norm 20x6x65536 normalized=2 float32", True),
        ("fused_add_rms_norm 2x131073 normalized=1 float32", True),
        ("layer_norm 2x131073 normalized=1 float32", False),
    ],
)
def test_upstream_is_not_called_where_it_is_unsafe(key, unsafe):
    assert (op_inputs.upstream_unsafe(parse(key)) is not None) == unsafe


def test_a_norm_can_be_called_without_its_parameters():
    forward, backward = (parse(f"{op} 2x3x8 normalized=1 float32") for op in ("layer_norm", "layer_norm_backward"))
    x, shape, weight, bias, _ = op_inputs.without_parameters("layer_norm", op_inputs.arguments(forward, "cpu"))
    assert (x.shape, shape, weight, bias) == ((2, 3, 8), [8], None, None)
    inputs = op_inputs.without_parameters("layer_norm_backward", op_inputs.arguments(backward, "cpu"))
    dx, dweight, dbias = op_inputs.native("layer_norm_backward")(*inputs)
    assert (dx.shape, dweight, dbias) == ((2, 3, 8), None, None)
    assert op_inputs.without_parameters("softmax", ()) is None
