# SPDX-License-Identifier: Apache-2.0
"""Measures the configurations of a family of kernels over a grid of problems, and writes the device's table."""
