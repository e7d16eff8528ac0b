# SPDX-License-Identifier: Apache-2.0
"""Measures the configurations of a family of kernels over a grid of problems, and writes the device's table.

Problems come coarse grid first, so that a tuner that is stopped early has looked everywhere once. Those of its finest
level take turns with random ones, as a hunt draws them.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from flag_gems_overrides.errors import UserError
from flag_gems_overrides.operators import OPERATORS
from flag_gems_overrides.ops.plans import table
from flag_gems_overrides.perf import problems, workers
from flag_gems_overrides.perf.baselines import slug
from flag_gems_overrides.perf.beforehand import (
    call_or_end,
    check_context,
    first_line,
    free,
    inputs_or_none,
    processes,
)
from flag_gems_overrides.perf.cases import Case, Shapes, parse
from flag_gems_overrides.perf.files import append, write
from flag_gems_overrides.perf.records import dumps
from flag_gems_overrides.perf.statistics import geomean

MAX_ELEMENTS = 1 << 28
# Configurations of a problem that are measured: the default and what the model thinks best.
CANDIDATES = 8
# A configuration that is faster than the default by less than both has not been shown to be faster.
MIN_GAIN, MIN_GAIN_US = 0.02, 0.1
ROUNDS, WARM_UP_SECONDS, SECOND_LOOK = 5, 0.004, 4
# Exponents of 2 of the grid: each level lies between the points of those before.
LEVELS = (8, 4, 2)
INNER_STEP = 4
# Groups of a sample, as most models have them.
MAX_GROUPS = 32
# Sizes of eight bytes and of one are rare: they are tuned on the coarser levels only.
_DTYPES = {"bfloat16": len(LEVELS), "float32": len(LEVELS), "float64": 2}
_REDUCTION_DTYPES = _DTYPES | {"uint8": 2, "int64": 2}
_KEPT_BYTES = 8 << 30


class Family(NamedTuple):
    """A family of kernels that can be tuned. Its ``plan`` and ``call`` are as DESIGN says: see ``ops/plans``."""

    package: str
    ops: tuple[str, ...]
    """Ops whose problems are all of the family's problems."""

    @property
    def name(self) -> str:
        return self.package.rpartition(".")[2]

    @property
    def plan(self) -> Any:
        return import_module(f"{self.package}.plan")

    @property
    def call(self) -> Any:
        return import_module(f"{self.package}.call")


_PACKAGE = "flag_gems_overrides.ops.families"
FAMILIES = {
    family.name: family
    for family in (
        Family(f"{_PACKAGE}.softmax", ("softmax", "softmax_backward")),
        Family(f"{_PACKAGE}.norm", ("layer_norm", "layer_norm_backward", "skip_layer_norm")),
        Family(f"{_PACKAGE}.group_norm", ("group_norm", "group_norm_backward")),
        Family(f"{_PACKAGE}.batch_norm", ("batch_norm", "batch_norm_backward")),
        Family(f"{_PACKAGE}.reduction", ("amax", "max_dim")),
        Family(f"{_PACKAGE}.scan", ("cumsum",)),
        Family(f"{_PACKAGE}.gather", ("nll_loss_backward", "nll_loss2d_backward")),
    )
}


class TuneError(UserError):
    """A journal or a table that cannot be used; the message names the file and the remedy."""


class Point(NamedTuple):
    """A problem of a family, and a case that has it."""

    family: Family
    case: Case
    problem: Any


class Measured(NamedTuple):
    """What a point's configurations took; as a row of the table."""

    family: str
    row: table.Row
    us: tuple[tuple[tuple, float], ...] = ()
    """Of each configuration. The journal keeps them: what a rule of lookup would have chosen can be computed."""


# The grid.


def cases(family: Family, shapes: Shapes, seed: int) -> Iterator[Case]:
    """Cases of the family's ops: those of the shape file, then a grid of (M, N, K) with ever smaller steps.

    Args:
        seed: where in its cell of the grid a problem lies, and which are the random ones.
    """
    for op in family.ops:
        if op in shapes.ops:
            yield from shapes.cases(op, "comprehensive", ["bfloat16", "float32"])
    rng = random.Random(seed)
    drawn = set()
    # Of other seeds than a hunt has, which would be judged by problems that were tuned. The finest level has one for
    # each of its own: the grid has no K of 3.
    streams = {op: problems.cases(op, -1 - seed) for op in family.ops}
    for level, step in enumerate(LEVELS):
        inner = "normalized" not in OPERATORS[family.ops[0]].arguments
        places = [place for place in _places(step, inner) if place not in drawn]
        drawn.update(places)
        rng.shuffle(places)
        dtypes = _REDUCTION_DTYPES if "uint8" in OPERATORS[family.ops[0]].dtypes else _DTYPES
        wanted = [dtype for dtype, levels in dtypes.items() if level < levels]
        for (m, n, k), dtype, odd in itertools.product(places, wanted, (False, True)):
            for op in family.ops:
                yield _case(op, tuple(_size(rng, e, step, odd) for e in (m, n, k)), dtype)
                if step == LEVELS[-1]:
                    yield next(streams[op])


def _places(step: int, inner: bool) -> list[tuple[int, int, int]]:
    """Exponents of M, N and K; K = 1 is a class of its own and has all steps, larger ones no finer than INNER_STEP."""
    most = math.frexp(MAX_ELEMENTS)[1] - 1
    flat = [(m, n, 0) for m, n in itertools.product(range(0, most + 1, step), repeat=2) if 0 < m + n <= most]
    if not inner:
        return flat
    coarse = range(0, most + 1, max(step, INNER_STEP))
    deep = [(m, n, k) for m, n, k in itertools.product(coarse, coarse, coarse) if k and m + n + k <= most]
    return flat + deep


def _size(rng: random.Random, exponent: int, step: int, odd: bool) -> int:
    """About 2 to the ``exponent``: odd, or of whole vectors."""
    if not exponent:
        return 1
    n = round(2 ** (exponent + rng.uniform(-step / 4, step / 4)))
    if odd:
        return n | 1
    return max(n // 16 * 16, 1) if n >= 16 else 1 << (n.bit_length() - 1)


def _case(op: str, sizes: tuple[int, ...], dtype: str) -> Case:
    M, N, K = sizes
    if "normalized" in OPERATORS[op].arguments:
        return Case(op, (M, N), dtype, (("normalized", 1),))
    if "groups" in OPERATORS[op].arguments:
        groups = math.gcd(M, MAX_GROUPS)
        return Case(op, (M // groups, groups * N, K), dtype, (("groups", groups),))
    dim = (("dim", 1),) if "dim" in OPERATORS[op].arguments else ()
    # With K left out where an op has none: points are of problems, each once.
    return Case(op, (M, N, K, 1)[: OPERATORS[op].ndim or (3 if K > 1 else 2)], dtype, dim)


def points(family: Family, shapes: Shapes, seed: int) -> Iterator[Point]:
    """The family's problems, each once, with a case."""
    from flag_gems_overrides.perf import op_inputs

    known = set()
    for case in cases(family, shapes, seed):
        if not 0 < math.prod(case.shape) <= 4 * MAX_ELEMENTS:
            continue
        problem = family.call.problem(case.op, *op_inputs.arguments(case, "meta"))
        if problem not in known:
            known.add(problem)
            yield Point(family, case, problem)


def in_turn(lists: Sequence[Sequence[Point]]) -> list[Point]:
    """The first of each list, then the second of each, and so on."""
    rounds = itertools.zip_longest(*lists)
    return [point for each in rounds for point in each if point is not None]


def candidates(point: Point, limits: Any) -> list[Any]:
    """The default configuration, then the others that the model thinks best."""
    plan = point.family.plan
    default, *others = plan.configurations(point.problem, limits)
    others.sort(key=lambda configuration: plan.estimate(point.problem, configuration, limits))
    return [default, *others[: CANDIDATES - 1]]


# Compiling, in worker processes.


def compile_all(chosen: Iterable[Point], limits: Any, seconds: float) -> dict[tuple[str, str, tuple], str]:
    """Launch each candidate once, on all cores, for so many seconds at most. Returns which ended their process."""
    tasks = [
        (point.family.package, point.case.key, tuple(configuration))
        for point in chosen
        for configuration in candidates(point, limits)
    ]
    answers = workers.run(f"{__name__}:compiler", tasks, processes(), seconds, {"OMP_NUM_THREADS": "1"})
    return {answer.task: answer.died for answer in answers if answer.died}


def compiler() -> Callable[[list], None]:
    """In a worker: what launches a case in a configuration."""
    from flag_gems_overrides import environment

    environment.load()
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"

    def call(task: list) -> None:
        package, key, values = task
        family = Family(package, ())
        case = parse(key)
        configuration = family.plan.Configuration(*values)
        inputs = inputs_or_none(case, device)
        if inputs is not None:
            call_or_end(family.call.launch_with, (configuration, case.op, *inputs))
        free(_KEPT_BYTES // 8)

    return call


# Measuring.


class Tuner:
    """Times the candidates of points beside each other on the current GPU.

    Args:
        timer: a :class:`timing.Timer`.
        limits: of its device.
    """

    def __init__(self, timer: Any, limits: Any) -> None:
        self._timer = timer
        self._limits = limits
        self.died: Mapping[tuple[str, str, tuple], str] = {}
        """What :func:`compile_all` returned: not to be launched here."""
        self.copy_gbps = round(timer.bandwidth()[0], 1)
        self.errors: list[str] = []
        """Configurations that failed or answered wrongly."""

    def measure(self, point: Point) -> Measured | None:
        """The row of a point; None if its default configuration does not work."""
        from flag_gems_overrides.perf import op_inputs
        from flag_gems_overrides.perf.answers import Reference

        necessary = op_inputs.compulsory(point.case).total
        inputs = [op_inputs.arguments(point.case, self._timer.device) for _ in range(self._timer.group(necessary))]
        reference = Reference(point.case.op, inputs[0])
        calls = {
            configuration: [
                functools.partial(point.family.call.launch_with, configuration, point.case.op, *arguments)
                for arguments in inputs
            ]
            for configuration in candidates(point, self._limits)
            if self._works(point, configuration, inputs[0], reference)
        }
        default = point.family.plan.configurations(point.problem, self._limits)[0]
        if default not in calls:
            return None
        us = self._us(calls, default)
        free(_KEPT_BYTES)
        best = min(us, key=lambda configuration: us[configuration])
        if us[best] > us[default] * (1 - MIN_GAIN) or us[best] > us[default] - MIN_GAIN_US:
            best = default
        row = table.Row(
            tuple(point.problem),
            None if best == default else tuple(best),
            round(us[best], 3),
            round(us[default], 3),
            min((round(t, 3) for configuration, t in us.items() if configuration != best), default=None),
            float(f"{necessary / us[best] / 1e3 / self.copy_gbps:.3g}"),
        )
        return Measured(point.family.name, row, tuple((tuple(each), round(t, 3)) for each, t in us.items()))

    def _works(self, point: Point, configuration: Any, inputs: Any, reference: Any) -> bool:
        from flag_gems_overrides.perf.poison import poisoned

        where = f"{point.case.key}: {tuple(configuration)}"
        reason = self.died.get((point.family.package, point.case.key, tuple(configuration)))
        if reason is None:
            try:
                with poisoned():
                    answer = point.family.call.launch_with(configuration, point.case.op, *inputs)
                if reference.is_right(answer):
                    return True
                reason = "its answer is not PyTorch's"
            except Exception as error:
                check_context(where)
                reason = first_line(error)
        self.errors.append(f"{where}: {reason}")
        return False

    def _us(self, calls: Mapping[Any, Any], default: Any) -> dict[Any, float]:
        """Microseconds of each configuration: a brief look at all, and a longer one at the default and the fastest."""
        us = _medians(self._timer.device_times(calls))
        fastest = sorted(us, key=lambda configuration: us[configuration])[:2]
        if us[fastest[0]] < us[default] * (1 - MIN_GAIN):
            again = {configuration: calls[configuration] for configuration in {*fastest, default}}
            us |= _medians(self._timer.device_times(again, effort=SECOND_LOOK))
        return us


def _medians(times: Any) -> dict[Any, float]:
    return {name: median(samples) * 1e3 for name, samples in times.samples_ms.items()}


# The journal.


class Journal:
    """What is measured, line by line, so that an interrupted tuner goes on.

    Args:
        head: the conditions; a journal of others is not gone on with.

    Raises:
        TuneError: it is of other conditions, is no journal, or cannot be written.
    """

    def __init__(self, path: Path, head: Mapping[str, Any]) -> None:
        self._path = path
        self.rows: dict[str, dict[tuple, table.Row]] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            text = path.read_bytes() if path.exists() else b""
            whole = text[: text.rfind(b"\n") + 1]
            lines = whole.splitlines()
            if lines and self._parsed(lines[0], 1).get("head") != json.loads(json.dumps(head)):
                raise TuneError(f"{path}: was measured under other conditions; remove it, or name another --journal")
            for number, line in enumerate(lines[1:], 2):
                self._read(line, number)
            self._file = path.open("r+b" if path.exists() else "w+b", buffering=0)
            self._file.truncate(len(whole))
        except OSError as error:
            raise TuneError(f"{path}: {error.strerror}; give a path that can be written") from None
        if not lines:
            self._append({"head": head})

    def add(self, measured: Measured) -> None:
        self._append({"family": measured.family, "row": measured.row._asdict(), "us": measured.us})
        self.rows.setdefault(measured.family, {})[measured.row.problem] = measured.row

    def close(self) -> None:
        self._file.close()

    def _read(self, line: bytes, number: int) -> None:
        parsed = self._parsed(line, number)
        try:
            row = table.Row(**parsed["row"])
            problem = tuple(row.problem)
            configuration = None if row.configuration is None else tuple(row.configuration)
            self.rows.setdefault(parsed["family"], {})[problem] = row._replace(
                problem=problem, configuration=configuration
            )
        except (KeyError, TypeError) as error:
            raise TuneError(f"{self._path} line {number}: {error}; remove it, or name another --journal") from None

    def _parsed(self, line: bytes, number: int) -> dict[str, Any]:
        try:
            parsed: dict[str, Any] = json.loads(line)
        except ValueError as error:
            raise TuneError(f"{self._path} line {number}: not JSON: {error}") from None
        if not isinstance(parsed, dict):
            raise TuneError(f"{self._path} line {number}: {parsed!r} is no object")
        return parsed

    def _append(self, line: Mapping[str, Any]) -> None:
        try:
            append(self._file.fileno(), dumps(line))
        except OSError as error:
            raise TuneError(
                f"{self._path}: {error.strerror}; the lines before are whole: make room, and the same command goes on"
            ) from None


# The table.


class Change(NamedTuple):
    """How a family's rows in a table differ from those before."""

    family: str
    rows: int
    tuned: int
    """Rows whose configuration is not the default."""
    gain: float
    """Geometric mean over these of the default's time over theirs."""
    changed: list[tuple[table.Row, table.Row]]
    """(Before, now) of the problems in both whose configuration is another, the largest change of time first."""


def table_path(device: str) -> Path:
    """Where the table of a device belongs."""
    return table.FOLDER / f"{slug(device)}.json"


def save(path: Path, content: Mapping[str, Any], rows: Mapping[str, Iterable[table.Row]]) -> list[Change]:
    """Write a table; families that are not among ``rows`` stay as they are there.

    Args:
        content: all of the file but its families.

    Raises:
        TableError: the table that is there cannot be read.
    """
    before = table.load(path).families if path.exists() else {}
    now = dict(before) | {family: tuple(sorted(new, key=lambda row: row.problem)) for family, new in rows.items()}
    write(path, text(content, now))
    table.load(path)
    return [_change(family, before.get(family, ()), now[family]) for family in sorted(rows)]


def text(content: Mapping[str, Any], families: Mapping[str, Sequence[table.Row]]) -> str:
    """A table as JSON, a row a line."""
    lines = [f"  {json.dumps(name)}: {dumps(value)}," for name, value in content.items()]
    blocks = []
    for name in sorted(families):
        rows = ",\n".join(f"      {json.dumps(row._asdict())}" for row in families[name])
        blocks.append(f"    {json.dumps(name)}: [\n{rows}\n    ]")
    return "{\n" + "\n".join(lines) + '\n  "families": {\n' + ",\n".join(blocks) + "\n  }\n}\n"


def _change(family: str, before: Sequence[table.Row], now: Sequence[table.Row]) -> Change:
    old = {row.problem: row for row in before}
    tuned = [row for row in now if row.configuration is not None]
    changed = [
        (old[row.problem], row)
        for row in now
        if row.problem in old and old[row.problem].configuration != row.configuration
    ]
    changed.sort(key=lambda pair: -abs(math.log(pair[0].us / pair[1].us)))
    gain = geomean(row.default_us / row.us for row in tuned) if tuned else 1.0
    return Change(family, len(now), len(tuned), gain, changed)
