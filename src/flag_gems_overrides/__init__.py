# SPDX-License-Identifier: Apache-2.0
"""Faster, corrected FlagGems operators that register over the installed ``flag_gems``.

    import flag_gems
    import flag_gems_overrides

    flag_gems_overrides.install()
    flag_gems.enable()

or both in one, without the operators of flag_gems that are known to be wrong on this version and device:

    flag_gems_overrides.enable()

Importing this package imports neither torch nor triton nor flag_gems, so that
``flag_gems_overrides.interpreter.activate()`` can still come before them.
"""

from flag_gems_overrides.registration import catalog, enable, install, uninstall, use_overrides

__all__ = ["__version__", "catalog", "enable", "install", "uninstall", "use_overrides"]


def __getattr__(name: str) -> str:
    if name == "__version__":  # reading the metadata takes longer than importing this package
        from importlib.metadata import version

        return version("flag-gems-overrides")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
