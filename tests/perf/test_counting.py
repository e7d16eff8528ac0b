# SPDX-License-Identifier: Apache-2.0
"""Counting in the interpreter, from a kernel's loads to the gate."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

from flag_gems_overrides import interpreter
from flag_gems_overrides.operators import Operator
from flag_gems_overrides.perf import baselines, gates, meters, providers, records
from flag_gems_overrides.perf.cases import parse
from flag_gems_overrides.perf.traffic import Traffic, count

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="counts are made where there is no GPU")
ROOT = Path(__file__).parents[2]


@triton.jit
def double(x_ptr, y_ptr, total_ptr, n, passes, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.zeros([BLOCK], tl.float32)
    for _ in range(passes):
        y = 2 * tl.load(x_ptr + i, mask=i < n, other=0)
    tl.store(y_ptr + i, y, mask=i < n)
    tl.atomic_add(total_ptr, tl.sum(y))


def doubled(x: torch.Tensor, passes: int = 1) -> torch.Tensor:
    y = torch.empty_like(x)
    total = torch.zeros(1)
    double[(triton.cdiv(x.numel(), 64),)](x, y, total, x.numel(), passes, BLOCK=64)
    return y


def test_masked_lanes_do_not_count_and_host_work_does():
    x = torch.ones(100)
    result, traffic = count(lambda: doubled(x))
    assert torch.equal(result, 2 * x)
    # Two programs; the zeros are a launch of their own.
    assert traffic == Traffic(loaded=400, stored=404, atomic=8, launches=2, allocations=2, allocated=404)
    assert count(lambda: doubled(x, passes=3))[1].loaded == 1200


def test_leaving_an_argument_is_an_error_before_anything_is_written():
    y = torch.zeros(8)

    def call():
        double[(1,)](torch.ones(64), y, torch.zeros(1), 64, 1, BLOCK=64)

    with pytest.raises(interpreter.OutOfBoundsError):
        count(call)
    assert not y.any()


CASE = parse("softmax 6x40 dim=1 float32")


@pytest.fixture
def meter():
    return meters.CountMeter("interpreter")


def test_upstream_and_override_are_counted_beside_each_other(meter):
    row = {"kind": "case", **meter.measure(CASE)}
    records.check(row, "row")
    assert set(row["providers"]) == {"upstream", "override"}
    for counts in row["providers"].values():
        assert counts["agrees"]
        assert counts["launches"] >= 1
        assert counts["loaded"] >= row["compulsory"]["read"]
        assert counts["stored"] >= row["compulsory"]["written"]
    assert all(launch["kernel"] for launch in row["launches"])


def test_counts_do_not_depend_on_what_was_counted_before(meter):
    first = meter.measure(CASE)
    meter.measure(parse("softmax 2x30 dim=0 float32"))
    assert records.dumps(meter.measure(CASE)) == records.dumps(first)


def test_upstream_is_not_called_where_it_would_write_beyond_its_outputs(meter):
    row = meter.measure(parse("layer_norm_backward 2x3x8 normalized=1 float32"))
    assert "writes beyond" in row["providers"]["upstream"]["absent"]
    assert row["providers"]["override"]["agrees"]


@pytest.mark.parametrize(
    ("fault", "rules"),
    [
        (lambda x, softmax: softmax(x.clone()), {"passes", "launches", "upstream"}),
        (lambda x, softmax: softmax(x) + 0, {"passes", "launches", "upstream"}),
        (lambda x, softmax: softmax(x)[:1].expand_as(x), {"answer"}),
    ],
    ids=["one more pass before", "one more pass after", "wrong answer"],
)
def test_a_planted_fault_turns_the_gate_red(meter, monkeypatch, tmp_path, fault, rules):
    row = meter.measure(CASE)
    baselines.accept(tmp_path, records.Session(meter.head, {CASE.key: row}, ended=True))
    accepted = baselines.load(tmp_path, "interpreter", "softmax")
    assert gates.judge([row], accepted) == []

    implementation, supports = providers.OPERATORS["softmax"].load()
    worse = lambda x, *rest: fault(x, lambda x: implementation(x, *rest))  # noqa: E731
    monkeypatch.setattr(Operator, "load", lambda self: (worse, supports))
    failures = gates.judge([meter.measure(CASE)], accepted)
    assert {failure.rule for failure in failures} == rules


def run_benchmark(*arguments: str, plugins: Path | None = None) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    found = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), plugins and str(plugins)]))
    environment = {**os.environ, "PYTHONPATH": found}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)


RAISES_IN_BFLOAT16 = """
def pytest_collection_finish():
    from flag_gems_overrides.perf.meters import CountMeter
    measure = CountMeter.measure

    def measured(self, case):
        assert case.dtype != "bfloat16", "planted"
        return measure(self, case)

    CountMeter.measure = measured
"""


def test_a_session_in_which_a_case_raised_has_not_ended_and_others_make_the_same_bytes(tmp_path):
    (tmp_path / "planted.py").write_text(RAISES_IN_BFLOAT16)
    path, again = tmp_path / "record", tmp_path / "again"
    words = ["benchmark/test_reduction_perf.py::test_perf_reduction[max]", "--record", "json", "--output"]
    result = run_benchmark(*words, str(path), "-p", "planted", plugins=tmp_path)
    assert result.returncode == pytest.ExitCode.TESTS_FAILED, result.stdout
    (session,) = records.read(path)
    assert {key.split()[-1] for key in session.rows} == {"float32"}
    assert not session.ended
    for output in path, again:
        result = run_benchmark(*words, str(output))
        assert result.returncode == 0, result.stdout
        assert "Operator: max  Performance Test" in result.stdout
    (session,) = records.read(path)
    assert {key.split()[-1] for key in session.rows} == {"float32", "bfloat16"}
    assert session.ended
    assert path.read_bytes() == again.read_bytes()


def test_a_dtype_that_an_op_does_not_take_is_refused_before_anything_is_measured():
    result = run_benchmark("benchmark/test_norm_perf.py", "--dtypes", "int32")
    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert "layer_norm: dtype 'int32' is not known; known: float16" in result.stderr


def test_benchmarks_refuse_to_run_beside_each_other():
    result = run_benchmark("benchmark", "-n", "2")
    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert "benchmarks do not run under pytest-xdist" in result.stderr
