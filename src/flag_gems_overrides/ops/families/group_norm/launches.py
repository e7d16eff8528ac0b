# SPDX-License-Identifier: Apache-2.0
"""What a group norm is planned for, what a plan can choose, and the launch that a choice means: plain numbers."""

from __future__ import annotations

from typing import NamedTuple


class Problem(NamedTuple):
    """Group norm of M rows, N channels of K elements each: the kernels' N * G, D and HW.

    groups: of a sample, M / groups samples. inputs: tensors of that size that are read, 1 forward and 2 backward.
    dx: backward, whether the gradient of the input is wanted.
    """

    M: int
    N: int
    K: int
    groups: int
    itemsize: int
    inputs: int
    dx: bool = False

    @property
    def size(self) -> int:
        """Elements of a group."""
        return self.N * self.K

    @property
    def samples(self) -> int:
        return self.M // self.groups


class Configuration(NamedTuple):
    """What the tuner chooses. Kernels: short, whose threads have whole groups, forward; rows, which holds whole groups
    as they lie; tile, which holds whole groups as channels x elements, in gradients; few, programs that hold whole
    groups beside programs that hold whole channels, in gradients; loop, one program to a group; split, several;
    channels, programs that hold the same channels of one sample after the other, in gradients."""

    kernel: str
    warps: int
    groups: int = 1  # of a program: forward rows, tile
    vec: int = 1  # elements of a load, where a group is read as it lies
    vectors: int = 1  # loop, split: of a tile, for each thread; forward rows: chunks of a small group
    block_d: int = 0  # tile and few; loop and split of aligned channels of gradients: channels of a tile
    block_hw: int = 0  # and elements of each
    # most, where programs have several tiles; forward rows: that there is room for, where pairs of 16 bits are held
    programs_per_sm: int = 0
    stages: int = 1  # of the loads of a loop


class Vectors(NamedTuple):
    """A group as it lies: names as in vectors.py."""

    lanes: int
    vec: int
    span: int
    unaligned: bool


class ShortRows(NamedTuple):
    """Forward of groups of a few elements, ``rows`` of them, which are whole vectors of ``vec``, to a thread."""

    programs: int
    groups: int
    rows: int
    vec: int
    warps: int


class Rows(NamedTuple):
    """Forward: programs that hold ``groups`` whole groups, ``chunks`` times ``lanes`` vectors of each."""

    programs: int
    groups: int
    chunks: int
    vectors: Vectors
    early: bool
    warps: int
    registers: int = 0  # maximum of a thread that holds pairs of 16 bits; 0 where it does not

    def int64_rows(self) -> bool:
        """Whether numbers of groups exceed int32."""
        return (self.programs + 1) * self.groups > 2**31


class Loop(NamedTuple):
    """Forward: programs that have a group to themselves."""

    programs: int
    vectors: Vectors
    warps: int
    stages: int


class Split(NamedTuple):
    """Forward: ``splits`` programs to a group, with ``slice_size`` vectors each; then one for each of ``tiles``."""

    splits: int
    slice_size: int
    tiles: int
    vectors: Vectors
    warps: int
    stages: int


class Tile(NamedTuple):
    """Backward: programs that hold ``groups`` whole groups at a time, the same ones of ``samples`` samples."""

    programs: int
    samples: int
    groups: int
    block_d: int
    block_hw: int
    vec: int
    warps: int
    stages: int
    chunks: int  # of the elements of a channel, loaded one after the other


class BackwardFew(NamedTuple):
    """``group_programs`` that hold ``groups`` whole groups of ``block`` lanes, for dx, and ``channel_programs`` that
    hold ``block_c`` channels of ``block_hw`` lanes, of ``samples`` samples at a time."""

    group_programs: int
    groups: int
    block: int
    vec: int
    channel_programs: int
    samples: int
    block_c: int
    block_hw: int
    channels_vec: int
    warps: int


class BackwardRows(NamedTuple):
    """Programs that hold a group, the same one of all their samples, and add up ``columns`` numbers at the end."""

    programs: int
    chunks: int
    vectors: Vectors
    columns: int
    block_d: int
    block_k: int
    warps: int
    stages: int


class Sums(NamedTuple):
    """Tiles of ``block_d`` channels x ``block_hw`` elements; ``whole`` if one of them has a channel, or with a second
    one, of ``rest_hw`` elements. ``unaligned``: vectors and edges of each channel as it lies, else loads of ``vec``."""

    block_d: int
    block_hw: int
    rest_hw: int
    whole: bool
    vec: int
    unaligned: bool
    stages: int


class BackwardLoop(NamedTuple):
    """Programs that have a group to themselves."""

    programs: int
    sums: Sums
    vectors: Vectors
    warps: int
    stages: int


class BackwardSplit(NamedTuple):
    """``parts`` programs to a group, of ``sums_warps``: ``splits`` slices of ``slice_size`` elements of each ``blocks``
    blocks of channels; then one for each of ``tiles``."""

    parts: int
    splits: int
    slice_size: int
    blocks: int
    tiles: int
    sums: Sums
    sums_warps: int
    vectors: Vectors
    warps: int


class BackwardChannels(NamedTuple):
    """First ``parts`` programs to a group, with a slice of ``slice_size`` vectors each, for its two sums alone; then
    ``programs`` that hold ``block_d`` channels of ``block_hw`` elements, the same ones of each ``shares``-th sample,
    in loads of ``vec``, and load those of the next one ``ahead`` of their use."""

    parts: int
    slice_size: int
    vectors: Vectors
    stages: int
    programs: int
    shares: int
    block_d: int
    block_hw: int
    vec: int
    ahead: bool
    warps: int


Forward = ShortRows | Rows | Loop | Split
Launch = Forward | Tile | BackwardFew | BackwardRows | BackwardLoop | BackwardSplit | BackwardChannels
