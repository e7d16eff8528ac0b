# SPDX-License-Identifier: Apache-2.0
"""cumsum and cumsum.out, beside PyTorch."""

from __future__ import annotations

import math

import pytest
import torch
from accuracy.judge import assert_same_answer

from flag_gems_overrides.ops.cumsum import cumsum, cumsum_out
from flag_gems_overrides.ops.families.scan import call
from flag_gems_overrides.ops.families.scan.call import _prepare, launch_with
from flag_gems_overrides.ops.families.scan.plan import Configuration
from flag_gems_overrides.ops.launch import workspace

ON_GPU = torch.cuda.is_available()
FLOATING = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
INTEGER = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
# In one step and in several, of one program and of groups of them, rows and columns, sizes of 1, odd sizes.
SHAPES = [(), (1,), (7, 5), (64, 64), (300, 3), (3, 16384), (1, 40000), (3, 8193), (2, 700, 24), (1, 260, 33)]
SHAPES += [(90, 5, 3), (2, 270001), (9, 131), (40, 301), (5, 1, 3)]
if ON_GPU:
    SHAPES += [(8192, 4096), (4096, 8191), (16, 2**20), (1, 2**26), (3, 2**22 + 1), (1000000, 64), (100000, 33)]
    SHAPES += [(64, 16384, 64), (200, 40999, 3), (2, 3, 70000), (16, 21, 65536), (2**20, 16), (5, 100000, 8)]
FEW = [(7, 5), (2, 9000), (2, 300, 24)]
WIDE = (torch.float32, torch.bfloat16, torch.int64)
EXACT = [(shape, dtype) for shape in SHAPES for dtype in (FLOATING + INTEGER if ON_GPU else WIDE)]
EXACT += [(shape, dtype) for shape in FEW for dtype in FLOATING + INTEGER if dtype not in WIDE]
EXACT += [((2999, 1), dtype) for dtype in INTEGER]  # which are only converted


def name(value: object) -> str:
    return str(value).removeprefix("torch.").replace(" ", "")


def draw(shape, dtype, device):
    """Floats whose running sums are exact in float32, integers of all of their range."""
    if dtype is torch.bool:
        return torch.rand(shape, device=device) > 0.5
    if dtype.is_floating_point:
        return torch.randint(-1, 2, shape, device=device).to(dtype)
    info = torch.iinfo(dtype)
    return torch.randint(info.min, info.max, shape, dtype=dtype, device=device)


def check(x, dim, dtype=None):
    actual, native = cumsum(x, dim, dtype=dtype), torch.cumsum(x, dim, dtype=dtype)
    assert actual.is_contiguous()
    truth = native
    if native.dtype.is_floating_point:
        truth = torch.cumsum(x.to(native.dtype).double(), dim)
    assert_same_answer(actual, native, truth)


def check_everywhere(x, dtype=None):
    for dim in range(max(x.dim(), 1)):
        check(x, dim, dtype)


@pytest.mark.parametrize(("shape", "dtype"), EXACT, ids=name)
def test_exact_sums(shape, dtype, device):
    check_everywhere(draw(shape, dtype, device))


@pytest.mark.parametrize("dtype", FLOATING, ids=name)
@pytest.mark.parametrize("shape", FEW + ([(8192, 4096), (1, 2**24)] if ON_GPU else []), ids=name)
def test_rounded_sums(shape, dtype, device):
    """Within what rounding n times, upwards as often as downwards, makes of the sum of magnitudes."""
    x = torch.randn(shape, device=device, dtype=torch.float64).to(dtype)
    for dim in range(x.dim()):
        truth, magnitude = x.double().cumsum(dim), x.double().abs().cumsum(dim)
        n = x.shape[dim]
        computed_in = torch.float64 if dtype is torch.float64 else torch.float32
        allowed = min(n, (6 * n) ** 0.5) * torch.finfo(computed_in).eps * magnitude
        if dtype is not computed_in:
            allowed += torch.finfo(dtype).eps / 2 * truth.abs()
        assert ((cumsum(x, dim).double() - truth).abs() <= allowed).all()


def test_more_rows_of_columns_than_a_grid_has(monkeypatch, device):
    monkeypatch.setattr(call, "MAX_GRID_ROWS", 1)
    _prepare.cache_clear()
    check_everywhere(draw((3, 40, 37), torch.float32, device))
    _prepare.cache_clear()


@pytest.mark.parametrize("requested", [torch.float64, torch.float16, torch.int64, torch.int8], ids=name)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.bool], ids=name)
def test_elements_are_converted_first(dtype, requested, device):
    x = torch.randint(0, 5, (3, 70), device=device)
    x = x.to(dtype) if not dtype.is_floating_point else x.to(dtype) * 0.75
    check_everywhere(x, requested)
    tiny = torch.tensor([1.0, 1e-9], device=device)
    assert cumsum(tiny, 0, dtype=torch.float64)[1].item() == 1.0 + tiny[1].item()


def test_halves_are_added_in_float32(device):
    x = torch.full((4096, 3), 2.0**-4, dtype=torch.float16, device=device)
    x[0] = 2048.0
    assert cumsum(x, 0)[-1].tolist() == [2304.0] * 3


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 5)], ids=name)
def test_empty(shape, device):
    check_everywhere(torch.empty(shape, device=device))
    check_everywhere(torch.empty(shape, dtype=torch.bool, device=device))


@pytest.mark.parametrize(
    ("shape", "dim"),
    [((5, 64), 0), ((5, 64), 1), ((5, 301), 1), ((1, 20000), 1), ((1, 270001), 1), ((1, 300, 24), 1)],
    ids=name,
)
def test_nan_and_infinities_stay(shape, dim, device):
    for values in ([math.nan], [math.inf], [-math.inf], [math.inf, -math.inf]):
        x = draw(shape, torch.float32, device)
        for i, value in enumerate(values):
            x.view(-1)[x.numel() // 2 + 9 * i] = value
        check(x, dim)


def test_strides(device):
    x = draw((64, 40), torch.float32, device)
    for y in (x.T, x[::2, ::3], x[:1].expand(64, 40), x[5:, 1:]):
        check_everywhere(y)
        assert torch.equal(cumsum_out(y, 1, out=torch.empty(y.shape, device=device)), torch.cumsum(y, 1))


def test_out(device):
    x = draw((40, 300), torch.float32, device)
    for out in (
        torch.empty(40, 300, device=device),
        torch.empty(300, 40, device=device).T,
        torch.empty(80, 600, device=device)[::2, ::2],
        torch.empty(0, device=device),
        torch.empty(40, 300, dtype=torch.float64, device=device),
        torch.empty(40, 300, dtype=torch.int32, device=device),
    ):
        for dim in (0, 1):
            assert cumsum_out(x, dim, out=out) is out
            assert torch.equal(out, torch.cumsum(x, dim, dtype=out.dtype))


def test_out_may_be_the_input_or_share_its_memory(device):
    for shape in ((40, 300), (40, 301), (1, 40000), (700, 70), (1, 270001)):
        for dim in (0, 1):
            x = draw(shape, torch.float32, device)
            expected = torch.cumsum(x, dim)
            cumsum_out(x, dim, out=x)
            assert torch.equal(x, expected)
    memory = draw((500,), torch.float32, device)
    x, out = memory[:400], memory[100:]
    expected = torch.cumsum(x, 0)
    assert torch.equal(cumsum_out(x, 0, out=out), expected)


def test_a_resized_out_warns(device):
    out = torch.empty(3, device=device)
    with pytest.warns(UserWarning, match="resized"):
        cumsum_out(torch.ones(2, 3, device=device), 1, out=out)
    assert out.tolist() == [[1, 2, 3]] * 2


def test_of_no_element_or_a_single_number_bool_is_allowed(device):
    assert cumsum(torch.ones(0, 4, device=device), 1, dtype=torch.bool).shape == (0, 4)
    for value in (0.0, 0.5):
        result = cumsum(torch.tensor(value, device=device), 0, dtype=torch.bool)
        assert (result.dtype, result.shape, result.item()) == (torch.bool, (), value != 0)


def test_errors_are_pytorchs(device):
    x = torch.ones(3, 4, device=device)
    for dim in (2, -3):
        with pytest.raises(IndexError, match="Dimension out of range"):
            cumsum(x, dim)
    with pytest.raises(IndexError, match="Dimension out of range"):
        cumsum(x[0, 0], 1)
    with pytest.raises(NotImplementedError, match="not implemented for 'Bool'"):
        cumsum(x, 0, dtype=torch.bool)
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype long int, but got float instead"):
        cumsum_out(x, 0, dtype=torch.int64, out=x.clone())


# Tiles of a row or of columns, for eight programs at once: in one step and in several, of which the last is not full.
@pytest.mark.parametrize("tiles", [2, 4, 7.1, 16, 20.3])
@pytest.mark.parametrize("inner", [1, 13, 32], ids=lambda inner: f"K={inner}")
@pytest.mark.parametrize("dtype", [*FLOATING, torch.bool, torch.int16, torch.int64], ids=name)
@pytest.mark.parametrize("kernel", ["shared", "chunks"])
def test_several_programs_for_a_row_or_columns(kernel, tiles, inner, dtype, device, device_with):
    device_with(sm_count=2)
    vec = 16 // (dtype.itemsize if dtype.is_floating_point else 8)
    if inner == 1:
        configuration = Configuration(kernel, vec, 32 * vec, 2, 4, 128)
    else:
        configuration = Configuration(kernel, 2, 16, 2, 4, 128)
    N = int(tiles * configuration.step(inner))
    for rows, n in ((1, N), (2, N + 1)):
        x = draw((rows, n, inner), dtype, device)
        actual, expected = launch_with(configuration, "cumsum", x, 1), torch.cumsum(x, 1)
        assert actual.dtype is expected.dtype
        if dtype.is_floating_point:
            expected = torch.cumsum(x.double(), 1).to(dtype)
        assert torch.equal(actual, expected)
        if dtype is actual.dtype:
            cumsum_out(x, 1, out=x)
            assert torch.equal(x, expected)
    assert not any(words.any() for words in workspace._kept.values())


@pytest.mark.parametrize(
    ("inner", "chunks", "configuration"),
    [(1, 150, Configuration("chunks", 4, 64, 1, 1, 128)), (33, 20, Configuration("chunks", 2, 32, 1, 1, 128))],
    ids=name,
)
def test_more_chunks_than_a_program_adds_up_at_once(inner, chunks, configuration, device, device_with):
    device_with(sm_count=50)
    x = draw((1, chunks * configuration.step(inner), inner), torch.float32, device)
    assert torch.equal(launch_with(configuration, "cumsum", x, 1), torch.cumsum(x, 1))


@pytest.mark.parametrize(
    ("inner", "configuration"),
    [(1, Configuration("chunks", 2, 64, 2, 4, 64)), (13, Configuration("chunks", 1, 16, 2, 4, 64))],
    ids=name,
)
def test_chunks_one_call_after_another(inner, configuration, device, device_with):
    """Each reads what the one before wrote, and its sums of chunks lie where those of another may still be read."""
    device_with(sm_count=50)
    x = expected = draw((2, 20 * configuration.step(inner) + 1, inner), torch.int64, device)
    for _ in range(6):
        x, expected = launch_with(configuration, "cumsum", x, 1), torch.cumsum(expected, 1)
    assert torch.equal(x, expected)


@pytest.mark.parametrize("dtype", [*FLOATING, torch.int32, torch.int64], ids=name)
@pytest.mark.parametrize(
    "shape", [(3, 8, 201), (2, 17, 354), (2, 33, 83), (2, 45, 129 + 64), (1, 64, 353), (1, 250, 481)], ids=name
)
def test_columns_in_wide_pieces(shape, dtype, device, device_with):
    """In one step, in two and in many of twice as wide ones, with lanes of no column."""
    device_with(sm_count=1, l2_bytes=0)
    check(draw(shape, dtype, device), 1)


@pytest.mark.parametrize("shape", [(64, 64), (1, 20000), (1, 270001), (1, 300, 24)], ids=name)
def test_the_same_bits_every_time(shape, device):
    x = torch.randn(shape, device=device)
    for dim in range(len(shape)):
        first = cumsum(x, dim)
        for _ in range(3):
            assert torch.equal(cumsum(x, dim), first)


@pytest.mark.parametrize("vectors", [1, 2])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=name)
@pytest.mark.parametrize(("M", "N"), [(700, 2), (1700, 3), (911, 5), (8, 41), (61, 101), (1, 127)])
def test_short_rows_as_they_lie_in_memory(M, N, dtype, vectors, device):
    """Full programs and one that is not, rows that begin anywhere in a vector, and a tensor that does."""
    elements = vectors * 16 // dtype.itemsize
    configuration = Configuration("flat", elements, elements * 128, 1, 4)
    for first in (0, 1):
        x = draw((M * N + first,), dtype, device)[first:].view(M, N)
        if N == 2 and dtype is torch.float32:  # half a vector
            with pytest.raises(ValueError, match="short rows"):
                launch_with(configuration, "cumsum", x, 1)
            continue
        # What is in one row is in no other.
        x[::3, 1], x[1::3, 0] = torch.inf, torch.nan
        actual, expected = launch_with(configuration, "cumsum", x, 1), torch.cumsum(x, 1)
        torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [*FLOATING, torch.bool, torch.int16, torch.int64], ids=name)
@pytest.mark.parametrize(
    ("M", "N", "K"), [(50, 3, 6), (301, 18, 3), (77, 1 + 8, 5), (64, 2, 8), (33, 127, 2), (5, 30, 7), (99, 5, 4)]
)
def test_several_matrices_of_few_columns_as_they_lie_in_memory(M, N, K, dtype, device):
    """Full programs and one that is not, whose last vector may not be full either."""
    size = dtype.itemsize if dtype.is_floating_point else 8
    # Vectors of rows, and whole vectors of fewer rows.
    of_rows, of_fewer = min(16 // size, 4) * K, max(math.lcm(K, 16 // size), 32 // size)
    for first, elements in ((0, of_fewer), (1, of_fewer), (1, of_rows)):
        configuration = Configuration("stacked", elements, 1, 1, 4)
        x = draw((M * N * K + first,), dtype, device)[first:].view(M, N, K)
        if dtype.is_floating_point:
            # What is in one column of a matrix is in no other.
            x[::3, 1, 0], x[1::3, 0, 1], x[2::3, -1] = torch.inf, torch.nan, -torch.inf
        actual, expected = launch_with(configuration, "cumsum", x, 1), torch.cumsum(x, 1)
        torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [*FLOATING, torch.bool, torch.int64], ids=name)
@pytest.mark.parametrize("N", [255, 700])
def test_rows_of_one_vector(N, dtype, device):
    """In one step and in three."""
    K = 16 // (dtype.itemsize if dtype.is_floating_point else 8)
    x = draw((3, N, K), dtype, device)
    if dtype.is_floating_point:
        x[0, 99, 0], x[1, -1] = torch.nan, torch.inf
    actual = launch_with(Configuration("segments", K, K, 2, 4), "cumsum", x, 1)
    torch.testing.assert_close(actual, torch.cumsum(x, 1), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [*FLOATING, torch.bool, torch.int32], ids=name)
@pytest.mark.parametrize(("M", "N", "K"), [(3, 700, 6), (4, 701, 5), (2, 512, 3), (3, 129, 7)])
def test_steps_of_few_columns_as_they_lie_in_memory(M, N, K, dtype, device):
    """The first and the last may have edges, those between are full."""
    vec = min(16 // (dtype.itemsize if dtype.is_floating_point else 8), 4)
    x = draw((M, N, K), dtype, device)
    if dtype.is_floating_point:
        x[0, 99, 0], x[1, -1] = torch.nan, torch.inf
    actual = launch_with(Configuration("interleaved", vec * K, 1, 1, 1), "cumsum", x, 1)
    torch.testing.assert_close(actual, torch.cumsum(x, 1), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("shape", "dim"), [((5, 300), 1), ((300, 5), 0), ((2, 90, 40), 1), ((3, 9001), 1)])
def test_any_byte_of_a_bool_but_zero_is_one(shape, dim, device):
    x = torch.randint(0, 256, shape, dtype=torch.uint8, device=device) * (torch.rand(shape, device=device) > 0.5)
    assert torch.equal(cumsum(x.view(torch.bool), dim), torch.cumsum(x != 0, dim))


def test_several_matrices_of_few_columns_in_place(device, device_with):
    device_with(sm_count=1)
    x = draw((301, 18, 3), torch.float32, device)
    expected = torch.cumsum(x, 1)
    cumsum_out(x, 1, out=x)
    assert torch.equal(x, expected)


def test_short_rows_in_place(device):
    x = draw((911, 5), torch.bfloat16, device)
    expected = torch.cumsum(x, 1)
    configuration = Configuration("flat", 8, 1024, 1, 4)
    launch = _prepare(x.shape, x.dtype, 1, None, x.get_device(), configuration).launch
    assert launch is not None
    launch(x, x)
    assert torch.equal(x, expected)
