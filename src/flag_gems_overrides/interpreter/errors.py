# SPDX-License-Identifier: Apache-2.0
"""What only the interpreter can find out about a kernel."""

from __future__ import annotations


class OutOfBoundsError(IndexError):
    """An active lane addressed memory outside every tensor that the kernel was launched with."""


class DeadlockError(RuntimeError):
    """The programs of a cooperative launch all wait for something that none of them will do."""
