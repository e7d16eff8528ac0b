# SPDX-License-Identifier: Apache-2.0
"""The device that flag_gems sees: ``torch.cpu`` with what a GPU's module has and ``torch.cpu`` lacks."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import torch


class Properties(NamedTuple):
    """A Hopper's limits per SM, but few SMs: grids are sized by them, and every program costs milliseconds here."""

    name: str = "Triton's interpreter"
    major: int = 9
    minor: int = 0
    multi_processor_count: int = 4
    L2_cache_size: int = 1 << 20
    total_memory: int = 1 << 30
    regs_per_multiprocessor: int = 65536
    shared_memory_per_block: int = 48 * 1024
    shared_memory_per_block_optin: int = 227 * 1024
    shared_memory_per_multiprocessor: int = 228 * 1024
    max_threads_per_multi_processor: int = 2048
    warp_size: int = 32


class Other(NamedTuple):
    """A device of another vendor: only NVIDIA reports more than this."""

    name: str = "Triton's interpreter, another vendor's"
    multi_processor_count: int = 4
    total_memory: int = 1 << 30
    warp_size: int = 64


PROPERTIES: Properties | Other = Properties()


class Device:
    """``with torch_device_fn.device(tensor.device):`` has nothing to switch to."""

    def __init__(self, device: object) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        pass


class Generator:
    """Stands for a GPU's generator, whose state is a seed and an offset. Each seed is drawn from PyTorch's generator of
    the CPU, which ``torch.manual_seed`` starts again."""

    def get_state(self) -> torch.Tensor:
        seed = torch.empty((), dtype=torch.int64).random_(1 << 31)
        return torch.tensor([int(seed), 0]).view(torch.uint8)

    def set_state(self, state: torch.Tensor) -> None:
        """flag_gems advances the offset; the next seed is another anyway."""


class DeviceModule(ModuleType):
    """Stands for ``torch.cuda``; whatever is not here comes from ``torch.cpu``."""

    device = Device
    default_generators = (Generator(),)

    def __init__(self, cpu: ModuleType) -> None:
        super().__init__("torch.cpu")
        self._cpu = cpu

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_cpu"], name)

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        """torch.cpu says "cpu", and LibEntry indexes a tuple with it."""
        return 0

    def set_device(self, device: object) -> None:
        pass

    def get_device_properties(self, device: object = None) -> Properties | Other:
        """Without it flag_gems would ask Triton's active driver, and there is none."""
        return PROPERTIES

    def get_device_capability(self, device: object = None) -> tuple[int, int]:
        properties = self.get_device_properties()
        return (properties.major, properties.minor) if isinstance(properties, Properties) else (0, 0)

    def get_device_name(self, device: object = None) -> str:
        return PROPERTIES.name
