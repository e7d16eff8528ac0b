# SPDX-License-Identifier: Apache-2.0
"""Clock and throttle state of a GPU, read beside the measurements through NVML."""

from __future__ import annotations

from typing import NamedTuple

import pynvml
import torch


class Reading(NamedTuple):
    """The state of the SM clock at one moment."""

    mhz: int
    throttled: bool


class Clocks:
    """Reads one device's clock. Where NVML does not answer (no permission, not NVIDIA) readings are None."""

    # Slowed down for heat or power. Not among them: idle, and limits that someone set on purpose.
    THROTTLED = (
        pynvml.nvmlClocksEventReasonSwPowerCap
        | pynvml.nvmlClocksEventReasonHwSlowdown
        | pynvml.nvmlClocksEventReasonSwThermalSlowdown
        | pynvml.nvmlClocksEventReasonHwThermalSlowdown
        | pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown
    )

    def __init__(self, device: int) -> None:
        self._handle = None
        try:
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
        except pynvml.NVMLError:
            pass

    def read(self) -> Reading | None:
        if self._handle is None:
            return None
        try:
            mhz = pynvml.nvmlDeviceGetClockInfo(self._handle, pynvml.NVML_CLOCK_SM)
            reasons = pynvml.nvmlDeviceGetCurrentClocksEventReasons(self._handle)
        except pynvml.NVMLError:
            return None
        return Reading(mhz, bool(reasons & self.THROTTLED))

    def describe(self) -> dict[str, str | int]:
        """Driver version and highest SM clock, as far as NVML says them."""
        if self._handle is None:
            return {}
        return {
            "driver": pynvml.nvmlSystemGetDriverVersion(),
            "max_clock_mhz": pynvml.nvmlDeviceGetMaxClockInfo(self._handle, pynvml.NVML_CLOCK_SM),
        }
