# SPDX-License-Identifier: Apache-2.0
"""The operators. PyTorch's OpInfo samples found most, contiguous and strided, with gradients and in place; training of
models found the others.
"""

from __future__ import annotations

from flag_gems_overrides.harmful.row import Harmful

HOPPER = ((9, 0), (9, 9))
BLACKWELL = ((10, 0), (12, 9))

STRIDED = "strided tensors are read as if they were contiguous"
VIEWS = "views are written as if they were contiguous"
REFUSES_VIEWS = "refuses strided tensors"
CALLS_ITSELF = "calls itself for strided tensors until Python's stack ends"
REFUSES_SCALARS = "refuses tensors without dimensions"
NO_BROADCAST = "refuses tensors that are to be broadcast"


def _without_gradient(name: str, call: str, versions: str = ">=5.0.2") -> Harmful:
    """What PyTorch composes above autograd and flag_gems registers below it."""
    return Harmful(name, "its result has no gradient", f"torch.autograd.grad({call}.sum(), x)", versions)


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
        VIEWS,
        "[x := torch.ones(3, 4, device='cuda'), x[:, 0].fill_(torch.zeros((), device='cuda'))]",
        versions=">=5.0.2,<5.3",
        capabilities=HOPPER,
        issue=2347,
    ),
    Harmful(
        "fill_scalar_out",
        VIEWS,
        "[x := torch.ones(3, 4, device='cuda'), torch.ops.aten.fill.Scalar_out(x[:, 0], 0, out=x[:, 0])]",
        versions=">=5.0.2,<5.3",
        capabilities=HOPPER,
        issue=2347,
    ),
    Harmful(
        "fill_tensor_out",
        VIEWS,
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
        STRIDED,
        "torch.any(torch.tensor([0, 1, 0, 1])[::2])",
        issue=6074,
    ),
    Harmful(
        "all",
        STRIDED,
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
    _without_gradient("pad", "F.pad(x := torch.ones(2, 3, requires_grad=True), (1, 1))"),
    _without_gradient("true_divide", "torch.true_divide(x := torch.ones(2, 3, requires_grad=True), 2)"),
    _without_gradient("div_mode", "torch.divide(x := torch.ones(2, 3, requires_grad=True), 2, rounding_mode=None)"),
    _without_gradient("square", "torch.square(x := torch.ones(2, 3, requires_grad=True))"),
    _without_gradient("square_", "torch.square_((x := torch.ones(2, 3, requires_grad=True)) * 1)"),
    _without_gradient("true_divide_", "((x := torch.ones(2, 3, requires_grad=True)) * 1).true_divide_(2)"),
    _without_gradient("relu6", "F.relu6(x := torch.ones(2, 3, requires_grad=True))"),
    _without_gradient("selu", "F.selu(x := torch.ones(2, 3, requires_grad=True))"),
    _without_gradient("selu_", "torch.selu_((x := torch.ones(2, 3, requires_grad=True)) * 1)"),
    _without_gradient("prelu", "F.prelu(x := torch.ones(2, 3, requires_grad=True), torch.ones(1))"),
    _without_gradient("log_sigmoid", "F.logsigmoid(x := torch.ones(2, 3, requires_grad=True))"),
    _without_gradient("arcsinh", "torch.arcsinh(x := torch.ones(2, 3, requires_grad=True))"),
    _without_gradient("absolute", "torch.absolute(x := torch.ones(2, 3, requires_grad=True))"),
    _without_gradient("clip", "torch.clip(x := torch.ones(2, 3, requires_grad=True), 0, 3)"),
    _without_gradient("kron", "torch.kron(x := torch.ones(2, 3, requires_grad=True), torch.ones(2, 2))"),
    _without_gradient("tile", "torch.tile(x := torch.ones(2, 3, requires_grad=True), (2, 2))"),
    _without_gradient("vstack", "torch.vstack([x := torch.ones(2, 3, requires_grad=True), torch.ones(1, 3)])"),
    _without_gradient("hstack", "torch.hstack([x := torch.ones(2, 3, requires_grad=True), torch.ones(2, 1)])"),
    _without_gradient(
        "repeat_interleave_self_int", "torch.repeat_interleave(x := torch.ones(2, 3, requires_grad=True), 2)"
    ),
    _without_gradient("diag", "torch.diag(x := torch.ones(3, requires_grad=True))"),
    _without_gradient(
        "conv3d", "F.conv3d(x := torch.ones(1, 1, 2, 2, 2, requires_grad=True), torch.ones(1, 1, 1, 1, 1))"
    ),
    _without_gradient(
        "margin_ranking_loss",
        "F.margin_ranking_loss(x := torch.ones(2, 3, requires_grad=True), torch.zeros(2, 3), -torch.ones(2, 3))",
        "<5.3.4",
    ),
    Harmful("zero_", VIEWS, "torch.ones(4)[::2].zero_()"),
    Harmful(
        "fill_scalar_",
        "raises an IndexError for strided tensors of two dimensions",
        "torch.ones(2, 4)[:, ::2].fill_(0)",
        capabilities=BLACKWELL,
    ),
    Harmful(
        "fill_scalar",
        "raises an IndexError for strided tensors of two dimensions",
        "torch.fill(torch.ones(2, 4)[:, ::2], 0)",
        capabilities=BLACKWELL,
    ),
    Harmful(
        "fill_scalar_out",
        "raises an IndexError for strided tensors of two dimensions",
        "torch.ops.aten.fill.Scalar_out(x := torch.ones(2, 4)[:, ::2], 0, out=x)",
        capabilities=BLACKWELL,
    ),
    Harmful("dot", STRIDED, "torch.dot(torch.arange(6.0)[::2], torch.arange(6.0)[::2])"),
    Harmful("hardsigmoid", STRIDED, "F.hardsigmoid(torch.arange(-3.0, 3.0)[::2])"),
    Harmful(
        "topk",
        "strided tensors are read as if they were contiguous; only the last dimension",
        "torch.topk(torch.arange(6.0).view(3, 2).t(), 2)",
    ),
    Harmful("select_scatter", STRIDED, "torch.select_scatter(torch.arange(6.0).view(3, 2).t(), torch.zeros(3), 0, 0)"),
    Harmful(
        "slice_scatter", STRIDED, "torch.slice_scatter(torch.arange(6.0).view(3, 2).t(), torch.zeros(1, 3), 0, 0, 1)"
    ),
    Harmful("upsample_nearest1d", STRIDED, "F.interpolate(torch.arange(8.0).view(1, 4, 2).transpose(1, 2), 8)"),
    Harmful(
        "_upsample_nearest_exact1d",
        "takes the neighbours of mode nearest",
        "F.interpolate(torch.arange(4.0).view(1, 1, 4), 7, mode='nearest-exact')",
    ),
    Harmful(
        "index_add",
        STRIDED,
        "torch.index_add(torch.zeros(3, 2), 0, torch.tensor([0, 2]), torch.arange(4.0).view(2, 2).t())",
    ),
    Harmful(
        "index_add_",
        "strided tensors are read and written as if they were contiguous",
        "torch.zeros(2, 3).t().index_add_(0, torch.tensor([0, 2]), torch.arange(4.0).view(2, 2))",
    ),
    Harmful(
        "index_select",
        "strided indices are read as if they were contiguous",
        "torch.index_select(torch.arange(6.0), 0, torch.tensor([0, 5, 1, 5])[::2])",
    ),
    Harmful(
        "scatter_add_",
        "along a dimension that is not the last one the sums go to a copy: gradients of cummax and gather are 0",
        "torch.zeros(2, 2).scatter_add_(0, torch.zeros(2, 2, dtype=torch.int64), torch.ones(2, 2))",
    ),
    Harmful(
        "masked_scatter",
        "does not broadcast",
        "torch.masked_scatter(torch.zeros(3), torch.ones(2, 3, dtype=torch.bool), torch.arange(6.0))",
    ),
    Harmful("log", "logarithms of integers are integers", "torch.log(torch.arange(3))"),
    Harmful("atan2", "angles of integers are integers", "torch.atan2(torch.arange(3), torch.arange(3))"),
    Harmful(
        "pow_tensor_tensor", "integers are computed in float32", "torch.pow(torch.tensor([9]), torch.tensor([9])) % 10"
    ),
    Harmful("pow_tensor_tensor_", "integers are computed in float32", "torch.tensor([9]).pow_(torch.tensor([9])) % 10"),
    Harmful("pow_tensor_scalar", "integers are computed in float32", "torch.pow(torch.tensor([9]), 9) % 10"),
    Harmful("pow_tensor_scalar_", "integers are computed in float32", "torch.tensor([9]).pow_(9) % 10"),
    Harmful("pow_scalar", "integers are computed in float32", "torch.pow(9, torch.tensor([9])) % 10"),
    Harmful(
        "addr",
        "multiplies the input by beta=0, so that its NaN stay",
        "torch.addr(torch.full((2, 3), float('nan')), torch.ones(2), torch.ones(3), beta=0)",
    ),
    Harmful(
        "avg_pool2d",
        "windows that ceil_mode adds are divided by too large a count",
        "F.avg_pool1d(torch.arange(9.0).view(1, 1, 9), 6, 3, 2, True)",
    ),
    Harmful(
        "avg_pool2d_backward",
        "windows that ceil_mode adds are divided by too large a count",
        "torch.autograd.grad(F.avg_pool1d(x := torch.ones(1, 1, 9, requires_grad=True), 6, 3, 2, True).sum(), x)",
    ),
    Harmful("round", REFUSES_VIEWS, "torch.round(torch.arange(4.0)[::2])"),
    Harmful("round_", REFUSES_VIEWS, "torch.arange(4.0)[::2].round_()"),
    Harmful("floor_", REFUSES_VIEWS, "torch.arange(4.0)[::2].floor_()"),
    Harmful("i0_", REFUSES_VIEWS, "torch.arange(4.0)[::2].i0_()"),
    Harmful("arctanh_", REFUSES_VIEWS, "torch.full((4,), 0.5)[::2].arctanh_()"),
    Harmful(
        "masked_scatter_",
        REFUSES_VIEWS,
        "torch.zeros(4)[::2].masked_scatter_(torch.ones(2, dtype=torch.bool), torch.ones(2))",
    ),
    Harmful("sinh_", REFUSES_VIEWS, "torch.arange(4.0)[::2].sinh_()", versions="<5.3.4"),
    Harmful("log1p_", CALLS_ITSELF, "torch.arange(4.0)[::2].log1p_()"),
    Harmful("sgn_", CALLS_ITSELF, "torch.arange(4.0)[::2].sgn_()"),
    Harmful("addcdiv", NO_BROADCAST, "torch.addcdiv(torch.ones(1), torch.ones(2, 3), torch.ones(2, 3))"),
    Harmful("masked_fill", NO_BROADCAST, "torch.masked_fill(torch.zeros(3), torch.ones(2, 3, dtype=torch.bool), 1)"),
    Harmful("polar", NO_BROADCAST, "torch.view_as_real(torch.polar(torch.ones(2, 1), torch.ones(2)))"),
    Harmful("cummax", REFUSES_SCALARS, "torch.cummax(torch.tensor(1.0), 0)"),
    Harmful("cummin", REFUSES_SCALARS, "torch.cummin(torch.tensor(1.0), 0)"),
    Harmful("scatter_", REFUSES_SCALARS, "torch.tensor(0.0).scatter_(0, torch.tensor(0), torch.tensor(1.0))"),
    Harmful(
        "gather",
        "refuses tensors without dimensions, and empty indices of other dimensions",
        "torch.gather(torch.tensor(1.0), 0, torch.tensor([0]))",
    ),
    Harmful("addmm", REFUSES_SCALARS, "torch.addmm(torch.tensor(1.0), torch.ones(2, 3), torch.ones(3, 2))"),
    Harmful("bmm", "refuses matrices without rows", "torch.bmm(torch.ones(2, 0, 3), torch.ones(2, 3, 0))"),
    Harmful("linspace", "refuses 0 steps", "torch.linspace(0, 1, 0)"),
    Harmful("nan_to_num", "refuses integers", "torch.nan_to_num(torch.arange(3))"),
    Harmful(
        "select_backward",
        "refuses negative indices",
        "torch.autograd.grad(torch.select(x := torch.ones(2, 3, requires_grad=True), 0, -1).sum(), x)",
        versions="<5.3.4",
    ),
    Harmful("conv1d", "refuses unbatched inputs and padding 'same'", "F.conv1d(torch.ones(1, 4), torch.ones(1, 1, 2))"),
)
