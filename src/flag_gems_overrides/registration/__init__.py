# SPDX-License-Identifier: Apache-2.0
"""Puts the table of operators into flag_gems and takes it out again exactly."""

from flag_gems_overrides.registration.enabling import Enabled, enable
from flag_gems_overrides.registration.installation import catalog, install, uninstall, use_overrides

__all__ = ["Enabled", "catalog", "enable", "install", "uninstall", "use_overrides"]
