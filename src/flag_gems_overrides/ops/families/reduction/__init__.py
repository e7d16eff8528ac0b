# SPDX-License-Identifier: Apache-2.0
"""Reductions: a policy for each operator, one set of kernels."""
