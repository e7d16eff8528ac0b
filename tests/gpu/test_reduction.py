# SPDX-License-Identifier: Apache-2.0
"""prod, max and amax where launches overlap, are replayed, are very large, or happen in another process."""

from __future__ import annotations

import hashlib
import subprocess
import sys

import pytest
import torch
from accuracy.reductions import assert_same

from flag_gems_overrides.ops.amax import amax
from flag_gems_overrides.ops.max import max, max_dim
from flag_gems_overrides.ops.prod import prod, prod_dim

pytestmark = pytest.mark.gpu

# All with N split over programs, which count each other and exchange partial results.
SHAPES = [((1 << 20,), 0), ((16, 1 << 17), 1), ((1 << 14, 96), 0), ((5, 40999, 3), 1), ((3, 1 << 16, 64), 1)]


def _ours(x: torch.Tensor, dim: int) -> list[torch.Tensor]:
    return [max(x), prod(x), amax(x, dim), prod_dim(x, dim), *max_dim(x, dim)]


def _inputs(count: int) -> list[tuple[torch.Tensor, int]]:
    """Every product is exact, so that the order of multiplication is not judged here."""
    inputs = []
    for i in range(count):
        shape, dim = SHAPES[i % len(SHAPES)]
        signs = torch.randint(0, 2, shape, device="cuda") * 2.0 - 1.0
        x = torch.where(torch.rand(shape, device="cuda") < 1e-3, signs * (2.0 + i % 7), signs)
        inputs.append((x if i % 2 else x.bfloat16(), dim))
    return inputs


def _native(x: torch.Tensor, dim: int) -> list[torch.Tensor]:
    """The products once more from us, alone: native's overflow elsewhere."""
    alone = _ours(x, dim)
    return [torch.max(x), alone[1], torch.amax(x, dim), alone[3], *torch.max(x, dim)]


def test_eight_streams():
    inputs = _inputs(40)
    expected = [_native(*each) for each in inputs]
    streams = [torch.cuda.Stream() for _ in range(8)]
    torch.cuda.synchronize()
    results = []
    for _ in range(20):
        for i, each in enumerate(inputs):
            with torch.cuda.stream(streams[i % 8]):
                results.append((i, _ours(*each)))
    torch.cuda.synchronize()
    for i, actual in results:
        for ours, theirs in zip(actual, expected[i], strict=True):
            assert_same(ours, theirs)


def test_graph_replays_beside_eager_launches():
    inputs = _inputs(10)
    expected = [_native(*each) for each in inputs]
    graphs = []
    for each in inputs:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = _ours(*each)
        graphs.append((graph, captured))
    streams = [torch.cuda.Stream() for _ in range(8)]
    results = []
    for round_ in range(50):
        for _, captured in graphs:
            for tensor in captured:
                tensor.fill_(-1)
        torch.cuda.synchronize()
        for i, (graph, _) in enumerate(graphs):
            with torch.cuda.stream(streams[(i + round_) % 8]):
                graph.replay()
            with torch.cuda.stream(streams[(i + round_ + 1) % 8]):
                results.append((i, _ours(*inputs[i])))
        torch.cuda.synchronize()
        results += [(i, [tensor.clone() for tensor in captured]) for i, (_, captured) in enumerate(graphs)]
    for i, actual in results:
        for ours, theirs in zip(actual, expected[i], strict=True):
            assert_same(ours, theirs)


@pytest.mark.parametrize("shape", [(2**31 + 10,), (2, 2**30 + 5), (2**30 + 5, 2), (3, 2**29, 2)])
def test_more_elements_than_32_bits_count(shape):
    dim = shape.index(sorted(shape)[-1])
    x = torch.zeros(shape, dtype=torch.int8, device="cuda")
    last = x.movedim(dim, -1)[..., -2:]
    last[..., 0], last[..., 1] = 5, 5
    values, indices = max_dim(x, dim)
    assert (values == 5).all()
    assert (indices == shape[dim] - 2).all()
    assert (amax(x, dim) == 5).all()
    assert max(x).item() == 5
    x.fill_(1)
    last[..., 0] = 3
    assert (prod_dim(x, dim) == 3).all()
    assert prod(x).item() == 3 ** (x.numel() // shape[dim])


def test_columns_of_almost_2_to_the_31():
    """With those of the last block they are more than 32 bits count."""
    x = torch.zeros(2, 2**31 - 1, dtype=torch.int8, device="cuda")
    x[1, -7:] = 5
    values = amax(x, 0)
    assert not values[:-7].any()
    assert (values[-7:] == 5).all()


_BITS = """
import hashlib, torch
from flag_gems_overrides.ops.prod import prod, prod_dim
torch.manual_seed(0)
x = torch.exp(torch.randn(64, 16384, 64, device="cuda") / 4000)
bits = [prod(x), prod_dim(x, 1), prod_dim(x.view(8, -1), 1), prod_dim(x.view(-1, 96 * 128 // 3), 0)]
print(hashlib.sha256(b"".join(y.cpu().numpy().tobytes() for y in bits)).hexdigest())
"""


def test_another_process_computes_the_same_bits():
    digests = {
        subprocess.run([sys.executable, "-c", _BITS], check=True, capture_output=True, text=True).stdout
        for _ in range(2)
    }
    assert len(digests) == 1


def test_repeated_calls_compute_the_same_bits():
    x = torch.exp(torch.randn(16, 1 << 20, device="cuda") / 1000)
    digests = {hashlib.sha256(prod(x).cpu().numpy().tobytes() + prod_dim(x, 1).cpu().numpy().tobytes()).hexdigest()
               for _ in range(50)}  # fmt: skip
    assert len(digests) == 1
