# SPDX-License-Identifier: Apache-2.0
"""Measure, record, judge, report: the half of the pipeline that holds overrides to their speed."""
