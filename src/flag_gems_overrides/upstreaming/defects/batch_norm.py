# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/batch_norm.py."""
