# SPDX-License-Identifier: Apache-2.0
"""layer_norm where only a GPU shows it: graphs, streams, size, processes, pointers that are not aligned."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from accuracy.judge import assert_same_answer

from flag_gems_overrides.ops.layernorm import layer_norm, layer_norm_backward

pytestmark = pytest.mark.gpu
aten = torch.ops.aten
EPS = 1e-5

# Whole rows; rows that start between vectors; a group of programs for each row, of one warp each, the same with odd
# rows, of four, each also with odd rows; gradients in one launch, by one warp and by two; loops.
# tests/ops/families/test_norm_plan.py has the same list.
SHAPES = [
    *((4096, 1000), (4096, 1003), (512, 24576), (640, 40960), (256, 20001), (128, 98304), (128, 90001)),
    *((30, 11168), (30, 17168), (217, 13691), (1, 98304), (20, 393216), (8, 200001), (3, 2**22 + 8)),
]


def _tensors(shape: tuple[int, int], dtype: torch.dtype = torch.bfloat16) -> list[torch.Tensor]:
    """x, dy, weight, bias"""
    return [torch.randn(size, device="cuda", dtype=dtype) for size in (shape, shape, shape[1:], shape[1:])]


def _both(x: torch.Tensor, dy: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> list[torch.Tensor]:
    """Forward, and backward from its statistics: y, mean, rstd, dx, dweight, dbias."""
    normalized = list(weight.shape)
    y, mean, rstd = layer_norm(x, normalized, weight, bias, EPS)
    return [y, mean, rstd, *layer_norm_backward(dy, x, normalized, mean, rstd, weight, bias, [True] * 3)]


def _native(x: torch.Tensor, dy: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> list[torch.Tensor]:
    normalized = list(weight.shape)
    y, mean, rstd = aten.native_layer_norm(x, normalized, weight, bias, EPS)
    gradients = aten.native_layer_norm_backward(dy, x, normalized, mean, rstd, weight, bias, [True] * 3)
    return [y, mean, rstd, *gradients]


def _assert_equal(actual: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for name, ours, theirs in zip(("y", "mean", "rstd", "dx", "dweight", "dbias"), actual, expected, strict=True):
        assert torch.equal(ours, theirs), name


def _assert_right(actual: list[torch.Tensor], tensors: list[torch.Tensor]) -> None:
    exact = _native(*(t.double() for t in tensors))
    for place, (ours, native, truth) in enumerate(zip(actual, _native(*tensors), exact, strict=True)):
        assert_same_answer(ours, native, truth, _alike(tensors, place))


def _alike(tensors: list[torch.Tensor], place: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """PyTorch's answers to others like these: means of three rows are now and then nearly exact."""
    for _ in range(3):
        others = [(t.mean() + t.std() * torch.randn_like(t)).to(t.dtype) for t in tensors]
        yield _native(*others)[place], _native(*(t.double() for t in others))[place]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_call_computes_the_same_right_bits(shape):
    """A group of programs that reads a word too early, or a combine that does, is right most of the time."""
    tensors = _tensors(shape)
    expected = _both(*tensors)
    _assert_right(expected, tensors)
    for _ in range(30):
        _assert_equal(_both(*tensors), expected)


@pytest.mark.parametrize("mask", [(True, False, False), (False, True, True), (False, False, True)], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients_asked_for_alone(shape, mask):
    x, dy, weight, bias = _tensors(shape)
    _, mean, rstd, *expected = _both(x, dy, weight, bias)
    actual = layer_norm_backward(dy, x, list(weight.shape), mean, rstd, weight, bias, list(mask))
    for ours, full, asked in zip(actual, expected, mask, strict=True):
        if asked:
            torch.testing.assert_close(ours, full, rtol=1e-2, atol=1e-2 * full.abs().max().item())
        else:
            assert ours is None


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_captured_in_a_graph(shape):
    tensors = _tensors(shape)
    expected = _both(*tensors)
    sources = [torch.zeros_like(t) for t in tensors]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = _both(*sources)
    for source, t in zip(sources, tensors, strict=True):
        source.copy_(t)
    for _ in range(3):
        for t in captured:
            t.fill_(-1)
        graph.replay()
        _assert_equal(captured, expected)
    # Once more with other numbers: the words that programs exchanged before must be gone.
    for source, t in zip(sources, tensors, strict=True):
        source.copy_(t.flip(0))
    graph.replay()
    flipped = _both(*(t.flip(0) for t in tensors))
    _assert_equal(captured, flipped)


def test_graph_replays_beside_eager_launches():
    """Also of programs that wait for each other: those of one launch must never keep another's from starting."""
    inputs = [_tensors(shape) for shape in SHAPES]
    expected = [_both(*tensors) for tensors in inputs]
    graphs = []
    for tensors in inputs:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = _both(*tensors)
        graphs.append((graph, captured))
    streams = [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()
    for round_ in range(5):
        results = []
        for i, (graph, _) in enumerate(graphs):
            with torch.cuda.stream(streams[(i + round_) % 4]):
                graph.replay()
            with torch.cuda.stream(streams[(i + round_ + 1) % 4]):
                results.append(_both(*inputs[i]))
        torch.cuda.synchronize()
        for i, result in enumerate(results):
            _assert_equal(result, expected[i])
            _assert_equal(graphs[i][1], expected[i])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_on_three_streams_at_once(shape):
    sources = [_tensors(shape) for _ in range(3)]
    expected = [_both(*tensors) for tensors in sources]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in sources]
    answers = []
    for _ in range(5):
        for stream, tensors in zip(streams, sources, strict=True):
            with torch.cuda.stream(stream):
                answers.append(_both(*tensors))
    torch.cuda.synchronize()
    for number, answer in enumerate(answers):
        _assert_equal(answer, expected[number % 3])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_pointers_between_vectors(shape, dtype):
    tensors = [torch.cat([t.flatten()[:1], t.flatten()])[1:].view(t.shape) for t in _tensors(shape, dtype)]
    assert all(t.data_ptr() % 16 and t.is_contiguous() for t in tensors)
    x, dy, weight, bias = tensors
    if dtype is torch.float64:
        # Nothing wider to judge by: the aligned answer, but for the order of additions.
        for ours, aligned in zip(_both(*tensors), _both(*(t.clone() for t in tensors)), strict=True):
            torch.testing.assert_close(ours, aligned, rtol=1e-10, atol=1e-10 * aligned.abs().max().item())
        return
    _assert_right(_both(x, dy, weight, bias), tensors)


# 17 GB in all. Whole rows with narrow loads; with wide ones; cut; groups of programs; loops.
LARGE = [(2**20 + 1, 2049), (2**18 + 8, 8192), (2**20 + 8, 2051), (33000, 65536), (258, 2**23 + 8)]


@pytest.mark.parametrize("shape", LARGE, ids=str)
def test_more_than_2_to_the_31_elements(shape):
    M, N = shape
    assert M * N > 2**31
    x = torch.empty(shape, device="cuda", dtype=torch.float16).uniform_(-4, 4)
    weight, bias = (torch.randn(N, device="cuda", dtype=torch.float16) for _ in range(2))
    y, mean, rstd = layer_norm(x, [N], weight, bias, EPS)
    # Both ends, against PyTorch on them alone; a gradient that is zero elsewhere has its column sums there too.
    ends = torch.tensor([0, M // 2, M - 2, M - 1], device="cuda")
    dy = torch.zeros_like(x)
    dy[ends] = torch.randn(len(ends), N, device="cuda", dtype=torch.float16)
    dx, dweight, dbias = layer_norm_backward(dy, x, [N], mean, rstd, weight, bias, [True] * 3)
    parts = [x[ends], dy[ends], weight, bias]
    _assert_right([y[ends], mean[ends], rstd[ends], dx[ends], dweight, dbias], parts)
    for row in range(1, M, max(M // 50, 1)):
        if row not in (M // 2, M - 2, M - 1):
            assert not dx[row].any(), row
            assert y[row].isfinite().all(), row


@pytest.mark.parametrize(("M", "N"), [(2**30 + 5, 2), (2**31 - 1, 1)])
def test_more_than_2_to_the_30_rows(M, N):
    """With those of all programs they are more than 32 bits count. 28 GB in all."""
    x = torch.zeros(M, N, device="cuda", dtype=torch.float16)
    x[-9:, -1] = 2
    bias = torch.ones(N, device="cuda", dtype=torch.float16)
    y, mean, rstd = layer_norm(x, [N], None, bias, EPS)
    ends = torch.tensor([0, M // 2, M - 10, M - 9, M - 1], device="cuda")
    assert (mean[:-9] == 0).all()
    assert (mean[-9:] == 2 / N).all()
    assert (y[:-9] == 1).all()
    _, dweight, dbias = layer_norm_backward(x, x, [N], mean, rstd, bias, bias, [False, True, True])
    parts = [x[ends], x[ends], bias, bias]
    truth = _native(*(part.double() for part in parts))
    torch.testing.assert_close(y[ends].double(), truth[0], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(dbias[-1].double(), torch.tensor(18.0, device="cuda", dtype=torch.double))
    torch.testing.assert_close(dweight[-1].double(), 18 * (y[-1, -1].double() - 1), rtol=1e-3, atol=1e-3)


def test_row_of_almost_2_to_the_31_elements():
    """The last block of a loop ends beyond 2**31. 17 GB in all."""
    N, end = 2**31 - 8, 2**20
    x, dy = (torch.zeros(1, N, device="cuda", dtype=torch.float16) for _ in range(2))
    x[0, -end:].normal_(1, 4)
    dy[0, -end:].normal_()
    y, mean, rstd = layer_norm(x, [N], eps=EPS)
    dx, _, _ = layer_norm_backward(dy, x, [N], mean, rstd, None, None, [True, False, False])
    tail, g = x[0, -end:].double(), dy[0, -end:].double()
    exact_mean = tail.sum() / N
    exact_rstd = (tail.square().sum() / N - exact_mean.square() + EPS).rsqrt()
    xhat = (tail - exact_mean) * exact_rstd
    torch.testing.assert_close(mean.double().flatten()[0], exact_mean, rtol=1e-5, atol=0)
    torch.testing.assert_close(rstd.double().flatten()[0], exact_rstd, rtol=1e-5, atol=0)
    torch.testing.assert_close(y[0, -end:].double(), xhat, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(y[0, :end].double(), (-exact_mean * exact_rstd).expand(end), rtol=1e-3, atol=1e-5)
    expected = (g - (xhat * (g * xhat).sum() + g.sum()) / N) * exact_rstd
    torch.testing.assert_close(dx[0, -end:].double(), expected, rtol=1e-3, atol=1e-4)


_PRINT_BITS = """
import hashlib, torch
from flag_gems_overrides.ops.layernorm import layer_norm, layer_norm_backward
torch.manual_seed(0)
for M, N in {shapes}:
    x, dy = (torch.randn(M, N, device="cuda") for _ in range(2))
    weight, bias = (torch.randn(N, device="cuda") for _ in range(2))
    forward = layer_norm(x, [N], weight, bias, 1e-5)
    backward = layer_norm_backward(dy, x, [N], *forward[1:], weight, bias, [True] * 3)
    for t in (*forward, *backward):
        print(hashlib.sha256(t.cpu().numpy().tobytes()).hexdigest())
"""


def test_same_bits_in_every_process():
    program = _PRINT_BITS.format(shapes=SHAPES)
    runs = [subprocess.run([sys.executable, "-c", program], capture_output=True, text=True) for _ in range(2)]
    assert runs[0].returncode == 0, runs[0].stderr
    assert len(runs[0].stdout.splitlines()) == 6 * len(SHAPES)
    assert runs[0].stdout == runs[1].stdout


def test_other_device_than_the_current_one():
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two devices")
    for shape in SHAPES:
        tensors = _tensors(shape)
        there = _both(*(t.to("cuda:1") for t in tensors))
        assert {t.device for t in there} == {torch.device("cuda:1")}
        _assert_equal([t.to("cuda:0") for t in there], _both(*tensors))
