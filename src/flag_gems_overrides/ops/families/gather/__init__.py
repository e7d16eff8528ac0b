# SPDX-License-Identifier: Apache-2.0
"""Losses that pick one class of each row: nll_loss with its gradient."""
