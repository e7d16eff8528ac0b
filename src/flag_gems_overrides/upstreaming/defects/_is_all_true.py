# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/_is_all_true.py."""
