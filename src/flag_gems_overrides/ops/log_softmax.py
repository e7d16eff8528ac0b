# SPDX-License-Identifier: Apache-2.0
"""log_softmax and its gradient over one dimension, for floating point tensors of any shape, strides and size."""

from __future__ import annotations

import logging

import torch

from .families.softmax.call import backward, forward

logger = logging.getLogger("flag_gems.ops.log_softmax")


def log_softmax(self: torch.Tensor, dim: int, half_to_float: bool = False) -> torch.Tensor:
    """``aten::_log_softmax``.

    Args:
        self: float16, bfloat16, float32 or float64, of any shape; float64 is computed in float64, the rest in float32.
        dim: the reduced dimension, negative from the end.
        half_to_float: give a float32 result of a float16 tensor.

    Returns:
        A contiguous tensor of ``self``'s shape.

    Raises:
        IndexError: ``dim`` is out of range.
        RuntimeError: ``half_to_float`` for a tensor that is not float16.
    """
    logger.debug("GEMS LOG_SOFTMAX")
    return forward(self, dim, half_to_float, True)


def log_softmax_backward(
    grad_output: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: torch.dtype
) -> torch.Tensor:
    """``aten::_log_softmax_backward_data``: the gradient by the input.

    Args:
        grad_output: the gradient by the result.
        output: what the forward returned; shape and dtype of ``grad_output``.
        dim: the reduced dimension, negative from the end.
        input_dtype: dtype of the forward's input and of the gradient: that of ``output``, or float16 where the
            forward turned half to float.

    Raises:
        IndexError: ``dim`` is out of range.
        RuntimeError: the two tensors have different shapes, or ``input_dtype`` does not belong to theirs.
    """
    logger.debug("GEMS LOG_SOFTMAX VJP")
    return backward(grad_output, output, dim, input_dtype, True)
