# SPDX-License-Identifier: Apache-2.0
"""Whether an answer is as close to the truth as PyTorch's own."""

from __future__ import annotations

from collections.abc import Iterable

import torch

# PyTorch's own error is one sample of rounding noise; another order of the same additions is another sample.
NOISE = 1.5
# The last rounding to the result's dtype is half an ulp for each side; the rest is for results native got exactly.
ULPS = 3


def assert_same_answer(
    actual: torch.Tensor,
    native: torch.Tensor,
    reference: torch.Tensor,
    alike: Iterable[tuple[torch.Tensor, torch.Tensor]] = (),
) -> None:
    """``actual`` has native's dtype, shape, NaNs and infinities, and is about as accurate.

    Args:
        actual: the override's answer.
        native: PyTorch's answer to the same input in the same dtype, on the same device.
        reference: PyTorch's answer to the input in float64.
        alike: (native, reference) of inputs like this one. Of few numbers that nearly cancel, PyTorch's error is now
            and then almost none; what it is as a rule, more of them tell. They are drawn only where it matters.

    The largest error against ``reference`` may be ``NOISE`` times native's largest plus ``ULPS`` units in the last
    place of the largest finite reference value. Integers and booleans must be equal.
    """
    assert actual.dtype == native.dtype, f"dtype {actual.dtype}, native has {native.dtype}"
    assert actual.shape == native.shape, f"shape {tuple(actual.shape)}, native has {tuple(native.shape)}"
    if not native.dtype.is_floating_point:
        assert torch.equal(actual, native), _first_difference(actual, native)
        return
    for kind in (torch.isnan, torch.isposinf, torch.isneginf):
        assert torch.equal(kind(actual), kind(native)), (
            f"{kind.__name__}: {_first_difference(kind(actual), kind(native))}"
        )
    finite = torch.isfinite(native) & torch.isfinite(reference)
    if not finite.any():
        return
    error = _largest_error(actual, reference)
    native_error = _largest_error(native, reference)
    ulp = torch.finfo(native.dtype).eps * reference[finite].abs().max().item()
    if error > NOISE * native_error + ULPS * ulp:
        native_error = max([native_error, *(_largest_error(*pair) for pair in alike)])
    allowed = NOISE * native_error + ULPS * ulp
    assert error <= allowed, f"error {error:.3g} above {allowed:.3g} (native's own {native_error:.3g}, ulp {ulp:.3g})"


def _largest_error(answer: torch.Tensor, reference: torch.Tensor) -> float:
    """Of the finite numbers: an infinity of PyTorch's must not allow everything."""
    finite = torch.isfinite(answer) & torch.isfinite(reference)
    return (answer[finite].double() - reference[finite].double()).abs().max().item() if finite.any() else 0.0


def _first_difference(actual: torch.Tensor, native: torch.Tensor) -> str:
    at = (actual != native).nonzero()[0].tolist()
    return f"first difference at {at}: {actual[tuple(at)].item()}, native has {native[tuple(at)].item()}"
