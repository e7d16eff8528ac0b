# SPDX-License-Identifier: Apache-2.0
"""One operator at a time, from the obvious way to the fastest one; ``docs/ladders.md`` is the tour.

Each folder is a ladder. Its ``__init__.py`` has:

    RUNGS         the rungs in the order of the climb, each with the passes over memory that it promises
    TRAPS         rungs with a well-known mistake, which the tests must catch
    TARGET        the shape that the ladder is about
    SHAPES        what is measured: for each scan of one dimension its shapes
    HOT           shapes that are also measured without flushing the L2 cache: one that fits, one that does not
    SMALL_SHAPES  what is tested, and counted in the interpreter
    VARIANTS      an integer argument of the operator and its values, if it has one
    OPERATIONS    floating-point operations per element, for the roofline
    inputs        arguments of a rung's ``run`` for a shape
    reference     the right answer for inputs that are float64
"""

# In the order of the tour.
LADDERS = (
    "softmax",
    "gelu",
    "gelu_backward",
    "bias_gelu",
    "log_softmax",
    "batch_norm",
    "relu",
    "ragged",
    "modulo",
)
