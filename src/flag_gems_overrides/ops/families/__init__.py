# SPDX-License-Identifier: Apache-2.0
"""The kernels, a folder for each family of operators."""
