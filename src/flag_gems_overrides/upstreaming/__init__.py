# SPDX-License-Identifier: Apache-2.0
"""Upstream's defects, and the way of an override into a pull request."""
