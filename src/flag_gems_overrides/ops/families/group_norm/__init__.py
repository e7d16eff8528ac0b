# SPDX-License-Identifier: Apache-2.0
"""Group normalization, forward and backward."""
