# SPDX-License-Identifier: Apache-2.0
"""softmax and log_softmax where only a GPU shows it: graphs, streams, size, processes."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
import torch

from flag_gems_overrides.ops.log_softmax import log_softmax, log_softmax_backward
from flag_gems_overrides.ops.softmax import softmax, softmax_backward

pytestmark = pytest.mark.gpu

# Rows in one tile, a group of programs for each row, few rows in loops, columns.
SHAPES = [((4096, 1000), 1), ((512, 65537), 1), ((3, 2**21), 1), ((4, 8192, 64), 1)]
BOTH = [(softmax, softmax_backward), (log_softmax, log_softmax_backward)]


@pytest.mark.parametrize(("forward", "backward"), BOTH, ids=["softmax", "log_softmax"])
@pytest.mark.parametrize(("shape", "dim"), SHAPES, ids=str)
def test_captured_in_a_graph(shape, dim, forward, backward):
    x, g = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    expected = forward(x, dim)
    expected_gradient = backward(g, expected, dim, x.dtype)
    source = torch.zeros_like(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = forward(source, dim)
        dx = backward(g, y, dim, x.dtype)
    source.copy_(x)
    for _ in range(3):
        y.zero_()
        dx.zero_()
        graph.replay()
        assert torch.equal(y, expected)
        assert torch.equal(dx, expected_gradient)


@pytest.mark.parametrize(("shape", "dim"), SHAPES, ids=str)
def test_on_several_streams_at_once(shape, dim):
    sources = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    expected = [softmax(x, dim) for x in sources]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in sources]
    answers = []
    for _ in range(5):
        for stream, x in zip(streams, sources, strict=True):
            with torch.cuda.stream(stream):
                answers.append(softmax(x, dim))
    torch.cuda.synchronize()
    for number, answer in enumerate(answers):
        assert torch.equal(answer, expected[number % 3])


@pytest.mark.parametrize(
    ("shape", "dim"), [((2**20 + 1, 2049), 1), ((2049, 2**20 + 1), 1), ((3, 2**30), 1), ((2**30, 3), 0)]
)
def test_more_than_2_to_the_31_elements(shape, dim):
    x = torch.empty(shape, device="cuda", dtype=torch.float16).uniform_(-4, 4)
    y = softmax(x, dim)
    # The far end, against PyTorch on that part alone.
    part = x.narrow(1 - dim, shape[1 - dim] - 1, 1)
    assert torch.equal(y.narrow(1 - dim, shape[1 - dim] - 1, 1).isnan(), torch.zeros_like(part, dtype=torch.bool))
    torch.testing.assert_close(y.narrow(1 - dim, shape[1 - dim] - 1, 1), torch.softmax(part.float(), dim).half())
    dx = softmax_backward(y, y, dim, x.dtype)
    part = y.narrow(1 - dim, shape[1 - dim] - 1, 1).float()
    expected = part * (part - (part * part).sum(dim, keepdim=True))
    torch.testing.assert_close(dx.narrow(1 - dim, shape[1 - dim] - 1, 1), expected.half(), rtol=2e-3, atol=1e-6)


def test_columns_of_almost_2_to_the_31_elements():
    """With the programs of a group they are more than 32 bits count."""
    N = 2**31 - 1
    x = torch.zeros(N, 2, device="cuda", dtype=torch.float16)
    x[-8:] = 12
    total = math.log(N - 8 + 8 * math.exp(12))
    y = log_softmax(x, 0)
    assert (y[:-8] == torch.tensor(-total, dtype=y.dtype)).all()
    assert (y[-8:] == torch.tensor(12 - total, dtype=y.dtype)).all()


@pytest.mark.parametrize(("shape", "dim"), [((2**30 + 5, 2, 2), 1), ((2, 2**31 - 1), 0)], ids=str)
def test_more_than_2_to_the_30_blocks_or_columns(shape, dim):
    """With the programs that run, or those of a block, they are more than 32 bits count."""
    x = torch.zeros(shape, device="cuda", dtype=torch.float16)
    x.select(dim, 1)[-9:] = -torch.inf
    first, second = softmax(x, dim).unbind(dim)
    assert (first[:-9] == 0.5).all()
    assert (first[-9:] == 1).all()
    assert not second[-9:].any()


def test_other_device_than_the_current_one():
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two devices")
    for shape, dim in SHAPES:
        x = torch.randn(shape, device="cuda:1")
        y = softmax(x, dim)
        assert y.device == x.device
        torch.testing.assert_close(y, torch.softmax(x, dim))


_PRINT_SUMS = """
import hashlib, torch
from flag_gems_overrides.ops.softmax import softmax, softmax_backward
torch.manual_seed(0)
for shape, dim in {shapes}:
    x = torch.randn(shape, device="cuda")
    y = softmax(x, dim)
    for t in (y, softmax_backward(x, y, dim, x.dtype)):
        print(hashlib.sha256(t.cpu().numpy().tobytes()).hexdigest())
"""


def test_same_bits_in_every_process():
    program = _PRINT_SUMS.format(shapes=SHAPES)
    runs = [subprocess.run([sys.executable, "-c", program], capture_output=True, text=True) for _ in range(2)]
    assert runs[0].returncode == 0, runs[0].stderr
    assert runs[0].stdout == runs[1].stdout
