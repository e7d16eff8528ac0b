# SPDX-License-Identifier: Apache-2.0
"""Batch normalization, forward and backward."""
