# SPDX-License-Identifier: Apache-2.0
"""Which configuration was the fastest for which problem, by device: ``<device>.json`` in this folder.

`gems-overrides tune` writes these tables. A row's configuration is null where none was faster than the default, the
first that the family lists. A family asks once for each shape, not for each call.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    from ..launch.devices import Limits

SCHEMA = 1
FOLDER = Path(__file__).parent
# A table says nothing of devices with so many times as many multiprocessors, or as few.
MAX_SM_RATIO = 4
# In log2 of (M, N, K). The fastest configuration of a problem takes 0.99 times as long as what the estimates choose for
# another within 0.3 of it, 1.00 times within 1, and 1.013 times at 1 to 2 (1166 problems, H100).
MAX_DISTANCE = 1.0

P = TypeVar("P", bound=Any)
C = TypeVar("C", bound=tuple)


class TableError(ValueError):
    """A table that cannot be used; the message names file and field."""


class Row(NamedTuple):
    """One problem, as plain values of the family's named tuples, with measured microseconds."""

    problem: tuple[int | bool, ...]
    configuration: tuple[int | bool | str, ...] | None
    us: float
    default_us: float
    next_us: float | None
    """Of the runner-up; None if there was no other configuration."""
    share: float
    """Of the copy bandwidth: compulsory bytes over time."""


_FIELDS = set(Row._fields)
_NUMBERS = {int, bool}
_PLAIN = {int, bool, str}


class Table(NamedTuple):
    """What was measured on one device."""

    path: Path
    device: dict[str, Any]
    families: dict[str, tuple[Row, ...]]


def load(path: Path) -> Table:
    """Read a table and check all of it.

    Raises:
        TableError: it cannot be read, or a field is not what it should be.
    """
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise TableError(f"{path}: {error.strerror}; gems-overrides tune writes tables") from None
    except ValueError as error:
        raise TableError(f"{path}: not JSON: {error}") from None
    check = _Check(path)
    check.keys("", content, ("schema", "device", "versions", "date", "command", "families"))
    if content["schema"] != SCHEMA:
        raise check.error("schema", f"{content['schema']!r} is not known here, {SCHEMA} is")
    device = content["device"]
    check.keys("device", device, ("name", "capability", "sm_count", "l2_bytes", "copy_gbps"))
    check.is_("device.name", device["name"], str)
    check.integers("device.capability", device["capability"], (int,))
    if len(device["capability"]) != 2:
        raise check.error("device.capability", f"{device['capability']!r} is not [major, minor]")
    for name in ("sm_count", "l2_bytes", "copy_gbps"):
        check.positive(f"device.{name}", device[name])
    for name in ("versions", "families"):
        check.is_(name, content[name], dict)
    for name in ("date", "command"):
        check.is_(name, content[name], str)
    families = {family: check.rows(family, rows) for family, rows in content["families"].items()}
    return Table(path, device, families)


class _Check:
    """What may stand in a table."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def error(self, field: str, why: str) -> TableError:
        return TableError(f"{self._path}: {field}: {why}; correct it, or tune again: gems-overrides tune")

    def is_(self, field: str, value: Any, *kinds: type) -> None:
        if type(value) not in kinds:
            names = " or ".join(kind.__name__ for kind in kinds)
            raise self.error(field, f"{value!r} should be {names}")

    def keys(self, field: str, value: Any, names: tuple[str, ...]) -> None:
        self.is_(field or "file", value, dict)
        for name in sorted(value.keys() ^ set(names)):
            raise self.error(f"{field}.{name}".lstrip("."), "is missing" if name in names else "is not known")

    def positive(self, field: str, value: Any) -> None:
        self.is_(field, value, int, float)
        if not 0 < value < math.inf:
            raise self.error(field, f"{value!r} should be positive")

    def integers(self, field: str, value: Any, kinds: tuple[type, ...]) -> None:
        self.is_(field, value, list)
        for i, each in enumerate(value):
            self.is_(f"{field}[{i}]", each, *kinds)

    def rows(self, family: str, rows: Any) -> tuple[Row, ...]:
        self.is_(f"families.{family}", rows, list)
        for i, row in enumerate(rows):
            # Names of fields are made for what is wrong: for thousands of rows they would take most of the time.
            if not _is_row(row):
                self.row(f"families.{family}[{i}]", row)
        return tuple(
            Row(
                tuple(row["problem"]),
                row["configuration"] and tuple(row["configuration"]),
                row["us"],
                row["default_us"],
                row["next_us"],
                row["share"],
            )
            for row in rows
        )

    def row(self, field: str, row: Any) -> None:
        """Raise an error that says what is wrong with a row."""
        self.keys(field, row, Row._fields)
        self.integers(f"{field}.problem", row["problem"], (int, bool))
        if row["configuration"] is not None:
            self.integers(f"{field}.configuration", row["configuration"], (int, bool, str))
        for name in ("us", "default_us", "next_us", "share"):
            if name != "next_us" or row[name] is not None:
                self.positive(f"{field}.{name}", row[name])
        raise self.error(field, "is no row")


def _is_row(row: Any) -> bool:
    return (
        type(row) is dict
        and row.keys() == _FIELDS
        and type(row["problem"]) is list
        and _NUMBERS.issuperset(map(type, row["problem"]))
        and (row["configuration"] is None or _is_configuration(row["configuration"]))
        and (row["next_us"] is None or _is_positive(row["next_us"]))
        and all(_is_positive(row[name]) for name in ("us", "default_us", "share"))
    )


def _is_configuration(value: Any) -> bool:
    return type(value) is list and _PLAIN.issuperset(map(type, value))


def _is_positive(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < math.inf


def nearest(limits: Limits) -> Table | None:
    """This device's table, or that of the device most like it: by capability, then by multiprocessors and L2."""
    return _nearest(limits, FOLDER)


def describe(limits: Limits) -> str:
    """Where this device's plans come from, in words."""
    table = nearest(limits)
    if table is None:
        return "by estimates: there is no table of a GPU like this one"
    name, sm_count = table.device["name"], table.device["sm_count"]
    if (sm_count, tuple(table.device["capability"])) == (limits.sm_count, limits.capability):
        return f"the table of {name}"
    return f"the table of {name}, scaled from {sm_count} to {limits.sm_count} multiprocessors"


@functools.lru_cache(maxsize=64)
def _nearest(limits: Limits, folder: Path) -> Table | None:
    tables = [_loaded(path) for path in sorted(folder.glob("*.json"))]
    near = [each for each in tables if 1 / MAX_SM_RATIO <= each.device["sm_count"] / limits.sm_count <= MAX_SM_RATIO]
    return min(near, key=lambda each: _unlike(each, limits), default=None)


_loaded = functools.lru_cache(maxsize=64)(load)


def _unlike(table: Table, limits: Limits) -> tuple[int, float, int]:
    (major, minor), device = table.device["capability"], table.device
    size = abs(math.log2(device["sm_count"] / limits.sm_count)) + abs(math.log2(device["l2_bytes"] / limits.l2_bytes))
    return abs(major - limits.capability[0]), size, abs(minor - limits.capability[1])


def lookup(
    family: str,
    problem: P,
    class_of: Callable[[P], Hashable],
    configuration: type[C],
    launch_or_none: Callable[[P, C, Limits], object | None],
    limits: Limits,
) -> C | None:
    """The configuration that was the fastest for the nearest problem of the same class; None for the default.

    Args:
        problem: a named tuple of numbers with the fields M, N and K.
        class_of: equal for two problems that may share a configuration.
        configuration: the family's named tuple.
        launch_or_none: what a configuration launches; None where it is not legal for the problem.
    """
    table = nearest(limits)
    if table is None or family not in table.families:
        return None
    kind: Any = type(problem)
    rows = _by_class(table.path, family, kind, class_of, configuration).get(class_of(problem), ())
    # A device with twice the multiprocessors has twice the rows for each.
    scale = math.log2(table.device["sm_count"] / limits.sm_count)
    place = _place(problem)
    place = (place[0] + scale, *place[1:])
    near = [(distance, i) for i, (at, _) in enumerate(rows) if (distance := math.dist(at, place)) <= MAX_DISTANCE]
    for _, i in sorted(near):
        found = rows[i][1]
        if found is None or launch_or_none(problem, found, limits) is not None:
            return found
    return None


@functools.lru_cache(maxsize=64)
def _by_class(
    path: Path, family: str, problem: type, class_of: Callable, configuration: type
) -> dict[Hashable, list[tuple[tuple[float, ...], Any]]]:
    """(Place, configuration) of the rows of each class."""
    groups: dict[Hashable, list[tuple[tuple[float, ...], Any]]] = {}
    for i, row in enumerate(_loaded(path).families[family]):
        field = f"families.{family}[{i}]"
        made = _made(path, f"{field}.problem", problem, row.problem)
        if min(made.M, made.N, made.K) < 1:
            raise TableError(f"{path}: {field}.problem: {list(row.problem)} has a size below 1")
        best = row.configuration
        if best is not None:
            best = _made(path, f"{field}.configuration", configuration, best)
        groups.setdefault(class_of(made), []).append((_place(made), best))
    return groups


def _made(path: Path, field: str, kind: Any, values: tuple) -> Any:
    if not len(kind._fields) - len(kind._field_defaults) <= len(values) <= len(kind._fields):
        raise TableError(f"{path}: {field}: {list(values)} should be ({', '.join(kind._fields)})")
    return kind(*values)


def _place(problem: Any) -> tuple[float, float, float]:
    return math.log2(problem.M), math.log2(problem.N), math.log2(problem.K)
