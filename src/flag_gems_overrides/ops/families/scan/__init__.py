# SPDX-License-Identifier: Apache-2.0
"""Running sums along a dimension."""
