# SPDX-License-Identifier: Apache-2.0
"""Whether the overrides work on this machine with its packages: the facts behind ``gems-overrides doctor``."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

from flag_gems_overrides import harmful, interpreter, registration, requirements
from flag_gems_overrides.operators import OPERATORS, Operator
from flag_gems_overrides.registration import compat, enabling, upstream

PACKAGES = ("flag_gems_overrides", "flag_gems", "torch", "triton")


@dataclass(frozen=True)
class Environment:
    versions: dict[str, str]
    """Python and each of :data:`PACKAGES`; ``"not installed"`` where it is not."""
    device: str
    """What kernels run on, in words."""
    plans: str
    """Where their configurations come from, in words."""
    overrides: tuple[Operator, ...]
    """The catalog; whether flag_gems can have an override is known only without a :attr:`problem`."""
    cautions: tuple[str, ...]
    """What has not been tried, and what install() repairs."""
    problem: str | None
    """Why flag_gems cannot be used here at all."""

    @property
    def usable(self) -> bool:
        return self.problem is None and any(override.left_out is None for override in self.overrides)


def load() -> ModuleType:
    """Import flag_gems, in Triton's interpreter where there is no GPU; triton and flag_gems must not come before.

    Raises:
        RuntimeError: Triton is of another version, or was imported before; the message says what to do.
        ImportError: flag_gems, PyTorch or Triton is not there, or broken.
    """
    import torch

    if not torch.accelerator.is_available():
        interpreter.activate()
    return upstream.load()


def examine() -> Environment:
    """:func:`load` and look. Never raises for what is wrong with the environment: that is the answer."""
    versions = {"python": platform.python_version(), **{package: _version(package) for package in PACKAGES}}
    problem, device, plans = None, "none", "none"
    cautions, overrides = requirements.cautions(versions), tuple(OPERATORS.values())
    try:
        gems = load()
        device, plans = _device(gems.device), _plans()
        cautions += [f"flag_gems {gems.__version__}: {repair}" for repair in compat.repairs()]
        overrides = registration.catalog()
    except Exception as error:  # whatever a foreign package's import may raise
        problem = f"{error}" if isinstance(error, RuntimeError) else f"{type(error).__name__}: {error}"
    return Environment(versions, device, plans, overrides, tuple(cautions), problem)


def _plans() -> str:
    from flag_gems_overrides.ops.launch import devices
    from flag_gems_overrides.ops.plans import table

    return table.describe(devices.limits(devices.current_device()))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _device(name: str) -> str:
    import torch

    if name == "cpu":
        return "CPU, through Triton's interpreter"
    if name != "cuda":
        return name
    return "{} (sm_{}{})".format(torch.cuda.get_device_name(), *torch.cuda.get_device_capability())


def left_to_pytorch() -> tuple[harmful.Harmful, ...]:
    """The operators that ``enable()`` leaves out here, with the reasons. flag_gems must be loaded."""
    gems = upstream.load()
    overridden = [override.name for override in registration.catalog() if override.left_out is None]
    return harmful.known(gems.__version__, enabling.capability(gems), overridden)


def host_path() -> str:
    """In words, whether calls of overrides go through C++, or why through Python."""
    from flag_gems_overrides.registration.host import extension

    path = extension.location()
    if extension.EXTENSION.module is not None or extension.EXTENSION.state != "not asked for":
        return extension.EXTENSION.state
    if path.exists():
        return f"C++, built: {path}"
    try:
        return f"C++, to be built at the first call with {extension.compiler()}"
    except extension.BuildError as error:
        return f"Python: {error}"
