# SPDX-License-Identifier: Apache-2.0
"""A family of kernels that has none: what the tuner needs of one, over PyTorch."""
