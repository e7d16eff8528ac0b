# SPDX-License-Identifier: Apache-2.0
"""Upstream's ops/any.py."""
