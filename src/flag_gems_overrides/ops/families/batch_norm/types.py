# SPDX-License-Identifier: Apache-2.0
"""What a batch norm is planned for, what a plan can choose, and what is launched: plain numbers."""

from __future__ import annotations

from typing import NamedTuple

# Minimum tiles of a program that mean that no program shares a block of channels.
ALONE = 1 << 30
# channels: value of loads in a configuration that holds runs in two tiles.
TWO_TILES = 2


class Problem(NamedTuple):
    """Batch norm of [M, N, K] over M and K: the kernels' A, C and B. inputs: tensors of that size that are read, 1
    forward and 2 backward."""

    M: int
    N: int
    K: int
    itemsize: int
    inputs: int


class Configuration(NamedTuple):
    """What the tuner chooses: one of the kernels channels, groups and flat, and its parameters."""

    kernel: str
    channels: int  # of a program; flat: at least C to add up channels, 1 to add up places
    warps: int
    # of 16 bytes of each input that a thread has in flight, in groups a quarter of it if loads are of one element
    # channels: 1 for runs as a head, vectors and a tail, and for columns in two tiles; TWO_TILES for runs in two tiles
    loads: int = 0
    # groups: a thread has 65536 / 32 / warps_per_sm registers
    # channels: the same where a program holds a channel in tiles, of 16 bits as pairs; otherwise 0
    warps_per_sm: int = 0
    tiles: int = 1  # minimum of a program, as waits for other programs take time
    # groups: runs of B are read in pieces of a power of two; channels: short runs are held as columns
    padded: bool = False
    stages: int = 1  # of the loads of a loop
    blocks: int = 0  # groups: maximum blocks of channels at once; 0 for as many as there is room for


class Tiling(NamedTuple):
    """The part of [A, C, B] that a program has. Names as in tile.py."""

    channels: int
    block: int
    vec: int
    vectors: int
    total: int
    columns: bool
    run: int
    edges: int  # lanes of heads and tails; if it is not 0, ``vectors`` is the elements of a run
    int64_offsets: bool
    warps: int
    blocks: int  # of channels
    rest: int = 0  # of a second tile: rows of columns, or elements of channels

    @property
    def rows(self) -> int:
        """Rows, vectors, or pieces of a tile."""
        return self.block // (self.run or (1 if self.columns else self.vec))


class Channels(NamedTuple):
    """Programs that hold whole channels: the ``*_channels`` kernels."""

    tiling: Tiling
    again: bool  # gradients: x and dy are read again, from L1
    depth: int = 0  # tiles of ``block`` elements that a program holds, of 16 bits as pairs; 0 for a single one
    registers: int = 0  # maximum of a thread that holds such tiles


class Groups(NamedTuple):
    """``group`` programs to a block of channels, each with ``slice_size`` rows, vectors, or pieces of them."""

    tiling: Tiling
    group: int
    slice_size: int
    parts: int  # that the last program merges at a time
    programs: int
    registers: int  # maximum of a thread, so that ``programs`` fit on the device
    stages: int


class Flat(NamedTuple):
    """``group`` programs to a block of channels, each with ``slice_size`` tiles. Names as in flat.py."""

    channels: int
    rows_of_long: int  # rows of A
    width: int
    per_row: int
    rows: int
    lanes: int
    vec: int
    by_place: bool  # programs store sums of places for each other, not of channels
    tiles: int
    rest: int
    blocks: int
    group: int
    slice_size: int
    block_c: int
    block_e: int
    warps: int
    stages: int
    unit: int  # neighbouring places of one channel that a thread adds up

    @property
    def programs(self) -> int:
        return self.blocks * self.group

    @property
    def sums_per_row(self) -> int:
        """Sums of a channel in a long row."""
        return self.per_row // self.unit

    def part(self) -> int:
        """Elements of a channel in each part but the last."""
        return self.slice_size * self.rows * self.per_row


Launch = Channels | Groups | Flat
