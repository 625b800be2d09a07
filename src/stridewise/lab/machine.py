"""What the lab runs on. Nothing that names the machine or its user."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

import stridewise
from stridewise.lab.devices import Device
from stridewise.results.lab import LabMachine


def machine(device: Device) -> LabMachine:
    """This machine, with the versions that results depend on."""
    import torch

    on_gpu = device.kind == "cuda" and torch.cuda.is_available()
    return LabMachine(
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        threads=torch.get_num_threads(),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        torch=str(torch.__version__),
        stridewise=stridewise.__version__,
        details=_details(on_gpu),
        accelerator=torch.cuda.get_device_name() if on_gpu else None,
    )


def _processor() -> str:
    """The CPU's model."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        found = re.search(r"^model name\s*:\s*(.+)$", info.read_text(errors="replace"), re.MULTILINE)
        if found:
            return " ".join(found[1].split())
    return platform.processor() or platform.machine()


def _details(on_gpu: bool) -> dict[str, str]:
    import torch

    found = {"instructions": torch.backends.cpu.get_cpu_capability()}
    onednn = re.search(r"MKL-DNN v([\d.]+)", torch.__config__.show())
    if onednn:
        found["oneDNN"] = onednn[1]
    blas = re.search(r"BLAS_INFO=(\w+)", torch.__config__.show())
    if blas:
        found["BLAS"] = blas[1]
    if on_gpu:
        if torch.version.cuda:
            found["CUDA"] = torch.version.cuda
        if torch.version.hip:
            found["ROCm"] = torch.version.hip
        if torch.backends.cudnn.is_available():
            found["cuDNN"] = str(torch.backends.cudnn.version())
    return found
