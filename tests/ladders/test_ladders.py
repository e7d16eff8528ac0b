# SPDX-License-Identifier: Apache-2.0
"""Every rung against float64; what it promises to move, counted; and the mistakes that these two checks must catch."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from flag_gems_overrides import interpreter
from flag_gems_overrides.perf import ladder_cuda
from flag_gems_overrides.perf.ladder import COMPILED, LadderError, load, names
from flag_gems_overrides.perf.ladder_climb import runnable
from flag_gems_overrides.perf.ladder_open import accesses
from flag_gems_overrides.perf.poison import poisoned
from flag_gems_overrides.perf.traffic import count

FOLDER = Path(__file__).parents[2] / "benchmark" / "ladders"
LADDERS = {name: load(name, FOLDER) for name in names(FOLDER)}
RUNGS = [(name, rung) for name, ladder in LADDERS.items() for rung in ladder.rungs]
TRAPS = [(name, rung) for name, ladder in LADDERS.items() for rung in ladder.traps]
# A few roundings of float32, relative to the largest value; for sums of up to 3000 terms.
TOLERANCE = 2e-6
# What programs write for each other, and statistics of a row beside the row.
PASSES_TOLERANCE = 0.06


def _variants(ladder) -> list[int]:
    return [value for values in ladder.variants.values() for value in values] or [0]


def _errors(name: str, rung: str, device: str) -> list[float]:
    """The rung's error for every small shape and variant that it supports."""
    ladder, errors = LADDERS[name], []
    for shape in ladder.small_shapes:
        call = runnable(ladder, rung, shape)
        if isinstance(call, str):
            if "does not support" in call:
                continue
            pytest.skip(call)
        for variant in _variants(ladder):
            inputs = ladder.inputs(shape, device, variant)
            if rung == COMPILED:
                with torch.no_grad():
                    call(*inputs)  # compiles, which must not see the poisoned allocators
            with torch.no_grad(), poisoned(), interpreter.undefined_lanes():
                result = call(*inputs)
            errors.append(ladder.error(result, ladder.reference(*inputs)))
    return errors


def _passes(name: str, rung: str) -> list[float]:
    """Bytes moved per compulsory byte, for every small shape with rows of some length."""
    ladder, passes = LADDERS[name], []
    for shape in ladder.small_shapes:
        if shape[-1] < 200:
            continue
        inputs = ladder.inputs(shape, "cpu")
        with torch.no_grad():
            _, traffic = count(functools.partial(ladder.module(rung).run, *inputs))
        necessary = sum(ladder.compulsory(inputs, ladder.reference(*inputs)))
        passes.append((traffic.loaded + traffic.stored + traffic.atomic) / necessary)
    return passes


@pytest.mark.filterwarnings("default")  # what compilers warn of is no failure of ours
@pytest.mark.parametrize(("name", "rung"), RUNGS)
def test_the_answer_is_right(name, rung, device):
    errors = _errors(name, rung, device)
    assert errors, "supports none of the small shapes"
    assert max(errors) < TOLERANCE


PROMISED = [
    (name, rung)
    for name, rung in RUNGS
    if LADDERS[name].rungs[rung].passes is not None and LADDERS[name].source(rung).suffix == ".py"
]


@pytest.mark.skipif(torch.cuda.is_available(), reason="bytes are counted in the interpreter")
@pytest.mark.parametrize(("name", "rung"), PROMISED)
def test_moves_what_it_promises(name, rung):
    promised = LADDERS[name].rungs[rung].passes
    assert all(passes == pytest.approx(promised, rel=PASSES_TOLERANCE) for passes in _passes(name, rung))


@pytest.mark.parametrize(("name", "rung"), [trap for trap in TRAPS if trap not in [("softmax", "trap_second_load")]])
def test_a_wrong_answer_is_caught(name, rung, device):
    assert max(_errors(name, rung, device)) > 100 * TOLERANCE


def test_some_shapes_do_not_show_the_mistake(device):
    """Why the small shapes have rows whose length is no power of 2, and more than one."""
    assert min(_errors("softmax", "trap_other_zero", device)) < TOLERANCE
    assert min(_errors("batch_norm", "trap_masked_lanes", device)) < TOLERANCE


@pytest.mark.skipif(torch.cuda.is_available(), reason="bytes are counted in the interpreter")
def test_a_second_load_is_caught_by_the_count_alone(device):
    assert max(_errors("softmax", "trap_second_load", device)) < TOLERANCE
    promised = LADDERS["softmax"].traps["trap_second_load"].passes
    assert min(_passes("softmax", "trap_second_load")) > promised * (1 + PASSES_TOLERANCE)


@pytest.mark.parametrize("source", sorted(FOLDER.glob("*/*.cu")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_cuda_compiles(source):
    if ladder_cuda.nvcc() is None:
        pytest.skip(ladder_cuda.NO_NVCC)
    library = ladder_cuda.build([source])[source]
    assert b"run\0" in library.read_bytes()


def test_an_error_of_the_compiler_names_the_file(tmp_path, monkeypatch):
    if ladder_cuda.nvcc() is None:
        pytest.skip(ladder_cuda.NO_NVCC)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = tmp_path / "ladder" / "wrong.cu"
    source.parent.mkdir()
    source.write_text("__global__ void kernel() { undeclared = 1; }\n")
    with pytest.raises(LadderError, match=r"wrong\.cu.*undeclared"):
        ladder_cuda.build([source])


@pytest.mark.parametrize("name", LADDERS)
def test_every_file_is_a_rung_that_says_what_it_does(name):
    ladder = LADDERS[name]
    files = {path.stem for path in ladder.folder.iterdir() if path.suffix in (".py", ".cu")} - {"__init__"}
    assert files == {*ladder.rungs, *ladder.traps}
    for rung in files:
        title, text = ladder.describe(rung)
        assert title
        assert len(text.split()) > 8, f"{rung}: say what it changes and why that should help"


@pytest.mark.parametrize("name", LADDERS)
def test_a_rung_is_compared_where_both_run(name):
    ladder = LADDERS[name]
    for rung in ladder.rungs.values():
        if rung.after is not None:
            shape = rung.target or ladder.target
            assert rung.supports(shape)
            assert ladder.rungs[rung.after].supports(shape)
            assert shape in [shape for shape, _ in ladder.cases()]


def test_accesses_of_ptx_are_counted_by_width():
    ptx = """
        ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd1 + 0 ];
        ld.global.nc.v4.f32 {%f1, %f2, %f3, %f4}, [%rd2];
        ld.global.L1::evict_last.b32 { %r5 }, [ %rd3 + 0 ];
        st.global.b32 [ %rd4 + 0 ], { %r6 };
        cp.async.cg.shared.global [ %r7 + 0 ], [ %rd5 + 0 ], 0x10, 0x10;
        cp.async.commit_group;
        ld.shared.b32 %r8, [%r9];
    """
    assert accesses(ptx) == {"cp.async": 1, "ld.b32": 1, "ld.v4.b32": 1, "ld.v4.f32": 1, "st.b32": 1}


COMPILE = """
import sys
from pathlib import Path
from flag_gems_overrides.perf.ladder_compile import main

for name, rung in zip(sys.argv[2::2], sys.argv[3::2]):
    main(name, rung, Path(sys.argv[1]))
    print("next rung")
"""


def _ptx(*rungs: tuple[str, str]) -> list[str]:
    """What Triton makes of rungs for sm_90, in a process that does not interpret."""
    command = [sys.executable, "-c", COMPILE, str(FOLDER), *(word for rung in rungs for word in rung)]
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split("next rung")[: len(rungs)]


def test_what_triton_makes_of_pairs_of_rungs():
    """A hint turns single loads into vectors; a maximum is one instruction, where a choice is two."""
    ragged = ("ragged", "triton_plain"), ("ragged", "triton_multiple_of")
    modulo = ("modulo", "triton_plain"), ("modulo", "triton_max_contiguous")
    relu = ("relu", "triton_where"), ("relu", "triton_maximum")
    *hints, where, maximum = _ptx(*ragged, *modulo, *relu)
    for before, after in (map(accesses, hints[:2]), map(accesses, hints[2:])):
        assert before["ld.b32"] == 8
        assert "ld.b32" not in after
        assert after["ld.v4.b32"] == before.get("ld.v4.b32", 0) + 2
    assert (where.count("setp.lt.f32"), where.count("selp.f32"), where.count("max.NaN.f32")) == (8, 8, 0)
    assert (maximum.count("setp.lt.f32"), maximum.count("selp.f32"), maximum.count("max.NaN.f32")) == (0, 0, 8)
