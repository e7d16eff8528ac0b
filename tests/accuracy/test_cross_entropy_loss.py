# SPDX-License-Identifier: Apache-2.0
"""The fused cross entropy with its gradient, beside torch.nn.functional.cross_entropy."""

from __future__ import annotations

import pytest
import torch
from accuracy.judge import assert_same_answer
from torch.nn.functional import cross_entropy

from flag_gems_overrides.ops.cross_entropy_loss import cross_entropy_loss
from flag_gems_overrides.ops.families.gather import logits_plan
from flag_gems_overrides.ops.families.gather.logits import _prepare
from flag_gems_overrides.perf.launches import captured

FLOATING = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
# One class after the other, several rows to a tile, rows of several tiles from anywhere, images, no batch.
SHAPES = [(5,), (7, 5), (300, 10), (2, 9001), (5, 1000), (2, 5, 3, 4)]
if torch.cuda.is_available():
    SHAPES += [(2048, 50257), (1024, 128256), (70000, 100), (8, 21, 100, 101)]


def name(value: object) -> str:
    return str(value).removeprefix("torch.").replace(" ", "")


def logits(shape, dtype, device):
    return (torch.randn(shape, device=device) * 3).to(dtype).requires_grad_()


def classes(shape, device):
    target = torch.randint(0, shape[min(1, len(shape) - 1)], (*shape[:1], *shape[2:])[: len(shape) - 1], device=device)
    target.view(-1)[1::3] = -100
    return target


def probabilities(shape, dtype, device):
    return torch.softmax(torch.randn(shape, device=device), min(1, len(shape) - 1)).to(dtype)


def wide(value):
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def check(x, target, of_one=False, **options):
    """Loss and gradient are PyTorch's. of_one: the gradient for one of 1."""
    answers = []
    for function, change in ((cross_entropy_loss, lambda v: v), (cross_entropy, lambda v: v), (cross_entropy, wide)):
        y = change(x.detach()).requires_grad_()
        loss = function(y, change(target), **{key: change(value) for key, value in options.items()})
        torch.manual_seed(1)
        grad = change(torch.rand(loss.shape, device=x.device).to(x.dtype) + 0.5)
        loss.backward(torch.ones_like(loss) if of_one else grad)
        answers.append((loss.detach(), y.grad))
    for ours, theirs, reference in zip(*answers, strict=True):
        if x.dtype is torch.float64:  # there is no wider truth
            torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=1e-13, equal_nan=True)
        else:
            assert_same_answer(ours, without_overflow(theirs, reference), reference)


def without_overflow(native, reference):
    """PyTorch's answer; the truth where PyTorch's is infinite without need: on CUDA it adds images up in float16."""
    truth = reference.to(native.dtype)
    return torch.where(native.isinf() & truth.isfinite(), truth, native)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("dtype", FLOATING, ids=name)
@pytest.mark.parametrize("shape", SHAPES, ids=name)
def test_classes(shape, dtype, reduction, device):
    x = logits(shape, dtype, device)
    weight = (torch.rand(shape[min(1, len(shape) - 1)], device=device) + 0.5).to(dtype)
    check(x, classes(shape, device), reduction=reduction)
    # PyTorch adds the logarithms of all classes up in float16, where they are inf.
    smoothing = 0.0 if dtype is torch.float16 else 0.1
    check(x, classes(shape, device), reduction=reduction, weight=weight, label_smoothing=smoothing)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=name)
@pytest.mark.parametrize("shape", SHAPES, ids=name)
def test_probabilities(shape, dtype, device):
    x = logits(shape, dtype, device)
    weight = (torch.rand(shape[min(1, len(shape) - 1)], device=device) + 0.5).to(dtype)
    check(x, probabilities(shape, dtype, device))
    check(x, probabilities(shape, dtype, device), reduction="sum", weight=weight, label_smoothing=0.2)


@pytest.fixture
def loops(monkeypatch):
    """Few rows are done as if they were more than programs have at once."""
    monkeypatch.setattr(logits_plan, "MAX_PIECES_ALONE", 0)
    monkeypatch.setattr(logits_plan, "WHOLE_TILE", 512)
    monkeypatch.setattr(logits_plan, "_programs_of_a_multiprocessor", lambda *_: 1)
    monkeypatch.setattr(logits_plan, "PER_SM", 1)
    _prepare.cache_clear()
    yield
    _prepare.cache_clear()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=name)
@pytest.mark.parametrize("shape", [(700, 13), (9000, 1), (30, 300)], ids=name)
@pytest.mark.usefixtures("loops")
def test_more_rows_than_programs_have_at_once(shape, dtype, device):
    x, weight = logits(shape, dtype, device), (torch.rand(shape[1], device=device) + 0.5).to(dtype)
    if torch.device(device).type == "cpu":  # of few multiprocessors
        with captured() as launches:
            cross_entropy_loss(x, classes(shape, device))
        assert launches[0].row()["options"]["LOOPS"]
    for reduction in ("none", "mean", "sum"):
        check(x, classes(shape, device), reduction=reduction, weight=weight)
    check(x, classes(shape, device), reduction="sum", label_smoothing=0.1)
    check(x, probabilities(shape, dtype, device))


@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((30, 520), torch.float64),
        ((20, 2345), torch.float64),
        ((80, 1101), torch.float32),
        ((40, 4096), torch.float32),
        ((80, 1304), torch.bfloat16),
        ((40, 2056), torch.float16),
        ((40, 1301), torch.bfloat16),
        ((40, 1500), torch.float16),
    ],
    ids=name,
)
def test_longer_rows_that_warps_of_a_program_hold(shape, dtype, reduction, device, device_with):
    device_with(sm_count=1)
    x, target = logits(shape, dtype, device).detach(), classes(shape, device)
    x[2], x[3, 5:], x[4, 7] = float("-inf"), float("-inf"), float("nan")
    x[5, -1], target[5] = 20, shape[1] - 1
    weight = torch.rand(shape[1], device=device).to(dtype)
    with captured() as launches:
        losses = cross_entropy_loss(x, target, weight, reduction=reduction)
    assert launches[-1].row()["kernel"] == "cross_entropy_rows"
    expected = cross_entropy(x.double(), target, weight.double(), reduction=reduction)
    torch.testing.assert_close(losses.double(), expected, rtol=1e-2, atol=1e-2, equal_nan=True)


@pytest.mark.usefixtures("loops")
def test_the_largest_logit_in_the_last_part_of_a_row(device):
    """The exponential of what it is more than the others is infinite."""
    x, target = torch.full((30, 300), -200.0, device=device), torch.full((30,), 299, device=device)
    x[:, -1] = 200.0
    if torch.device(device).type == "cpu":  # of few multiprocessors
        with captured() as launches:
            cross_entropy_loss(x, target)
        assert launches[0].row()["options"]["DEPTH"] > 1
    check(x, target)
    check(x, torch.softmax(x, 1))


@pytest.mark.parametrize("dtype", FLOATING, ids=name)
@pytest.mark.parametrize("shape", [(1, 20001), (3, 4107), (2, 9001), (5, 12288)], ids=name)
def test_rows_that_the_last_program_merges(shape, dtype, device, device_with):
    device_with(sm_count=132)
    x, target = logits(shape, dtype, device), classes(shape, device)
    weight = (torch.rand(shape[1], device=device) + 0.5).to(dtype)
    with captured() as launches:
        cross_entropy_loss(x, target)
    assert launches[0].row()["kernel"] == "cross_entropy_shared"
    check(x, target)
    check(x, target, weight=weight)
    check(x[:0], target[:0])
    target[-1] = 1
    check(x, target.clamp(min=0), reduction="sum", weight=weight, ignore_index=1)


def test_infinite_logits_of_rows_that_the_last_program_merges(device, device_with):
    device_with(sm_count=132)
    x = torch.full((3, 12000), -200.0, device=device)
    x[0, :5000] = float("-inf")
    x[1, 11999] = 200.0
    check(x, torch.tensor([6000, 11999, 1], device=device))
    check(x, torch.full((3,), -100, device=device), reduction="sum")
    x[2] = float("-inf")
    check(x, torch.tensor([6000, 11999, 1], device=device))


def test_small_logits_and_infinite_ones(device):
    x = torch.full((3, 40), -200.0, device=device)
    check(x, torch.tensor([0, 5, 39], device=device))
    x[:, 3] = float("-inf")
    check(x, torch.tensor([0, 5, 39], device=device))


def test_all_ignored(device):
    x = logits((4, 6), torch.float32, device)
    for reduction in ("mean", "sum", "none"):
        check(x, torch.full((4,), 2, device=device), ignore_index=2, reduction=reduction)


@pytest.mark.parametrize("C", [7, 4001])
def test_an_ignored_index_of_more_than_32_bits(C, device):
    """Its lower bits are those of the first class."""
    x, target = logits((5, C), torch.float32, device), classes((5, C), device)
    for reduction in ("mean", "none"):
        check(x, torch.where(target < 0, 2**40, target), ignore_index=2**40, reduction=reduction)


def test_strides(device):
    for x in (logits((10, 6), torch.float32, device).T, logits((12, 20), torch.float32, device)[::2, ::2]):
        check(x, classes(x.shape, device))


@pytest.fixture(params=[False, True], ids=["later", "with the loss"])
def written(request, monkeypatch):
    """When the gradient is written, whatever the size."""
    monkeypatch.setattr(logits_plan, "writes_gradient", lambda *_: request.param)
    _prepare.cache_clear()
    yield
    _prepare.cache_clear()


SHORT = [(7, 5), (2, 4001), (3, 600), (2, 5, 3, 4)]
WITH_GRADIENT = [(shape, dtype) for shape in SHORT for dtype in (torch.float32, torch.bfloat16)]
WITH_GRADIENT += [((3, 70001), torch.float32), ((2, 70400), torch.bfloat16)]


@pytest.mark.parametrize(("shape", "dtype"), WITH_GRADIENT, ids=name)
@pytest.mark.usefixtures("written")
def test_a_gradient_that_comes_with_the_loss(shape, dtype, device):
    """It is written for a gradient of 1, and right for any other."""
    x, target = logits(shape, dtype, device), classes(shape, device)
    weight = (torch.rand(shape[1], device=device) + 0.5).to(dtype)
    for of_one in (True, False):
        check(x, target, of_one)
        check(x, target, of_one, reduction="sum", weight=weight, label_smoothing=0.1)
        check(x, probabilities(shape, dtype, device), of_one, weight=weight)


@pytest.mark.parametrize(
    ("shape", "dtype"), [((30, 520), torch.float64), ((20, 601), torch.float64), ((40, 1032), torch.bfloat16)], ids=name
)
@pytest.mark.usefixtures("written")
def test_a_gradient_of_longer_rows_that_warps_of_a_program_hold(shape, dtype, device, device_with, request):
    device_with(sm_count=1)
    x, target = logits(shape, dtype, device), classes(shape, device)
    weight = (torch.rand(shape[1], device=device) + 0.5).to(dtype)
    with captured() as launches:
        cross_entropy_loss(x, target)
    held = "cross_entropy_rows" in [launch.row()["kernel"] for launch in launches]
    assert held == request.node.callspec.params["written"]
    for of_one in (True, False):
        check(x, target, of_one)
        check(x, target, of_one, reduction="sum", weight=weight)


@pytest.mark.usefixtures("loops", "written")
def test_programs_that_are_no_power_of_2(device, device_with, monkeypatch):
    """Each finds the weights of several blocks of targets, and the last adds them up."""
    monkeypatch.setattr("flag_gems_overrides.ops.families.gather.logits.FORWARD_BLOCK", 32)
    device_with(sm_count=3)
    x, weight = logits((700, 13), torch.float32, device), torch.rand(13, device=device) + 0.5
    check(x, classes((700, 13), device), weight=weight)


@pytest.mark.usefixtures("written")
def test_more_programs_than_the_last_one_reads_at_once(device, device_with, monkeypatch):
    monkeypatch.setattr(logits_plan, "MAX_WORDS_OF_THREAD", 1)
    device_with(sm_count=200)
    x, target = logits((600, 600), torch.float32, device), classes((600, 600), device)
    with captured() as launches:
        cross_entropy_loss(x.detach(), target)
    row = launches[0].row()
    assert row["grid"][0] > row["options"]["WORDS"] == 32 * row["options"]["num_warps"]
    check(x, target, weight=torch.rand(600, device=device) + 0.5)


@pytest.mark.usefixtures("written")
def test_an_infinite_weight_of_a_class_that_no_row_has(device):
    x, weight = logits((3, 7), torch.float32, device), torch.ones(7, device=device)
    weight[2] = float("inf")
    check(x, torch.tensor([1, 0, 6], device=device), weight=weight)


@pytest.mark.usefixtures("written")
@pytest.mark.parametrize("C", [7, 4001])
def test_a_gradient_may_be_asked_for_more_than_once(C, device):
    x, target = logits((5, C), torch.float32, device), classes((5, C), device)
    loss = cross_entropy_loss(x, target)
    first, second = (torch.autograd.grad(loss, x, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)
    (third,) = torch.autograd.grad(loss, x, torch.tensor(2.0, device=device))
    assert torch.equal(first * 2, third)


def test_no_gradient_is_written_where_none_is_wanted(device):
    x, target = logits((5, 7), torch.float32, device), classes((5, 7), device)
    with torch.no_grad(), captured() as launches:
        assert not cross_entropy_loss(x, target).requires_grad
    assert len(launches) == 1


def test_the_gradient_has_a_gradient(device):
    x, target = logits((4, 6), torch.float64, device), classes((4, 6), device)
    weight = torch.rand(6, dtype=torch.float64, device=device)
    for options in ({}, {"weight": weight, "reduction": "sum", "label_smoothing": 0.1}):
        answers = []
        for function in (cross_entropy_loss, cross_entropy):
            (grad,) = torch.autograd.grad(function(x, target, **options), x, create_graph=True)
            answers.append((grad, *torch.autograd.grad(grad.square().sum(), x)))
        for ours, theirs in zip(*answers, strict=True):
            torch.testing.assert_close(ours, theirs)


def test_the_same_bits_every_time(device):
    x, target = logits((600, 100), torch.float32, device), classes((600, 100), device)
    first = cross_entropy_loss(x, target)
    assert all(torch.equal(cross_entropy_loss(x, target), first) for _ in range(3))


@pytest.mark.parametrize(("C", "dtype"), [(150001, torch.float32), (90000, torch.float64)])
def test_rows_of_several_tiles_to_a_program_that_the_last_program_merges(C, dtype, device, device_with):
    device_with(sm_count=2)
    x, target = logits((1, C), dtype, device).detach(), classes((1, C), device)
    with captured() as launches:
        loss = cross_entropy_loss(x, target)
    options = launches[0].row()["options"]
    assert launches[0].row()["kernel"] == "cross_entropy_shared"
    assert C // options["MEMBERS"] > options["LANES"] * options["DEPTH"] * options["VEC"]
    torch.testing.assert_close(loss.double(), cross_entropy(x.double(), target), rtol=1e-6, atol=0)
