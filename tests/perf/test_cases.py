# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.perf.cases import LEVELS, Case, CaseError, Shapes, make, parse

FILE = Path(__file__).parents[2] / "benchmark" / "core_shapes.yaml"


@st.composite
def any_case(draw):
    op = draw(st.sampled_from(list(OPERATORS)))
    ndim = OPERATORS[op].ndim
    shape = draw(st.lists(st.integers(0, 2**31), min_size=ndim or 1, max_size=ndim or 5))
    names = OPERATORS[op].arguments
    arguments = [
        (name, draw(st.integers(-5, 5))) for name in names if name in OPERATORS[op].required or draw(st.booleans())
    ]
    return Case(op, tuple(shape), draw(st.sampled_from(OPERATORS[op].dtypes)), tuple(arguments))


@given(any_case())
def test_key_names_the_whole_case(case):
    assert parse(case.key) == case


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("softmax", "64,64", "float32"), "'64,64'"),
        (("softmax", "64x64", "half"), "'half'.*float16"),
        (("softmax", "64x64", "int32"), "softmax: dtype 'int32'.*float16, float32, bfloat16, float64"),
        (("softmax", "64x64 dim", "float32"), "'dim'"),
        (("softmax", "", "float32"), "shape ''"),
        (("softmax", "64x64 dims=0", "float32"), "softmax: argument 'dims' is not known; known: dim"),
        (("softmax", "64x64", "float32"), "softmax: argument 'dim' is missing"),
        (("softmax", "64x64 dim=0 dim=1", "float32"), "softmax: argument 'dim' is given twice"),
        (("prod", "64x64 dim=1", "float32"), "prod: argument 'dim' is not known; known: none"),
        (("gelu", "64x64", "float32"), "op 'gelu' is not known; known: layer_norm"),
    ],
)
def test_bad_words_are_named(words, named):
    with pytest.raises(CaseError, match=named):
        make(*words)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "shapes.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("softmax: [[1]]", "softmax: expected a mapping with core, "),
        ("max: {core: [[4, -1]]}", r"max\.core\[0\]: \[4, -1\] is neither"),
        ("softmax: {cores: []}", "softmax: unknown cores; known: core"),
        ("max: {core: [[1], 7]}", r"max\.core\[1\]: 7"),
        ("softmax: {core: [{shape: [4], dim: last}]}", r"softmax\.core\[0\]: dim must be an integer"),
        ("softmax: {core: [[true]]}", r"softmax\.core\[0\]"),
        ("argmax: {core: [[1], {shape: [4], dims: 0}]}", r"argmax\.core\[1\]: argmax: argument 'dims'.*known: dim"),
        ("softmax: {core: [{shape: [4], dim: 0, dim: 1}]}", r"'dim' is a duplicate key\n.*line 1, column 39"),
        ("gelu: {}", "op 'gelu' is not known; known: layer_norm"),
        ("- softmax", "expected a mapping from op"),
        ("{", "is not YAML"),
    ],
)
def test_a_bad_file_is_named_with_the_place(tmp_path, text, named):
    path = write(tmp_path, text)
    with pytest.raises(CaseError, match=f"shapes.yaml.*{named}"):
        Shapes(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CaseError, match=r"none\.yaml: No such file"):
        Shapes(tmp_path / "none.yaml")


def test_a_size_may_be_0(tmp_path):
    assert Shapes(write(tmp_path, "max: {core: [[0, 4]]}")).cases("max", "core", ["int8"])[0].shape == (0, 4)


def test_comprehensive_includes_core_once(tmp_path):
    shapes = Shapes(write(tmp_path, "max: {core: [[8]], comprehensive: [[8], [16]]}"))
    assert [case.key for case in shapes.cases("max", "comprehensive", ["int8"])] == [
        "max 8 int8",
        "max 16 int8",
    ]
    with pytest.raises(CaseError, match="no op 'min'; there are max"):
        shapes.cases("min", "core", ["int8"])


@pytest.mark.parametrize(
    ("level", "dtype", "named"),
    [("all", "int8", "level 'all' is not known; known: core"), ("core", "half", "max: dtype 'half'.*int8")],
)
def test_cases_of_an_unknown_level_or_dtype_are_refused(tmp_path, level, dtype, named):
    shapes = Shapes(write(tmp_path, "max: {core: [[8]]}"))
    with pytest.raises(CaseError, match=named):
        shapes.cases("max", level, [dtype])


def test_every_op_of_our_file_has_every_level():
    shapes = Shapes(FILE)
    assert set(shapes.ops) == set(OPERATORS)
    for op in shapes.ops:
        for level in LEVELS:
            assert shapes.cases(op, level, ["float32"])


def test_every_op_has_a_benchmark(monkeypatch):
    monkeypatch.setattr(pytest.mark, "_config", None)  # the markers belong to the benchmarks' own conftest.py
    reductions = runpy.run_path(str(FILE.parent / "test_reduction_perf.py"))
    norms = runpy.run_path(str(FILE.parent / "test_norm_perf.py"))
    assert "test_perf_layernorm_backward" in reductions  # upstream's name
    assert {*reductions["REDUCTIONS"], *norms["NORMS"], "layer_norm_backward"} == set(OPERATORS)


def test_our_file_has_upstreams_core_shapes():
    """FlagGems 5.0.2, benchmark/core_shapes.yaml: UnaryReductionBenchmark, softmax_backward, NormBenchmark."""
    cases = lambda op: {case.shape for case in Shapes(FILE).cases(op, "core", ["float32"])}  # noqa: E731
    reduction = {(1048576,), (64, 64), (4096, 4096), (64, 512, 512), (1024, 1024, 1024)}
    assert cases("softmax") == cases("prod") | cases("prod_dim") == cases("max") | cases("max_dim") == reduction
    assert cases("softmax_backward") == reduction - {(1024, 1024, 1024)} | {(256, 1024, 1024)}
    norm = {(4, 16, 64, 4), (16, 16, 8, 48), (16, 16, 8, 88), (16, 16, 128), (20, 6, 65536)}
    assert cases("layer_norm") == cases("layer_norm_backward") == norm
    assert cases("batch_norm") == cases("batch_norm_backward") == norm


def test_our_file_has_the_transformer_shapes():
    shapes = Shapes(FILE)
    norm = [case.shape for case in shapes.cases("layer_norm_backward", "comprehensive", ["float32"])]
    assert any(len(shape) == 3 for shape in norm)
    assert {shape[-1] for shape in norm} >= {64, 65536}
    assert {shape[0] for shape in norm} >= {1, 262144}
    assert {32000, 50257, 128256} <= {case.shape[-1] for case in shapes.cases("softmax", "comprehensive", ["float32"])}
