# SPDX-License-Identifier: Apache-2.0
"""The fork: one file for each upstream ops file, under the same names."""
