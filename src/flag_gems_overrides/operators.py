# SPDX-License-Identifier: Apache-2.0
"""The table of operators: one row for each upstream function that has an override. Everything that lists operators
reads it.

It imports neither torch nor triton nor flag_gems. What a row cannot say without them it names: its implementation is
the function of its name in ``ops/<module>.py``, its predicate is a function of ``registration/supports.py``, the
inputs of a case are built by a function of ``perf/op_inputs.py``, and its defects are rows of
``upstreaming/defects/<module>.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module

FLOATING = ("float16", "float32", "bfloat16", "float64")
INTEGER = ("int8", "uint8", "int16", "int32", "int64")
REAL = (*FLOATING, *INTEGER, "bool")


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One row of the table, and of what :func:`flag_gems_overrides.catalog` returns.

    Attributes:
        name: ``__name__`` of the upstream function; what ``include`` and ``exclude`` mean here, and in flag_gems but
            for ``layer_norm``, which it registers as ``native_layer_norm`` from 5.3.4 on.
        module: upstream's file, ``flag_gems.<package>.<module>``, and ours, ``ops/<module>.py``.
        package: upstream's: ``"ops"``, or ``"fused"``, whose functions people call by their names in flag_gems.
        overload: the aten overload that upstream registers the function for, as in ``"max.dim"``; None for a function
            outside of aten, for which PyTorch's stands that is the first of ``torch_calls``.
        composition: where PyTorch has no function for that, one of its operators, as Python source.
        family: whose kernels it uses, a folder of ``ops/families``.
        since: the first flag_gems release that has the function; None if all supported releases have it.

        supports: the predicate over the inputs, a function of ``registration/supports.py``.
        dtypes: of the input of a case.

        ndim: how many dimensions the shape of a case has; None for any.
        arguments: what a case gives beside a shape: ``"dim"``, ``"normalized"`` (how many dimensions), ``"groups"``,
            ``"training"`` (0 for evaluation), ``"gradient"`` (1 for the result with its gradient by the input).
        required: those of :attr:`arguments` that a case must give.
        inputs: the function of ``perf/op_inputs.py`` that builds the arguments of a case.
        unread: positions of tensors among these that need not be read.
        mutated: positions of those that are written to.
        picked: positions of those of which one element is read for each one of the second tensor.
        compared: the function of ``perf/op_inputs.py`` that says what of a result is compared; None for all of it.
        flops: operations for each element of the input.

        torch_calls: PyTorch's functions that reach it, as reproductions of defects write them; flag_gems' own where
            PyTorch has none.
        benchmark_arguments: the arguments of ``overload`` in upstream's benchmarks, as Python source of ``x``,
            ``number`` (the case's ``dim`` or ``normalized``), ``shape`` and ``dtype``.
        gradient_of: the operator whose gradient it is.
        opinfo: PyTorch's OpInfo entries that exercise it, as (name, variant).
        log: what it logs at level DEBUG, upstream's own text.

        defects: what upstream answers wrongly: ids of rows in ``upstreaming/defects/<module>.py``.
        resolves: upstream's issues that the override resolves.
        overlaps: upstream's open pull requests for the same function that no defect names.

        installed: whether it is in force now.
        left_out: why the loaded flag_gems cannot have it; None if it can, or if flag_gems is not loaded yet.
    """

    name: str
    module: str
    package: str = "ops"
    overload: str | None
    composition: str | None = None
    family: str
    since: str | None = None

    supports: str
    dtypes: tuple[str, ...]

    ndim: int | None = None
    arguments: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    inputs: str
    unread: tuple[int, ...] = ()
    mutated: tuple[int, ...] = ()
    picked: tuple[int, ...] = ()
    compared: str | None = None
    flops: int = 1

    torch_calls: tuple[str, ...]
    benchmark_arguments: str
    gradient_of: str | None = None
    opinfo: tuple[tuple[str, str], ...] = ()
    log: str

    defects: tuple[str, ...]
    resolves: tuple[str, ...] = ()
    overlaps: tuple[str, ...] = ()

    installed: bool = False
    left_out: str | None = None

    @property
    def implementation(self) -> str:
        """Where the function that replaces upstream's lives, as ``"package.module:function"``."""
        return f"flag_gems_overrides.ops.{self.module}:{self.name}"

    @property
    def upstream_module(self) -> str:
        """Where upstream's function lives."""
        return f"flag_gems.{self.package}.{self.module}"

    @property
    def native(self) -> str:
        """PyTorch's function with the same arguments, as Python source."""
        if self.overload is None:
            return self.composition or self.torch_calls[0]
        packet, _, variant = self.overload.partition(".")
        return f"torch.ops.aten.{packet}.{variant or 'default'}"

    @property
    def fixes(self) -> tuple[str, ...]:
        """What upstream answers wrongly and the override does not: the titles of its defects. Imports torch."""
        known = import_module("flag_gems_overrides.upstreaming.defects").DEFECTS
        return tuple(known[id].title for id in self.defects)

    def load(self) -> tuple[Callable, Callable[..., bool]]:
        """The implementation, and the predicate over its inputs. Imports torch, triton and flag_gems."""
        module, name = self.implementation.split(":")
        supports = import_module("flag_gems_overrides.registration.supports")
        return getattr(import_module(module), name), getattr(supports, self.supports)


_ROWS = (
    Operator(
        name="layer_norm",
        module="layernorm",
        overload="native_layer_norm",
        family="norm",
        supports="layer_norm",
        dtypes=FLOATING,
        arguments=("normalized",),
        inputs="layer_norm",
        flops=8,  # mean 1, variance 3, normalize 2, affine 2
        torch_calls=("torch.native_layer_norm",),
        benchmark_arguments="x, shape[-number:], *affine(x, number), 1e-5",
        opinfo=(("nn.functional.layer_norm", ""), ("native_layer_norm", "")),
        log="GEMS LAYERNORM FORWARD",
        defects=("L1", "L2", "L3", "L4", "L5"),
        resolves=("#5392", "#5490"),
    ),
    Operator(
        name="skip_layer_norm",
        module="skip_layernorm",
        package="fused",
        overload=None,
        composition=(
            "lambda x, residual, normalized_shape, weight, bias, eps=1e-5: "
            "torch.layer_norm(x + residual, normalized_shape, weight, bias, eps)"
        ),
        family="norm",
        supports="skip_layer_norm",
        dtypes=FLOATING,
        arguments=("normalized",),
        inputs="skip_layer_norm",
        flops=9,  # sum 1, mean 1, variance 3, normalize 2, affine 2
        torch_calls=("flag_gems.skip_layer_norm",),
        # A sum that is exact in any dtype: that of the expected answer is float64's.
        benchmark_arguments="x, torch.where(x > 0, x, -2 * x), shape[-number:], *affine(x, number), 1e-5",
        log="GEMS SKIP LAYERNORM FORWARD",
        defects=("SL1", "SL2", "SL3", "SL4", "SL5", "SL6"),
    ),
    Operator(
        name="layer_norm_backward",
        module="layernorm",
        overload="native_layer_norm_backward",
        family="norm",
        supports="layer_norm_backward",
        dtypes=FLOATING,
        arguments=("normalized",),
        inputs="layer_norm_backward",
        unread=(6,),
        flops=13,  # xhat 2, w * dy 1, two row sums 3, dx 4, dw and db 3
        torch_calls=("aten.native_layer_norm_backward",),
        benchmark_arguments=(
            "torch.randn_like(x), x, shape[-number:], *statistics(x, number), *affine(x, number), [True, True, True]"
        ),
        gradient_of="layer_norm",
        log="GEMS LAYERNORM BACKWARD",
        defects=("L1", "L4", "L6", "L7"),
        resolves=("#5392", "#5490"),
    ),
    Operator(
        name="batch_norm",
        module="batch_norm",
        overload="native_batch_norm",
        family="batch_norm",
        supports="batch_norm",
        dtypes=FLOATING,
        arguments=("training",),
        inputs="batch_norm",
        compared="without_statistics_of_evaluation",
        flops=8,  # mean 1, variance 3, normalize 2, affine 2
        torch_calls=("torch.native_batch_norm",),
        benchmark_arguments="x, *vectors(x, 2), *running_statistics(x), True, 0.1, 1e-5",
        opinfo=(("nn.functional.batch_norm", ""), ("native_batch_norm", "")),
        log="GEMS BATCHNORM FORWARD",
        defects=("B1", "B2", "B5", "B6", "B7", "B8"),
        resolves=("#6332",),
        overlaps=("#6435",),
    ),
    Operator(
        name="batch_norm_backward",
        module="batch_norm",
        overload="native_batch_norm_backward",
        family="batch_norm",
        supports="batch_norm_backward",
        dtypes=FLOATING,
        arguments=("training",),
        inputs="batch_norm_backward",
        flops=11,  # x - mean 1, two sums 3, dx 7
        torch_calls=("aten.native_batch_norm_backward",),
        benchmark_arguments=(
            "torch.randn_like(x), x, *vectors(x, 1), *running_statistics(x), "
            "*torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)[1:], True, 1e-5, [True, True, True]"
        ),
        gradient_of="batch_norm",
        log="GEMS BATCHNORM BACKWARD",
        defects=("B3", "B4", "B5"),
    ),
    Operator(
        name="cudnn_batch_norm_backward",
        module="cudnn_batch_norm_backward",
        overload="cudnn_batch_norm_backward",
        family="batch_norm",
        since="5.3.2",
        supports="cudnn_batch_norm_backward",
        dtypes=FLOATING,
        inputs="cudnn_batch_norm_backward",
        unread=(3, 4, 8),
        flops=11,
        torch_calls=("aten.cudnn_batch_norm_backward",),
        # cuDNN refuses bfloat16; what it keeps for the gradient depends on the values alone.
        benchmark_arguments=(
            "x, torch.randn_like(x), (w := torch.ones(shape[1], device=x.device)), *running_statistics(x), "
            "*torch.cudnn_batch_norm(x.float(), w, w, None, None, True, 0.1, 1e-5)[1:3], 1e-5, "
            "torch.cudnn_batch_norm(x.float(), w, w, None, None, True, 0.1, 1e-5)[3]"
        ),
        gradient_of="batch_norm",
        log="GEMS CUDNN_BATCH_NORM_BACKWARD",
        defects=("CB1",),
        resolves=("#5222",),
    ),
    Operator(
        name="group_norm",
        module="groupnorm",
        overload="native_group_norm",
        family="group_norm",
        supports="group_norm",
        dtypes=FLOATING,
        arguments=("groups",),
        required=("groups",),
        inputs="group_norm",
        flops=8,
        torch_calls=("torch.native_group_norm",),
        benchmark_arguments="x, *channel_parameters(x), *shape[:2], x[0, 0].numel(), number, 1e-5",
        opinfo=(("nn.functional.group_norm", ""),),
        log="GEMS GROUPNORM FORWARD",
        defects=("G1", "G2", "G3", "G4"),
        resolves=("#4984", "#4985"),
    ),
    Operator(
        name="group_norm_backward",
        module="groupnorm",
        overload="native_group_norm_backward",
        family="group_norm",
        supports="group_norm_backward",
        dtypes=FLOATING,
        arguments=("groups",),
        required=("groups",),
        inputs="group_norm_backward",
        flops=13,
        torch_calls=("aten.native_group_norm_backward",),
        benchmark_arguments=(
            "torch.randn_like(x), x, *group_statistics(x, number), channel_parameters(x)[0], *shape[:2], "
            "x[0, 0].numel(), number, [True, True, True]"
        ),
        gradient_of="group_norm",
        log="GEMS GROUPNORM BACKWARD",
        defects=("G1", "G3", "G4"),
    ),
    Operator(
        name="rms_norm",
        module="rms_norm",
        overload="rms_norm",
        family="norm",
        supports="rms_norm",
        dtypes=FLOATING,
        arguments=("normalized",),
        inputs="rms_norm",
        flops=4,  # mean square 2, normalize 1, weight 1
        torch_calls=("torch.rms_norm",),
        benchmark_arguments="x, shape[-number:], affine(x, number)[0], 1e-5",
        opinfo=(("nn.functional.rms_norm", ""),),
        log="GEMS RMS_NORM FORWARD",
        defects=("R1", "R2", "R3", "R4", "R5"),
    ),
    Operator(
        name="_fused_rms_norm",
        module="_fused_rms_norm",
        overload="_fused_rms_norm",
        family="norm",
        since="5.3.3",
        supports="rms_norm",
        dtypes=FLOATING,
        arguments=("normalized",),
        inputs="rms_norm",
        flops=4,
        torch_calls=("torch._fused_rms_norm",),
        benchmark_arguments="x, shape[-number:], affine(x, number)[0], 1e-5",
        log="GEMS _FUSED_RMS_NORM FORWARD",
        defects=("FR1", "FR2", "FR3"),
    ),
    Operator(
        name="_fused_rms_norm_backward",
        module="_fused_rms_norm",
        overload="_fused_rms_norm_backward",
        family="norm",
        since="5.4.0.dev0",
        supports="rms_norm_backward",
        dtypes=FLOATING,
        arguments=("normalized",),
        inputs="rms_norm_backward",
        flops=8,  # xhat 1, w * dy 1, row sum 2, dx 2, dw 2
        torch_calls=("aten._fused_rms_norm_backward",),
        benchmark_arguments=(
            "torch.randn_like(x), x, shape[-number:], "
            "*torch._fused_rms_norm(x, shape[-number:], None, 1e-5)[1:], affine(x, number)[0], [True, True]"
        ),
        gradient_of="_fused_rms_norm",
        log="GEMS _FUSED_RMS_NORM BACKWARD",
        defects=("FR4",),
    ),
    Operator(
        name="fused_add_rms_norm",
        module="fused_add_rms_norm",
        package="fused",
        overload=None,
        composition=(
            "lambda x, residual, normalized_shape, weight, eps=1e-5: "
            "(x.copy_(torch.rms_norm(total := residual + x, normalized_shape, weight, eps)), residual.copy_(total))"
        ),
        family="norm",
        supports="fused_add_rms_norm",
        dtypes=FLOATING,
        arguments=("normalized",),
        inputs="fused_add_rms_norm",
        mutated=(0, 1),
        flops=6,  # sum 1, mean of squares 2, normalize 2, weight 1
        torch_calls=("flag_gems.fused_add_rms_norm",),
        # As for skip_layer_norm.
        benchmark_arguments="x, torch.where(x > 0, x, -2 * x), shape[-number:], affine(x, number)[0], 1e-5",
        log="GEMS FUSED_ADD_RMS_NORM FORWARD",
        defects=("FA1", "FA2", "FA3", "FA4"),
    ),
    Operator(
        name="softmax",
        module="softmax",
        overload="_softmax",
        family="softmax",
        supports="softmax",
        dtypes=FLOATING,
        arguments=("dim",),
        required=("dim",),
        inputs="softmax",
        flops=5,  # maximum, subtract, exponential, sum, divide
        torch_calls=("torch.softmax", "aten._softmax"),
        benchmark_arguments="x, number, False",
        opinfo=(("softmax", ""), ("softmax", "with_dtype")),
        log="GEMS SOFTMAX",
        defects=("S1", "S3", "S4", "S5", "S6", "S7"),
    ),
    Operator(
        name="softmax_backward",
        module="softmax",
        overload="_softmax_backward_data",
        family="softmax",
        supports="softmax_backward",
        dtypes=FLOATING,
        arguments=("dim",),
        required=("dim",),
        inputs="softmax_backward",
        flops=4,
        torch_calls=("aten._softmax_backward_data",),
        benchmark_arguments="torch.randn_like(x), torch.softmax(x, number), number, dtype",
        gradient_of="softmax",
        opinfo=(("_softmax_backward_data", ""),),
        log="GEMS SOFTMAX VJP",
        defects=("S2", "S4"),
    ),
    Operator(
        name="log_softmax",
        module="log_softmax",
        overload="_log_softmax",
        family="softmax",
        supports="softmax",
        dtypes=FLOATING,
        arguments=("dim",),
        required=("dim",),
        inputs="softmax",
        flops=5,
        torch_calls=("torch.log_softmax",),
        benchmark_arguments="x, number, False",
        opinfo=(("log_softmax", ""), ("log_softmax", "with_dtype")),
        log="GEMS LOG_SOFTMAX",
        defects=("Q1", "Q2", "Q4", "Q5"),
        overlaps=("#4574",),
    ),
    Operator(
        name="log_softmax_backward",
        module="log_softmax",
        overload="_log_softmax_backward_data",
        family="softmax",
        supports="softmax_backward",
        dtypes=FLOATING,
        arguments=("dim",),
        required=("dim",),
        inputs="log_softmax_backward",
        flops=4,
        torch_calls=("aten._log_softmax_backward_data",),
        benchmark_arguments="torch.randn_like(x), torch.log_softmax(x, number), number, dtype",
        gradient_of="log_softmax",
        log="GEMS LOG_SOFTMAX VJP",
        defects=("Q2", "Q3", "Q4", "Q6"),
        overlaps=("#4574",),
    ),
    Operator(
        name="prod",
        module="prod",
        overload="prod",
        family="reduction",
        supports="reduction_as",
        dtypes=REAL,
        inputs="whole_factors",
        torch_calls=("torch.prod",),
        benchmark_arguments="x,",
        opinfo=(("prod", ""),),
        log="GEMS PROD",
        defects=("P1", "P2", "P3", "P4", "P5"),
    ),
    Operator(
        name="prod_dim",
        module="prod",
        overload="prod.dim_int",
        family="reduction",
        supports="reduction_as",
        dtypes=REAL,
        arguments=("dim",),
        required=("dim",),
        inputs="along_factors",
        torch_calls=("torch.prod",),
        benchmark_arguments="x, number",
        opinfo=(("prod", ""),),
        log="GEMS PROD DIM",
        defects=("P1", "P2", "P6", "P7"),
    ),
    Operator(
        name="max",
        module="max",
        overload="max",
        family="reduction",
        supports="reduction",
        dtypes=REAL,
        inputs="whole",
        torch_calls=("torch.max",),
        benchmark_arguments="x,",
        opinfo=(("max", "reduction_no_dim"),),
        log="GEMS MAX",
        defects=("X1", "X3"),
        overlaps=("#4654",),
    ),
    Operator(
        name="max_dim",
        module="max",
        overload="max.dim",
        family="reduction",
        supports="reduction",
        dtypes=REAL,
        arguments=("dim",),
        required=("dim",),
        inputs="along",
        compared="values_and_values_at",
        torch_calls=("torch.max",),
        benchmark_arguments="x, number",
        opinfo=(("max", "reduction_with_dim"),),
        log="GEMS MAX DIM",
        defects=("X1", "X2", "X3"),
        overlaps=("#4654",),
    ),
    Operator(
        name="amax",
        module="amax",
        overload="amax",
        family="reduction",
        supports="reduction",
        dtypes=REAL,
        arguments=("dim",),
        required=("dim",),
        inputs="along_list",
        torch_calls=("torch.amax",),
        benchmark_arguments="x, [number]",
        opinfo=(("amax", ""),),
        log="GEMS AMAX",
        defects=("X1", "X4", "X5"),
        overlaps=("#4613",),
    ),
    Operator(
        name="min",
        module="min",
        overload="min",
        family="reduction",
        supports="reduction",
        dtypes=REAL,
        inputs="whole",
        torch_calls=("torch.min",),
        benchmark_arguments="x,",
        opinfo=(("min", "reduction_no_dim"),),
        log="GEMS MIN",
        defects=("N1", "N3", "N4"),
        overlaps=("#4654",),
    ),
    Operator(
        name="min_dim",
        module="min",
        overload="min.dim",
        family="reduction",
        supports="reduction",
        dtypes=REAL,
        arguments=("dim",),
        required=("dim",),
        inputs="along",
        compared="values_and_values_at",
        torch_calls=("torch.min",),
        benchmark_arguments="x, number",
        opinfo=(("min", "reduction_with_dim"),),
        log="GEMS MIN DIM",
        defects=("N1", "N2", "N3"),
        overlaps=("#4654",),
    ),
    Operator(
        name="amin",
        module="amin",
        overload="amin",
        family="reduction",
        since="5.3.1",
        supports="reduction",
        dtypes=REAL,
        arguments=("dim",),
        required=("dim",),
        inputs="along_list",
        torch_calls=("torch.amin",),
        benchmark_arguments="x, [number]",
        opinfo=(("amin", ""),),
        log="GEMS AMIN",
        defects=("M1", "M2", "M3", "M4"),
        overlaps=("#4616",),
    ),
    Operator(
        name="aminmax",
        module="aminmax",
        overload="aminmax",
        family="reduction",
        since="5.0.2",
        supports="reduction",
        dtypes=REAL,
        arguments=("dim",),
        inputs="whole_or_along",
        flops=2,
        torch_calls=("torch.aminmax",),
        benchmark_arguments="x, {'dim': number}",
        opinfo=(("aminmax", ""),),
        log="GEMS AMINMAX",
        defects=("AM1", "AM2", "AM3", "AM4"),
    ),
    Operator(
        name="argmax",
        module="argmax",
        overload="argmax",
        family="reduction",
        supports="reduction_with_order",
        dtypes=FLOATING + INTEGER,
        arguments=("dim",),
        inputs="whole_or_along",
        compared="values_at",
        torch_calls=("torch.argmax",),
        benchmark_arguments="x, number",
        opinfo=(("argmax", ""),),
        log="GEMS ARGMAX",
        defects=("A1", "A2", "A3", "A4"),
    ),
    Operator(
        name="argmin",
        module="argmin",
        overload="argmin",
        family="reduction",
        supports="reduction_with_order",
        dtypes=FLOATING + INTEGER,
        arguments=("dim",),
        inputs="whole_or_along",
        compared="values_at",
        torch_calls=("torch.argmin",),
        benchmark_arguments="x, number",
        opinfo=(("argmin", ""),),
        log="GEMS ARGMIN",
        defects=("A1", "A2", "A5", "A6", "A7"),
    ),
    Operator(
        name="sum",
        module="sum",
        overload="sum",
        family="reduction",
        supports="reduction_as",
        dtypes=REAL,
        inputs="whole",
        torch_calls=("torch.sum",),
        benchmark_arguments="x,",
        log="GEMS SUM",
        defects=("U1", "U2", "U3", "U4"),
    ),
    Operator(
        name="sum_dim",
        module="sum",
        overload="sum.dim_IntList",
        family="reduction",
        supports="reduction_as",
        dtypes=REAL,
        arguments=("dim",),
        required=("dim",),
        inputs="along_list",
        torch_calls=("torch.sum",),
        benchmark_arguments="x, [number]",
        opinfo=(("sum", ""),),
        log="GEMS SUM_DIM",
        defects=("U1", "U5", "U6"),
    ),
    Operator(
        name="sum_out",
        module="sum",
        overload="sum.out",
        family="reduction",
        supports="reduction_out",
        dtypes=REAL,
        inputs="whole_out",
        unread=(1,),
        torch_calls=("aten.sum.out",),
        benchmark_arguments="x, {'out': torch.empty_like(x.sum())}",
        log="GEMS SUM_OUT",
        defects=("U7", "U8", "U9"),
    ),
    Operator(
        name="sum_dim_out",
        module="sum",
        overload="sum.IntList_out",
        family="reduction",
        supports="reduction_out",
        dtypes=REAL,
        arguments=("dim",),
        required=("dim",),
        inputs="along_list_out",
        unread=(2,),
        torch_calls=("torch.sum",),
        benchmark_arguments="x, [number], {'out': torch.empty_like(x.sum(number))}",
        log="GEMS SUM_DIM_OUT",
        defects=("U10", "U11", "U12"),
    ),
    Operator(
        name="nansum",
        module="nansum",
        overload="nansum",
        family="reduction",
        since="5.3.3",
        supports="nansum",
        dtypes=REAL,
        arguments=("dim",),
        required=("dim",),
        inputs="along_list",
        flops=2,
        torch_calls=("torch.nansum",),
        benchmark_arguments="x, [number]",
        opinfo=(("nansum", ""),),
        log="GEMS NANSUM",
        defects=("H1", "H2", "H3"),
    ),
    Operator(
        name="nansum_out",
        module="nansum",
        overload="nansum.out",
        family="reduction",
        since="5.3.3",
        supports="nansum_out",
        dtypes=REAL,
        arguments=("dim",),
        required=("dim",),
        inputs="along_list_out",
        unread=(2,),
        flops=2,
        torch_calls=("torch.nansum",),
        benchmark_arguments="x, [number], {'out': torch.empty_like(x.sum(number))}",
        log="GEMS NANSUM_OUT",
        defects=("H1", "H4"),
    ),
    Operator(
        name="mean",
        module="mean",
        overload="mean",
        family="reduction",
        supports="mean",
        dtypes=FLOATING,
        inputs="whole",
        torch_calls=("torch.mean",),
        benchmark_arguments="x,",
        log="GEMS MEAN",
        defects=("E1", "E2", "E3"),
    ),
    Operator(
        name="mean_dim",
        module="mean",
        overload="mean.dim",
        family="reduction",
        supports="mean",
        dtypes=FLOATING,
        arguments=("dim",),
        required=("dim",),
        inputs="along_list",
        torch_calls=("torch.mean",),
        benchmark_arguments="x, [number]",
        opinfo=(("mean", ""),),
        log="GEMS MEAN_DIM",
        defects=("E4", "E5", "E6"),
    ),
    Operator(
        name="any",
        module="any",
        overload="any",
        family="reduction",
        supports="reduction",
        dtypes=REAL,
        inputs="whole",
        torch_calls=("torch.any",),
        benchmark_arguments="x,",
        log="GEMS ANY",
        defects=("Y1", "Y2", "Y3"),
    ),
    Operator(
        name="any_dim",
        module="any",
        overload="any.dim",
        family="reduction",
        supports="reduction",
        dtypes=REAL,
        arguments=("dim",),
        required=("dim",),
        inputs="along",
        torch_calls=("torch.any",),
        benchmark_arguments="x, number",
        opinfo=(("any", ""),),
        log="GEMS ANY DIM",
        defects=("Y3", "Y4"),
    ),
    Operator(
        name="any_dims",
        module="any",
        overload="any.dims",
        family="reduction",
        supports="some_dims",
        dtypes=REAL,
        arguments=("dim",),
        required=("dim",),
        inputs="along_list",
        torch_calls=("torch.any",),
        benchmark_arguments="x, [number]",
        log="GEMS ANY DIMS",
        defects=("Y3",),
    ),
    Operator(
        name="all",
        module="all",
        overload="all",
        family="reduction",
        supports="reduction",
        dtypes=REAL,
        inputs="whole",
        torch_calls=("torch.all",),
        benchmark_arguments="x,",
        log="GEMS ALL",
        defects=("Z1", "Z2", "Z3"),
    ),
    Operator(
        name="all_dim",
        module="all",
        overload="all.dim",
        family="reduction",
        supports="reduction",
        dtypes=REAL,
        arguments=("dim",),
        required=("dim",),
        inputs="along",
        torch_calls=("torch.all",),
        benchmark_arguments="x, number",
        opinfo=(("all", ""),),
        log="GEMS ALL DIM",
        defects=("Z3", "Z4"),
    ),
    Operator(
        name="all_dims",
        module="all",
        overload="all.dims",
        family="reduction",
        supports="some_dims",
        dtypes=REAL,
        arguments=("dim",),
        required=("dim",),
        inputs="along_list",
        torch_calls=("torch.all",),
        benchmark_arguments="x, [number]",
        log="GEMS ALL DIMS",
        defects=("Z3",),
    ),
    Operator(
        name="_is_all_true",
        module="_is_all_true",
        overload="_is_all_true",
        family="reduction",
        since="5.0.2",
        supports="is_all_true",
        dtypes=("bool",),
        inputs="whole",
        torch_calls=("aten._is_all_true",),
        benchmark_arguments="x < 9,",
        log="GEMS _IS_ALL_TRUE",
        defects=("T1",),
    ),
    Operator(
        name="count_nonzero",
        module="count_nonzero",
        overload="count_nonzero",
        family="reduction",
        supports="count",
        dtypes=REAL,
        arguments=("dim",),
        inputs="whole_or_along",
        torch_calls=("torch.count_nonzero",),
        benchmark_arguments="x, number",
        opinfo=(("count_nonzero", ""),),
        log="GEMS COUNT NONZERO",
        defects=("K1", "K2"),
    ),
    Operator(
        name="vector_norm",
        module="vector_norm",
        overload="linalg_vector_norm",
        family="reduction",
        supports="vector_norm",
        dtypes=FLOATING,
        arguments=("dim",),
        required=("dim",),
        inputs="norm_along",
        flops=2,
        torch_calls=("torch.linalg.vector_norm",),
        benchmark_arguments="x, 2, [number]",
        opinfo=(("linalg.vector_norm", ""),),
        log="GEMS VECTOR NORM",
        defects=("V1", "V2", "V3", "V4", "V5"),
    ),
    # Not var and var.dim: PyTorch composes them of var.correction above autograd, which records that. Whatever is
    # registered for them lies below, and torch.func.grad gives zeros. enable() leaves upstream's out (harmful.py).
    Operator(
        name="var_correction",
        module="var",
        overload="var.correction",
        family="reduction",
        since="5.0.2",
        supports="moments",
        dtypes=FLOATING,
        arguments=("dim",),
        required=("dim",),
        inputs="along_list",
        flops=4,  # mean 1, squared deviations 3
        torch_calls=("torch.var",),
        benchmark_arguments="x, [number]",
        opinfo=(("var", ""),),
        log="GEMS VAR_CORRECTION",
        defects=("W1", "W2", "W3"),
    ),
    Operator(
        name="std",
        module="std",
        overload="std.correction",
        family="reduction",
        supports="moments",
        dtypes=FLOATING,
        arguments=("dim",),
        required=("dim",),
        inputs="along_list",
        flops=4,  # mean 1, squared deviations 3
        torch_calls=("torch.std",),
        benchmark_arguments="x, [number]",
        opinfo=(("std", ""),),
        log="GEMS STD",
        defects=("D1", "D2"),
    ),
    Operator(
        name="var_mean",
        module="var_mean",
        overload="var_mean.correction",
        family="reduction",
        supports="moments",
        dtypes=FLOATING,
        arguments=("dim",),
        required=("dim",),
        inputs="along_list",
        flops=4,  # mean 1, squared deviations 3
        torch_calls=("torch.var_mean",),
        benchmark_arguments="x, [number]",
        opinfo=(("var_mean", ""),),
        log="GEMS VAR MEAN",
        defects=("J1", "J2"),
    ),
    Operator(
        name="logsumexp",
        module="logsumexp",
        overload="logsumexp",
        family="reduction",
        since="5.3.0",
        supports="logsumexp",
        dtypes=FLOATING,
        arguments=("dim",),
        required=("dim",),
        inputs="along_list",
        flops=4,  # maximum, subtract, exponential, sum
        torch_calls=("torch.logsumexp",),
        benchmark_arguments="x, [number]",
        opinfo=(("logsumexp", ""),),
        log="GEMS LOGSUMEXP",
        defects=("LS1", "LS2", "LS3"),
    ),
    Operator(
        name="nll_loss_forward",
        module="nllloss",
        overload="nll_loss_forward",
        family="gather",
        supports="nll_loss",
        dtypes=FLOATING,
        ndim=2,
        inputs="nll_loss",
        picked=(0,),
        torch_calls=("torch.nn.functional.nll_loss",),
        benchmark_arguments="x, torch.randint(0, shape[1], shape[:1], device=x.device), None, 1, -100",
        opinfo=(("nn.functional.nll_loss", ""),),
        log="GEMS NLL Loss FWD",
        defects=("NL1", "NL2", "NL3", "NL4"),
        resolves=("#5025", "#5026"),
    ),
    Operator(
        name="nll_loss_backward",
        module="nllloss",
        overload="nll_loss_backward",
        family="gather",
        supports="nll_loss_backward",
        dtypes=FLOATING,
        ndim=2,
        inputs="nll_loss_backward",
        unread=(1,),
        torch_calls=("aten.nll_loss_backward",),
        benchmark_arguments=(
            "x.new_ones(()), x, torch.randint(0, shape[1], shape[:1], device=x.device), None, 1, -100, "
            "x.new_full((), shape[0])"
        ),
        gradient_of="nll_loss_forward",
        log="GEMS NLL Loss BWD",
        defects=("NL5", "NL6"),
        resolves=("#5025", "#5026"),
    ),
    Operator(
        name="nll_loss2d_forward",
        module="nllloss",
        overload="nll_loss2d_forward",
        family="gather",
        supports="nll_loss",
        dtypes=FLOATING,
        ndim=4,
        inputs="nll_loss",
        picked=(0,),
        torch_calls=("torch.nn.functional.nll_loss",),
        benchmark_arguments=("x, torch.randint(0, shape[1], (shape[0], *shape[2:]), device=x.device), None, 1, -100"),
        opinfo=(("nn.functional.nll_loss", ""),),
        log="GEMS NLL Loss2d FWD",
        defects=("NL1", "NL2", "NL3"),
        resolves=("#5025", "#5026"),
    ),
    Operator(
        name="nll_loss2d_backward",
        module="nllloss",
        overload="nll_loss2d_backward",
        family="gather",
        supports="nll_loss_backward",
        dtypes=FLOATING,
        ndim=4,
        inputs="nll_loss_backward",
        unread=(1,),
        torch_calls=("aten.nll_loss2d_backward",),
        benchmark_arguments=(
            "x.new_ones(()), x, torch.randint(0, shape[1], (shape[0], *shape[2:]), device=x.device), None, 1, -100, "
            "x.new_full((), x.numel() // shape[1])"
        ),
        gradient_of="nll_loss2d_forward",
        log="GEMS NLL Loss2d BWD",
        defects=("NL5", "NL6"),
        resolves=("#5025", "#5026"),
    ),
    Operator(
        name="cross_entropy_loss",
        module="cross_entropy_loss",
        package="fused",
        overload=None,
        family="gather",
        supports="cross_entropy",
        dtypes=FLOATING,
        ndim=2,
        arguments=("gradient",),
        inputs="cross_entropy",
        flops=5,  # maximum, subtract, exponential, sum, the class
        torch_calls=("torch.nn.functional.cross_entropy",),
        benchmark_arguments="x, torch.randint(0, shape[1], shape[:1], device=x.device)",
        log="GEMS CrossEntropyLoss",
        defects=("CE1", "CE2", "CE3", "CE4", "CE5", "CE6", "CE7", "CE8", "CE9"),
    ),
    Operator(
        name="cumsum",
        module="cumsum",
        overload="cumsum",
        family="scan",
        supports="reduction_as",
        dtypes=REAL,
        arguments=("dim",),
        required=("dim",),
        inputs="along",
        torch_calls=("torch.cumsum",),
        benchmark_arguments="x, number",
        opinfo=(("cumsum", ""),),
        log="GEMS CUMSUM",
        defects=("CU1", "CU2", "CU3", "CU4", "CU5"),
        resolves=("#4543",),
    ),
    Operator(
        name="cumsum_out",
        module="cumsum",
        overload="cumsum.out",
        family="scan",
        supports="reduction_out",
        dtypes=REAL,
        arguments=("dim",),
        required=("dim",),
        inputs="along_out",
        unread=(2,),
        torch_calls=("torch.cumsum",),
        benchmark_arguments="x, number, {'out': torch.empty_like(x)}",
        log="GEMS CUMSUM_OUT",
        defects=("CU6", "CU7"),
        resolves=("#4543",),
    ),
)
OPERATORS = {operator.name: operator for operator in _ROWS}


def select(include: Iterable[str] | None = None, exclude: Iterable[str] | None = None) -> tuple[str, ...]:
    """The names that ``include`` (default: all) lists and ``exclude`` (default: none) does not, in the table's order.

    Raises:
        TypeError: ``include`` or ``exclude`` is a string instead of a list of names.
        ValueError: a name is not in the table; the message lists those that are.
    """
    chosen = set(OPERATORS) if include is None else _known("include", include)
    chosen -= set() if exclude is None else _known("exclude", exclude)
    return tuple(name for name in OPERATORS if name in chosen)


def _known(argument: str, names: Iterable[str]) -> set[str]:
    if isinstance(names, str):
        raise TypeError(f"{argument} must be a list of names, like [{names!r}], not a string")
    names = set(names)
    unknown = sorted(names - set(OPERATORS), key=str)
    if unknown:
        raise ValueError(f"{argument}: no override named {unknown}; known: {', '.join(OPERATORS)}")
    return names
