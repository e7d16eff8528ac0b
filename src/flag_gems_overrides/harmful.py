# SPDX-License-Identifier: Apache-2.0
"""Operators of flag_gems that are known to answer wrongly or to crash, by version and device.

``enable()`` leaves them out unless an override stands in their place; ``doctor`` and docs/harmful.md list them. Imports
neither torch nor flag_gems.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import Version

ISSUES = "https://github.com/flagos-ai/FlagGems/issues/"
HOPPER = ((9, 0), (9, 9))


@dataclass(frozen=True)
class Harmful:
    """One operator.

    Attributes:
        name: ``__name__`` of the function that flag_gems registers.
        reason: what goes wrong.
        reproduction: a Python expression of ``torch`` and ``F`` (torch.nn.functional) whose value differs from
            PyTorch's, or which raises, while flag_gems has the operator registered.
        versions: of flag_gems, as package requirements write them.
        capabilities: lowest and highest compute capability of the devices concerned; None for all devices.
        issue: upstream's number, None if none is known.
    """

    name: str
    reason: str
    reproduction: str
    versions: str = ">=5.0.2"
    capabilities: tuple[tuple[int, int], tuple[int, int]] | None = None
    issue: int | None = None

    def holds(self, version: str, capability: tuple[int, int] | None) -> bool:
        """Whether it concerns this flag_gems on this device; ``capability`` is None where that has none."""
        release = re.match(r"\d+(\.\d+)*", version)
        if release is None or Version(release[0]) not in SpecifierSet(self.versions):
            return False
        if self.capabilities is None:
            return True
        lowest, highest = self.capabilities
        return capability is not None and lowest <= capability <= highest


HARMFUL = (
    Harmful(
        "mm",
        "asserts 16-byte strides: rows that are no multiple of 16 bytes apart stop with an AssertionError",
        "torch.mm(torch.randn(64, 65, device='cuda').half()[:, :64], torch.randn(64, 64, device='cuda').half())",
        capabilities=HOPPER,
        issue=2489,
    ),
    Harmful(
        "mul",
        "takes tensors of as many dimensions for contiguous ones of one shape, without broadcasting: an illegal memory "
        "access in the training step of a Llama",
        "torch.ones(1, 4, device='cuda') * torch.ones(3, 1, device='cuda')",
        versions="==5.0.2",
        capabilities=HOPPER,
    ),
    Harmful(
        "fill_scalar_",
        "takes views for contiguous: x[:, 0] = 0 zeroes the first row; a T5's decoder gets other tokens",
        "[x := torch.ones(3, 4, device='cuda'), x[:, 0].fill_(0)]",
        versions=">=5.0.2,<5.3",
        capabilities=HOPPER,
        issue=2347,
    ),
    Harmful(
        "fill_tensor_",
        "takes views for contiguous",
        "[x := torch.ones(3, 4, device='cuda'), x[:, 0].fill_(torch.zeros((), device='cuda'))]",
        versions=">=5.0.2,<5.3",
        capabilities=HOPPER,
        issue=2347,
    ),
    Harmful(
        "fill_scalar_out",
        "takes views for contiguous",
        "[x := torch.ones(3, 4, device='cuda'), torch.ops.aten.fill.Scalar_out(x[:, 0], 0, out=x[:, 0])]",
        versions=">=5.0.2,<5.3",
        capabilities=HOPPER,
        issue=2347,
    ),
    Harmful(
        "fill_tensor_out",
        "takes views for contiguous",
        "[x := torch.ones(3, 4, device='cuda'), torch.ops.aten.fill.Tensor_out(x[:, 0], torch.zeros((), device='cuda')"
        ", out=x[:, 0])]",
        versions=">=5.0.2,<5.3",
        capabilities=HOPPER,
        issue=2347,
    ),
    Harmful(
        "sqrt",
        "strided tensors are read as if they were contiguous; float64 is computed in float32",
        "torch.sqrt(torch.arange(8.0, device='cuda')[::2])",
        capabilities=HOPPER,
    ),
    Harmful(
        "sqrt_",
        "strided tensors are read as if they were contiguous; float64 is computed in float32",
        "torch.arange(8.0, device='cuda')[::2].sqrt_()",
        capabilities=HOPPER,
    ),
    Harmful(
        "_safe_softmax",
        "rows of more than 4096 elements are cut off: attention with a mask whose gradient is wanted",
        "torch.ops.aten._safe_softmax(torch.zeros(1, 5000), 1)",
    ),
    Harmful(
        "sum",
        "integers are not promoted to int64 and wrap",
        "torch.sum(torch.full((2,), 127, dtype=torch.int8))",
        issue=5501,
    ),
    Harmful(
        "sum_dim",
        "integers are not promoted to int64 and wrap; bool sums are wrong in loops",
        "torch.sum(torch.full((2, 2), 127, dtype=torch.int8), 1)",
    ),
    Harmful(
        "mean",
        "partial sums are kept in half precision: a mean of large halves is inf",
        "torch.mean(torch.full((1 << 18,), 1000.0, dtype=torch.float16))",
        issue=6333,
    ),
    Harmful("rms_norm", "raises without a weight", "F.rms_norm(torch.ones(2, 8), (8,))", issue=5009),
    Harmful(
        "nll_loss_backward",
        "a row that is ignored stores a 0 at its start - 100: outside of the tensor, or into another row",
        "torch.ops.aten.nll_loss_backward(torch.tensor(1.0), torch.zeros(2, 110), torch.tensor([10, -100]), None, 2, "
        "-100, torch.tensor(1.0))",
        issue=5026,
    ),
    Harmful(
        "group_norm",
        "wrong where the channels of a group are no power of two, and stores into the next group",
        "torch.native_group_norm(torch.randn(2, 12, 16), torch.ones(12), torch.zeros(12), 2, 12, 16, 4, 1e-5)[0]",
        issue=4984,
    ),
    Harmful(
        "any",
        "strided tensors are read as if they were contiguous",
        "torch.any(torch.tensor([0, 1, 0, 1])[::2])",
        issue=6074,
    ),
    Harmful(
        "all",
        "strided tensors are read as if they were contiguous",
        "torch.all(torch.tensor([1, 0, 1, 0])[::2])",
        issue=6074,
    ),
    Harmful(
        "vector_norm",
        "negative orders give 0; NaN is dropped for an infinite order",
        "torch.linalg.vector_norm(torch.tensor([1.0, float('nan'), 2.0]), float('inf'))",
        issue=4600,
    ),
    Harmful(
        "var",
        "strided tensors are read as if they were contiguous; far from 0 the variance is 0",
        "torch.var(torch.arange(8.0)[::2], unbiased=False)",
        issue=4099,
    ),
    Harmful(
        "var_dim",
        "raises where unbiased is said; PyTorch composes it above autograd, so that here gradients of torch.func are 0",
        "torch.var(torch.ones(2, 3), 1, False)",
    ),
    Harmful("std", "the deviation of data with a NaN is 0", "torch.std(torch.tensor([1.0, float('nan'), 2.0]))"),
    Harmful(
        "cumsum",
        "int32 along a dimension that is not the last wraps inside of an int64 result",
        "torch.cumsum(torch.full((4, 2), 2**30, dtype=torch.int32), 0)",
        issue=4543,
    ),
    Harmful(
        "batch_norm",
        "training without running statistics overwrites the input",
        "[x := torch.randn(4, 3, 8), torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)[0], x][1:]",
        issue=6332,
    ),
    Harmful(
        "cudnn_batch_norm_backward",
        "takes the saved 1 / standard deviation for the variance: in training through cuDNN all gradients are wrong",
        "torch.autograd.grad(F.batch_norm(x := torch.randn(4, 3, 8, 8, device='cuda', requires_grad=True), None, None, "
        "torch.ones(3, device='cuda'), torch.zeros(3, device='cuda'), True).pow(3).sum(), x)",
        versions=">=5.3.2",
        capabilities=((7, 5), (12, 1)),
    ),
    Harmful("aminmax", "NaN is dropped", "torch.aminmax(torch.tensor([1.0, float('nan'), 2.0]))", issue=3816),
    Harmful("count_nonzero", "a negative dimension is refused", "torch.count_nonzero(torch.ones(2, 3), dim=-1)"),
    Harmful(
        "embedding_backward",
        "strided indices and gradients are read as if they were contiguous: BERT's token types end with CUDA error 717",
        "torch.autograd.grad(F.embedding(torch.tensor([1, 0, 2, 0])[::2], w := torch.ones(4, 3, requires_grad=True))"
        ".sum(), w)",
    ),
    Harmful(
        "cat",
        "empty tensors are left out before the dtypes are promoted: a Llama's cache is bfloat16 instead of float32",
        "torch.cat([torch.ones(0), torch.ones(2, dtype=torch.bfloat16)])",
    ),
    Harmful(
        "slice_backward",
        "strided gradients are read as if they were contiguous: wrong gradients of Llama's and T5's attention",
        "torch.ops.aten.slice_backward(torch.arange(12.0).view(3, 4).t(), [4, 6], 1, 0, 3, 1)",
    ),
    Harmful(
        "conv2d",
        "stores gradients of channels_last weights as if they were contiguous; refuses unbatched inputs and padding "
        "'same'; the gradient of a stride copies position by position: 30 steps of a ResNet took more than 325 s",
        "torch.autograd.grad(F.conv2d(torch.randn(1, 2, 4, 4), w := torch.randn(3, 2, 2, 2).to(memory_format="
        "torch.channels_last).requires_grad_()).square().sum(), w)",
    ),
    Harmful(
        "layer_norm_backward",
        "takes the number of rows from the first dimension: wrong gradients of 3-D inputs, stores out of bounds",
        "torch.autograd.grad(F.layer_norm(x := torch.randn(3, 4, 8, requires_grad=True), (8,)).square().sum(), x)",
        issue=5392,
    ),
)


def known(version: str, capability: tuple[int, int] | None, overridden: Collection[str] = ()) -> tuple[Harmful, ...]:
    """Those of this flag_gems on this device, without the ones that an override replaces."""
    return tuple(each for each in HARMFUL if each.name not in overridden and each.holds(version, capability))


def table() -> str:
    """The table of docs/harmful.md, and the reproductions, which are too long for a cell."""
    rows = ["| operator | flag_gems | devices | what goes wrong | upstream |", "|---|---|---|---|---|"]
    for each in HARMFUL:
        devices = "all"
        if each.capabilities is not None:
            devices = " to ".join(f"sm_{major}{minor}" for major, minor in each.capabilities)
        issue = f"[#{each.issue}]({ISSUES}{each.issue})" if each.issue else "none known"
        rows.append(f"| `{each.name}` | {each.versions} | {devices} | {each.reason} | {issue} |")
    reproductions = [f"# {each.name}\n{each.reproduction}" for each in HARMFUL]
    return "\n".join([*rows, "", "```", *reproductions, "```"]) + "\n"
