# SPDX-License-Identifier: Apache-2.0
"""Kernel launches that are prepared once: allocation, workspace, limits of the device."""
