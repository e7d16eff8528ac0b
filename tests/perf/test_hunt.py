# SPDX-License-Identifier: Apache-2.0
"""Random problems, what counts as a loss, and a hunt with a clock of our own."""

from __future__ import annotations

import contextlib
import math
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from triton.runtime import autotuner
from typer.testing import CliRunner

from flag_gems_overrides.cli.commands import app
from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.perf import beforehand, conditions, hunt, losses, op_inputs, records
from flag_gems_overrides.perf.cases import NATIVE, Case, Shapes, make
from flag_gems_overrides.perf.problems import FAMILIES, MAX_ELEMENTS, Problem, _size, problems
from flag_gems_overrides.perf.roofline import extent
from flag_gems_overrides.perf.timing import Times

from . import rows


def test_the_same_seed_gives_the_same_problems_and_fewer_are_the_first():
    many = problems(tuple(OPERATORS), 60, 5, 1 / 7)
    assert many == problems(tuple(OPERATORS), 60, 5, 1 / 7)
    fewer = problems(tuple(OPERATORS), 30, 5, 1 / 7)
    assert many[: len(fewer)] == fewer
    assert many != problems(tuple(OPERATORS), 60, 6, 1 / 7)


def test_problems_are_of_every_family_op_and_kind():
    chosen = problems(tuple(OPERATORS), 300, 1, 1 / 7)
    assert Counter(problem.family for problem in chosen) == dict.fromkeys(FAMILIES, 300)
    for name in FAMILIES:
        compiled = [problem.compiled for problem in chosen if problem.family == name]
        assert sum(compiled) >= 40
        assert 5 <= sum(compiled[:60]) <= 15
    cases = [problem.case for problem in chosen]
    assert len({case.key for case in cases}) == len(cases)
    assert {case.op for case in cases} == set(OPERATORS)
    sizes = [math.prod(case.shape) for case in cases]
    assert all(0 < size <= MAX_ELEMENTS for size in sizes)
    assert min(sizes) < 8
    assert max(sizes) > MAX_ELEMENTS // 4
    inner = [math.prod(case.shape[case.get("dim", -1) + 1 :]) for case in cases if "dim" in dict(case.arguments)]
    assert {1} < set(inner)
    reduced = [extent(case)[1] for case in cases]
    assert {n % 2 for n in reduced} == {0, 1}
    assert 1 in reduced
    assert {case.dtype for case in cases} >= {"bfloat16", "float16", "float32", "float64", "int64"}
    for op in OPERATORS:
        assert len({extent(case)[1] for case in cases if case.op == op}) > 4, op
    rows_of = [case.shape[-case.get("normalized", 0) :] for case in cases if "normalized" in dict(case.arguments)]
    assert len({math.prod(row) for row in rows_of}) > 20
    assert {1} < {case.get("normalized", 1) for case in cases} < {1, 2, 3, 4}


def test_sizes_are_of_each_alignment_and_powers_of_two_the_fewest():
    rng = random.Random(0)
    found = Counter(_size(rng, 1001.0) for _ in range(10_000))
    assert set(found) == {1000, 1001, 1024}
    assert found[1000] == pytest.approx(2500, abs=200)
    assert found[1024] == pytest.approx(1500, abs=200)
    assert {_size(rng, 3.0) for _ in range(100)} == {3, 4}
    assert {_size(rng, 0.2) for _ in range(100)} == {1}


def row(key: str = "softmax 64x64 dim=1 float32", **us: float) -> dict:
    return rows.timed(key, rounds=5, spread=0.0, **{name: value / 1e3 for name, value in us.items()})


@pytest.mark.parametrize(
    ("ours", "best", "is_loss"),
    [(10.0, 9.0, True), (10.0, 9.8, False), (3.0, 2.8, False), (100.0, 98.0, False), (100.0, 96.0, True)],
)
def test_a_loss_is_behind_by_both_tolerances(ours, best, is_loss):
    found = losses.result(row(override=ours, native=best, upstream=2 * best))
    assert found.best == "native"
    assert found.ratio == pytest.approx(best / ours)
    assert found.is_loss == is_loss


def test_a_wrong_answer_is_no_competitor_and_ours_is_an_error():
    made = row(override=10.0, native=20.0, upstream=1.0)
    made["providers"]["upstream"]["agrees"] = False
    assert losses.result(made).best == "native"
    made["providers"]["override"]["agrees"] = False
    assert losses.result(made).error == "its answer is not PyTorch's"
    made["providers"]["override"] = {"absent": "RuntimeError: no"}
    assert losses.result(made).error == "RuntimeError: no"
    assert hunt.tallies([made])[-1].wrong == 1
    del made["providers"]["override"]
    assert losses.result(made).error == "not called"
    del made["providers"]["native"], made["providers"]["upstream"]
    nothing = losses.result(made)
    assert (nothing.us, nothing.best, nothing.ratio, nothing.is_loss) == (None, None, 1.0, False)


def test_the_gate_wants_few_losses_and_none_far_behind():
    good, loss, far = row(override=10.0, native=20.0), row(override=10.0, native=9.0), row(override=10.0, native=6.9)
    assert hunt.tallies([good] * 19 + [loss])[-1].passes
    assert not hunt.tallies([good] * 18 + [loss] * 2)[-1].passes
    assert not hunt.tallies([good] * 99 + [far])[-1].passes
    assert [tally.name for tally in hunt.tallies([good])] == ["softmax", "all"]


def test_a_distance_is_from_a_launch_and_a_copy_of_the_bytes():
    near, far = row("max 8 float32", override=3.0, native=20.0), row(override=10.0, native=1.0)
    near["compulsory"], far["compulsory"] = {"read": 2_000_000, "written": 1_000_000}, {"read": 0, "written": 0}
    absent = row(native=1.0)
    found = hunt.distances([near, far, absent], 3000.0)
    assert [each.key for each in found] == [far["key"], near["key"]]
    assert [each.floor_us for each in found] == pytest.approx([2.0, 3.0])
    assert [each.ratio for each in found] == pytest.approx([5.0, 1.0])


@pytest.fixture(autouse=True)
def none_is_slow(monkeypatch):
    """In the interpreter all kernels are."""
    monkeypatch.setattr(hunt, "_SLOW_MS", math.inf)


class Clock:
    """Says that the override takes twice as long as native."""

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self.efforts: list[int] = []

    def bandwidth(self) -> tuple[float, float]:
        return 4000.06, 4500.04

    def group(self, call_bytes: int) -> int:
        return 2

    def device_times(self, calls, effort: int = 1) -> Times:
        self.efforts.append(effort)
        return Times({name: [0.02 if name == "override" else 0.01] * (5 * effort) for name in calls})


def measure(size: str, op: str = "softmax", died: dict[str, str] | None = None) -> tuple[dict, Clock]:
    clock = Clock()
    hunter = hunt.Hunter("hunt --seed 1", [], clock)
    return hunter.measure(
        Problem("softmax", make(op, size, "float32"), False), beforehand.Prepared(died or {}, {})
    ), clock


def test_what_looks_like_a_loss_is_measured_again_and_longer(tmp_path):
    made, clock = measure("4x64 dim=1")
    assert clock.efforts == [1, hunt.SECOND_LOOK]
    assert made["rounds"] == {"kept": 5 * hunt.SECOND_LOOK, "dropped": 0, "attempts": 2}
    assert made["providers"]["override"]["agrees"]
    assert made["launches"]
    hunter = hunt.Hunter("hunt --seed 1", [], clock)
    head = hunter.head
    assert (head["copy_gbps"], head["read_gbps"]) == (4000.1, 4500.0)
    assert "clock_mhz" not in made["rounds"]
    recorder = records.Recorder(tmp_path / "r.jsonl", head, [made["key"]])
    recorder.row(made)
    recorder.close()
    assert records.read(tmp_path / "r.jsonl")[0].ended


def test_what_is_no_loss_is_measured_once_beside_its_clock():
    clock = Clock()
    clock.device_times = lambda calls: Times({name: [0.01] * 5 for name in calls}, 1, (1200, 1980))
    hunter = hunt.Hunter("hunt --seed 1", [], clock)
    made = hunter.measure(
        Problem("softmax", make("softmax", "4x64 dim=1", "float32"), False), beforehand.Prepared({}, {})
    )
    assert made["rounds"] == {"kept": 5, "dropped": 1, "attempts": 1, "clock_mhz": [1200, 1980]}
    assert set(hunter.seconds) == {"inputs", "samples", "slow", "native", "upstream", "override"}
    assert min(hunter.seconds.values()) >= 0


def test_a_provider_that_ended_its_process_is_not_called():
    made, _ = measure("4x64 dim=1", died={"upstream": "its process ended"})
    assert made["providers"]["upstream"] == {"absent": "its process ended"}


def test_a_provider_that_is_far_slower_is_called_once(monkeypatch):
    """What takes a second in PyTorch says in one call that it is no rival."""
    monkeypatch.undo()
    native = op_inputs.native("softmax")
    monkeypatch.setattr(hunt, "_ms", lambda function, inputs: (90.0 if function is native else 1.0, function(*inputs)))
    clock = Clock()
    timed = []
    clock.device_times = lambda calls, effort=1: timed.append(list(calls)) or Times({name: [0.01] for name in calls})
    made = hunt.Hunter("hunt --seed 1", [], clock).measure(
        Problem("softmax", make("softmax", "4x64 dim=1", "float32"), False), beforehand.Prepared({}, {})
    )
    assert timed == [["upstream", "override"]]
    assert made["providers"]["native"] == {"samples_ms": [90.0], "agrees": True}


def test_what_a_tuner_measured_elsewhere_is_not_measured_again():
    class Tuner:
        base_fn = losses.result

        def _bench(self, *args, config, **meta):
            measured.append(config)
            return [2.0, 2.0, 2.0]

    measured: list[str] = []
    timings = {"result A": [1.0, 1.0, 1.0]}
    original, autotuner.Autotuner._bench = autotuner.Autotuner._bench, Tuner._bench
    try:
        with beforehand.tuning(timings):
            found = [autotuner.Autotuner._bench(Tuner(), config=config) for config in ("A", "B", "B")]
    finally:
        autotuner.Autotuner._bench = original
    assert found == [[1.0] * 3, [2.0] * 3, [2.0] * 3]
    assert measured == ["B"]
    assert timings["result B"] == [2.0] * 3


def test_an_override_that_raises_is_a_finding(monkeypatch):
    from flag_gems_overrides.ops import softmax

    def broken(*arguments):
        raise RuntimeError("broken")

    monkeypatch.setattr(softmax, "softmax", broken)
    made, _ = measure("4x64 dim=1")
    assert losses.result(made).error == "RuntimeError: broken"


def test_a_full_gpu_is_no_verdict(monkeypatch):
    """Of the workers that compile: others' inputs fill the memory that they share."""
    case = make("softmax", "4x64 dim=1", "float32")
    assert [tensor.shape for tensor in beforehand.inputs_or_none(case, "cpu")[:1]] == [(4, 64)]

    def full(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(op_inputs, "arguments", full)
    assert beforehand.inputs_or_none(case, "cuda") is None


def test_where_terms_cancel_an_answer_as_close_to_the_truth_is_right():
    """The gradient of normalizing two elements is nothing but rounding."""
    made, _ = measure("64x2 normalized=1", "layer_norm_backward")
    assert made["providers"]["override"]["agrees"]


def test_a_problem_on_which_pytorch_fails_is_measured_beside_the_others(monkeypatch):
    """And again where the override fails too."""
    from flag_gems_overrides.perf import providers

    def fails(*arguments):
        raise RuntimeError("CUDA error: invalid argument")

    def measured(*failing: str) -> dict:
        @contextlib.contextmanager
        def for_case(case, peers):
            with original(case, peers) as (functions, absent):
                yield functions | dict.fromkeys(failing, fails), absent

        monkeypatch.setattr(providers, "for_case", for_case)
        return measure("4x64 dim=1")[0]

    original = providers.for_case
    made = measured(NATIVE)
    assert made["providers"]["native"] == {"absent": "RuntimeError: CUDA error: invalid argument"}
    assert made["providers"]["override"]["agrees"]
    assert losses.result(made).best == "upstream"
    assert losses.result(measured(NATIVE, "override")).error == "RuntimeError: CUDA error: invalid argument"
    assert losses.result(measured(NATIVE, "override", "upstream")).best is None


def test_a_gpu_that_dies_while_samples_are_taken_is_said_with_the_problem(monkeypatch):
    """As by upstream's argmin of 179565 bfloat16, which reads in front of its input: 60 calls do so unnoticed."""

    def dead(*arguments, **options):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(Clock, "device_times", dead)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        measure("4x64 dim=1")
    monkeypatch.setattr(beforehand, "synchronize", dead)
    with pytest.raises(beforehand.ContextLostError, match=r"after softmax 4x64 dim=1 float32 by one of .*override"):
        measure("4x64 dim=1")


def test_kept_losses_are_shapes_of_the_gate_each_once(tmp_path):
    path = tmp_path / "hunted.yaml"
    kept = [Case("softmax", (64, 3, 2), "float32", (("dim", 1),)), Case("max", (7, 9), "bfloat16")]
    assert hunt.keep(path, kept) == 2
    assert hunt.keep(path, [*kept, Case("max", (8,), "int8")]) == 1
    shapes = Shapes(path)
    assert shapes.cases("softmax", "core", ["float16"])[0].size == "64x3x2 dim=1"
    assert [case.size for case in shapes.cases("max", "core", ["float16"])] == ["7x9", "8"]


@pytest.fixture
def pretended_gpu(monkeypatch, tmp_path):
    """The command's own path, with a GPU of our own and small problems."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(conditions, "device", lambda: {"name": "NVIDIA H200"})
    monkeypatch.setattr(hunt, "Timer", lambda *arguments: Clock())
    monkeypatch.setattr(hunt, "synchronize", lambda: None)
    monkeypatch.setattr(hunt, "free", lambda kept: None)
    monkeypatch.setattr(beforehand, "share_caches", lambda: None)
    nothing = beforehand.Prepared({}, {})
    monkeypatch.setattr(beforehand, "compiled", lambda chosen, seconds: ((each, nothing) for each in chosen))
    monkeypatch.setattr("flag_gems_overrides.perf.problems.MAX_ELEMENTS", 1 << 10)


def test_the_command_shows_and_keeps_losses_and_fails(pretended_gpu, tmp_path):
    """The clock's override is always behind."""
    command = ["hunt", "softmax", "--seed", "7", "--count", "3", "--keep"]
    ran = CliRunner().invoke(app, command)
    assert ran.exit_code == 1, ran.output
    words = " ".join(ran.output.split())
    assert "--seed 7: 3 problems, 3 for each family: softmax" in words
    assert "0.500" in words
    assert "farthest from what their bytes take" in words
    assert len(Shapes(tmp_path / "benchmark" / "hunted_shapes.yaml").cases("softmax", "core", ["float32"])) == 3
    assert records.read(tmp_path / "hunt-7.jsonl")[0].ended
    again = CliRunner().invoke(app, command)
    assert "0 new shapes" in again.output


def test_losses_of_a_record_are_measured_again(pretended_gpu, monkeypatch):
    """And only those: the second record has what is a loss no more, the third nothing to measure."""
    assert CliRunner().invoke(app, ["hunt", "softmax", "sum_dim", "--seed", "7", "--count", "2"]).exit_code == 1
    command = ["hunt", "softmax", "--again", "hunt-7.jsonl", "--seconds", "60"]
    monkeypatch.setattr(Clock, "device_times", lambda self, calls, effort=1: Times({name: [0.01] for name in calls}))
    ran = CliRunner().invoke(app, command)
    assert ran.exit_code == 0, ran.output
    assert "2 problems to measure again" in " ".join(ran.output.split())
    (before,) = records.read(Path("hunt-7.jsonl"))
    (after,) = records.read(Path("hunt-again.jsonl"))
    assert set(after.rows) == {key for key in before.rows if key.startswith("softmax ")}
    nothing = CliRunner().invoke(app, ["hunt", "--again", "hunt-again.jsonl"])
    assert (nothing.exit_code, nothing.output.strip()) == (0, "0 problems to measure again")


@pytest.mark.parametrize(
    ("record", "arguments", "status", "words"),
    [
        ("hunt.jsonl", ["--dry-run"], 0, "softmax 64x64 dim=1 float32"),
        ("hunt.jsonl", [], 2, "no GPU"),
        ("missing.jsonl", [], 2, "missing.jsonl: No such file or directory"),
    ],
)
def test_losses_are_listed_without_gpu_and_interpreter(record, arguments, status, words, tmp_path):
    """Of flag_gems nothing is imported, which fails without a GPU."""
    recorder = records.Recorder(tmp_path / "hunt.jsonl", conditions.head("kernel", "hunt --seed 1"), ["softmax"])
    recorder.row(row(override=2.0, native=1.0))
    recorder.close()
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = ["hunt", "--again", str(tmp_path / record), *arguments]
    ran = subprocess.run(
        [sys.executable, "-c", "from flag_gems_overrides.cli import main; main()", *command],
        capture_output=True, text=True, env=environment | {"CUDA_VISIBLE_DEVICES": ""}, check=False,
    )  # fmt: skip
    assert ran.returncode == status, ran.stderr
    assert words in ran.stdout + ran.stderr


def test_what_is_interrupted_goes_on(pretended_gpu, tmp_path, monkeypatch):
    measured = []

    def measure(self, problem, prepared):
        if len(measured) == 2:
            raise KeyboardInterrupt
        measured.append(problem.case.key)
        return row(problem.case.key, override=10.0, native=20.0)

    monkeypatch.setattr(hunt.Hunter, "measure", measure)
    command = ["hunt", "softmax", "--seed", "7", "--count", "3"]
    ran = CliRunner().invoke(app, command)
    assert "2 of 3 problems in hunt-7.jsonl; the same command with --seed 7 resumes" in " ".join(ran.output.split())
    measured.clear()
    assert CliRunner().invoke(app, command).exit_code == 0
    assert len(measured) == 1


def test_nothing_is_measured_after_the_time(pretended_gpu, tmp_path, monkeypatch):
    """Compilers may give up a problem while the hunt waits for it."""
    nothing = beforehand.Prepared({}, {})

    def late(chosen, seconds):
        yield chosen[0], nothing
        monkeypatch.setattr("time.monotonic", lambda: math.inf)
        yield chosen[1], nothing

    monkeypatch.setattr(beforehand, "compiled", late)
    ran = CliRunner().invoke(app, ["hunt", "softmax", "--seed", "7", "--count", "3"])
    assert "1 of 3 problems in hunt-7.jsonl" in " ".join(ran.output.split()), ran.output


def test_the_shapes_that_were_hunted_are_as_keep_writes_them(tmp_path):
    kept = Path(__file__).parents[2] / "benchmark" / "hunted_shapes.yaml"
    copied = tmp_path / "hunted.yaml"
    copied.write_text(kept.read_text())
    assert hunt.keep(copied, []) == 0
    assert copied.read_text() == kept.read_text()


def test_without_a_gpu_the_command_says_so(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(app, ["hunt", "softmax", "--count", "2"])
    assert ran.exit_code == (2 if not torch.cuda.is_available() else ran.exit_code)
    listed = CliRunner().invoke(app, ["hunt", "softmax", "--count", "2", "--seed", "3", "--dry-run"])
    assert listed.exit_code == 0
    assert listed.output.splitlines()[0] == "--seed 3: 2 problems, 2 for each family: softmax"
    assert len(listed.output.splitlines()) == 3
    two = CliRunner().invoke(app, ["hunt", "softmax", "cumsum", "--count", "1", "--seed", "3", "--dry-run"])
    assert two.output.splitlines()[0] == "--seed 3: 2 problems, 1 for each family: softmax, scan"
    for words, message in ((["softmax", "--peers", "liger"], "--peers 'liger' is"), (["softmin"], "op 'softmin' is")):
        bad = CliRunner().invoke(app, ["hunt", *words, "--dry-run"])
        assert bad.exit_code == 2
        assert message in bad.output


def test_a_gpu_that_died_is_said_with_what_was_done_last(monkeypatch):
    def dead():
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    beforehand.check_context("softmax")
    monkeypatch.setattr(beforehand, "synchronize", dead)
    with pytest.raises(beforehand.ContextLostError, match=r"^the GPU cannot be used any more after softmax$") as raised:
        beforehand.check_context("softmax")
    assert "illegal memory access" in str(raised.value.__cause__)


def test_an_op_that_is_none_is_named_before_anything_starts():
    ran = CliRunner().invoke(app, ["hunt", "softmax", "softmin"])
    assert ran.exit_code == 2
    assert "op 'softmin' is not known; known: " in " ".join(ran.output.split())
