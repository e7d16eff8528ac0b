# SPDX-License-Identifier: Apache-2.0
"""Normalizations: layer_norm and its gradient."""
