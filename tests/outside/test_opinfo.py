# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own samples, error inputs and gradient checks for every covered operator, with the overrides dispatched."""

from __future__ import annotations

import functools
import logging
import math
import warnings

import pytest
import torch
from accuracy.judge import assert_same_answer
from torch.utils._pytree import tree_leaves

from flag_gems_overrides import catalog

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.common_utils import set_rng_seed

pytestmark = pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")

# OpInfo's (name, variant), and what the overrides log that must answer it on this flag_gems.
COVERED: dict[tuple[str, str], set[str]] = {}
for override in catalog():
    for entry in override.opinfo:
        COVERED.setdefault(entry, set())
        if override.left_out is None:
            COVERED[entry].add(override.log)
OPS = [op for op in op_db if (op.name, op.variant_test_name) in COVERED]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


# Of linalg.vector_norm there are 500 samples, most of them alike.
MAX_SAMPLES = 20


def _samples(op, dtype, requires_grad=False):
    samples = _drawn(op, dtype, requires_grad)
    samples = samples[:: math.ceil(len(samples) / MAX_SAMPLES) | 1]
    # Samples of a batch norm share their running statistics, which training moves.
    return [sample.transform(_own) for sample in samples] if "batch_norm" in op.name else samples


def _drawn(op, dtype, requires_grad):
    """``op.sample_inputs()``, which also looks through the stack for a test of PyTorch's: 0.1 s each time."""
    drawn = iter(op.sample_inputs_func(op, DEVICE, dtype, requires_grad))
    samples = []
    while True:
        set_rng_seed()  # as that does before each sample
        sample = next(drawn, None)
        if sample is None:
            return samples
        samples.append(sample)


def _own(value):
    return value.clone() if isinstance(value, torch.Tensor) and not value.requires_grad else value


def _every(dtypes_of):
    return [
        pytest.param(op, dtype, id=f"{op.name}-{op.variant_test_name or 'plain'}-{str(dtype).removeprefix('torch.')}")
        for op in OPS
        for dtype in sorted(dtypes_of(op), key=str)
    ]


def _dtypes(op):
    return op.supported_dtypes(DEVICE)


def _differentiable_dtypes(op):
    """The real ones; complex inputs go to native, which test_samples shows."""
    return {d for d in op.supported_backward_dtypes(DEVICE) if not d.is_complex} if op.supports_autograd else set()


def _in_float64(sample):
    def widen(value):
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            return value.detach().double().requires_grad_(value.requires_grad)
        if isinstance(value, torch.dtype) and value.is_floating_point:
            return torch.float64
        return value

    return sample.transform(widen)


def _call(op, sample):
    return tree_leaves(op(sample.input, *sample.args, **sample.kwargs))


def _alike(sample):
    """The sample with floating-point inputs that are a little smaller, some of these for one of few elements."""

    def smaller(by):
        def scale(value):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                return (value.detach() * (1 - by / 64)).requires_grad_(value.requires_grad)
            return value

        return scale

    return [sample.transform(smaller(by)) for by in range(1, 9)] if sample.input.numel() <= 16 else []


def _answers(call, samples, overridden):
    """PyTorch's answer to each sample, and ours, in one ``overridden``, for that is dear.

    Without those that PyTorch's own kernels refuse, as some do on CUDA and not on the CPU; then we must too.
    """

    def answer(sample):
        try:
            return call(sample)
        except RuntimeError as error:
            return error

    native = [answer(sample) for sample in samples]
    with overridden():
        actual = [answer(sample) for sample in samples]
    for sample, theirs, ours in zip(samples, native, actual, strict=True):
        if isinstance(theirs, RuntimeError):
            assert isinstance(ours, type(theirs)), theirs
        elif isinstance(ours, RuntimeError):
            raise ours
        else:
            yield sample, theirs, ours


def _assert_same(op, ours, theirs, truth, alike=()):
    if op.name == "native_batch_norm" and not theirs.numel() and not torch.cuda.is_available():
        # In evaluation PyTorch's CPU saves no statistics, CUDA those that it used, which the overrides follow.
        return
    if theirs.is_complex():
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
    elif theirs.dtype == torch.float64:
        # There is no wider truth; both round in float64, one computed in float32 would differ by 1e-7.
        torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=1e-13, equal_nan=True)
    elif op.name == "var_mean" and theirs.dtype == torch.float32 and not torch.cuda.is_available():
        # PyTorch's CPU adds these in float64, its CUDA kernels in float32: there the bound below holds.
        torch.testing.assert_close(ours, truth.to(ours.dtype), equal_nan=True)
    else:
        if (
            op.name in ("native_layer_norm", "native_batch_norm")
            and theirs.dtype in (torch.float16, torch.bfloat16)
            and ours.dtype == torch.float32
        ):
            # Statistics: half on PyTorch's CPU, float32 on CUDA, which the overrides follow everywhere.
            theirs = theirs.float()
        assert_same_answer(ours, theirs, truth, alike)


def test_every_covered_operator_is_known_to_this_pytorch():
    assert {(op.name, op.variant_test_name) for op in OPS} == set(COVERED)


# What PyTorch's own samples warn of.
@pytest.mark.filterwarnings("ignore:Casting complex values to real", "ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize(("op", "dtype"), _every(_dtypes))
def test_samples(op, dtype, overridden, caplog):
    caplog.set_level(logging.DEBUG, logger="flag_gems.ops")
    for sample, native, actual in _answers(functools.partial(_call, op), _samples(op, dtype), overridden):
        reference = _call(op, _in_float64(sample))
        alike = functools.cache(
            lambda sample=sample: [(_call(op, other), _call(op, _in_float64(other))) for other in _alike(sample)]
        )
        for i, (ours, theirs, truth) in enumerate(zip(actual, native, reference, strict=True)):
            # alike() is called when somebody asks for the first one.
            more = ((answers[at], truths[at]) for at in (i,) for answers, truths in alike())
            _assert_same(op, ours, theirs, truth, more)
    if not dtype.is_complex:
        texts = {record.getMessage() for record in caplog.records}
        assert texts >= COVERED[op.name, op.variant_test_name]


@pytest.mark.parametrize(("op", "dtype"), _every(_differentiable_dtypes))
def test_gradients(op, dtype, overridden):
    def gradients(sample):
        # Not ones: the gradient of a softmax or a normalization is then zero, and all that is left is rounding.
        torch.manual_seed(1)
        inputs = [t for t in tree_leaves((sample.input, sample.args, sample.kwargs)) if isinstance(t, torch.Tensor)]
        inputs = [t for t in inputs if t.requires_grad]
        outputs = [t for t in _call(op, sample) if t.requires_grad]
        return torch.autograd.grad(
            outputs, inputs, [torch.randn(t.shape, dtype=torch.float64).to(t) for t in outputs], allow_unused=True
        )

    for sample, native, actual in _answers(gradients, _samples(op, dtype, requires_grad=True), overridden):
        reference = gradients(_in_float64(sample))
        alike = functools.cache(
            lambda sample=sample: [(gradients(other), gradients(_in_float64(other))) for other in _alike(sample)]
        )
        for i, (ours, theirs, truth) in enumerate(zip(actual, native, reference, strict=True)):
            assert (ours is None) == (theirs is None)
            if theirs is not None:
                # alike() is called when somebody asks for the first one.
                more = ((answers[at], truths[at]) for at in (i,) for answers, truths in alike())
                _assert_same(op, ours, theirs, truth, more)


@pytest.mark.parametrize("op", [op for op in OPS if op.error_inputs_func], ids=lambda op: op.name)
def test_error_inputs(op, overridden):
    with overridden():
        for error in op.error_inputs(DEVICE):
            sample = error.sample_input
            with pytest.raises(error.error_type, match=error.error_regex):
                op(sample.input, *sample.args, **sample.kwargs)


@pytest.mark.parametrize(
    "op", [op for op in OPS if op.supports_autograd], ids=lambda op: f"{op.name}-{op.variant_test_name}"
)
def test_gradcheck(op, overridden):
    samples = [sample for sample in _samples(op, torch.float64, requires_grad=True) if sample.input.numel() <= 30]
    with overridden():
        for sample in samples:
            assert torch.autograd.gradcheck(
                lambda x, sample=sample: op(x, *sample.args, **sample.kwargs), (sample.input,)
            )
