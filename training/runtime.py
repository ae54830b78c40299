"""The machine: device, precision, memory and processor."""

import contextlib
import ctypes
import importlib.util
import os
import platform
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import torch

from cli.errors import UserError
from training.config import Config, TrainConfig


@dataclass(frozen=True)
class Runtime:
    """A device, and the dtype of its arithmetic; parameters stay float32."""

    device: torch.device
    dtype: torch.dtype

    def autocast(self) -> AbstractContextManager:
        """Return a context with matrix products in `dtype`; sensitive sums stay in float32."""
        return torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32)

    def __str__(self) -> str:
        name = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else str(self.device)
        n_threads = torch.get_num_threads()
        threads = f", {n_threads} thread{'s' * (n_threads > 1)}" if self.device.type == "cpu" else ""
        processes = f" in {n_processes()} processes" if n_processes() > 1 else ""
        return f"{name}{threads}, {str(self.dtype).removeprefix('torch.')}{processes}"


def choose_runtime(device: str, dtype: str) -> Runtime:
    """Return the device and dtype for `train.device` and `train.dtype`. Raises UserError if the machine lacks them."""
    chosen = choose_device(device)
    if "OMP_NUM_THREADS" not in os.environ and n_cores() < torch.get_num_threads():
        torch.set_num_threads(n_cores())  # PyTorch ignores quotas
    if dtype == "auto":
        dtype = "bfloat16" if has_fast_bfloat16(chosen) else "float32"
    return Runtime(chosen, getattr(torch, dtype))


def choose_device(name: str) -> torch.device:
    """Return the device; `auto` tries CUDA, then MPS, then the CPU. Raises UserError if the machine lacks it."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    counts = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    try:
        device = torch.device(name)
    except RuntimeError:
        device = torch.device("meta")  # no name of one
    if (device.index or 0) >= counts.get(device.type, 0):
        raise UserError(f"PyTorch finds no device {name!r} here; use auto, cpu, cuda, cuda:1 or mps")
    if device.type == "cuda":
        if device.index is not None:
            torch.cuda.set_device(device)  # functions that use the current GPU then use this one
        # cuDNN's attention is not faster (measured on an H100), but plans for 0.1 s at every new shape.
        torch.backends.cuda.enable_cudnn_sdp(False)
    return device


def has_fast_bfloat16(device: torch.device) -> bool:
    """Return whether the device multiplies bfloat16 matrices faster than float32 ones.

    On a CPU, its instructions and its maker say so, not a measurement, whose noise would let runs of one sweep differ.
    With AVX512-BF16 alone, an AMD EPYC is twice as fast in bfloat16, and an Intel Xeon half as fast
    (experiments/studies/machines.md).
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type != "cpu":
        return False
    capabilities: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
    # ONEDNN_MAX_CPU_ISA may forbid oneDNN, which computes the products, to use these instructions.
    if not (torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()):
        return False
    if capabilities.get("amx_bf16") or capabilities.get("sve_bf16"):
        return True
    return capabilities.get("avx512_bf16", False) and "AMD" in processor_name()


def n_processes() -> int:
    """Return how many processes torchrun started, or 1 without it."""
    return int(os.environ["WORLD_SIZE"]) if "TORCHELASTIC_RUN_ID" in os.environ else 1


def prepare_machine(config: Config) -> Runtime:
    """Return the device and precision of a config. Raises UserError if the machine lacks what it needs."""
    settings = config.train
    runtime = choose_runtime(settings.device, settings.dtype)
    if n_processes() > 1:
        check_several(settings, runtime.device)
    if settings.logger != "none" and importlib.util.find_spec(settings.logger) is None:
        raise UserError(f"train.logger={settings.logger} needs a library: pip install {settings.logger}")
    return runtime


def check_several(settings: TrainConfig, device: torch.device) -> None:
    """Raise UserError if several processes cannot train together: each needs a device and an equal share of a batch."""
    n, n_here = n_processes(), int(os.environ["LOCAL_WORLD_SIZE"])
    if left := settings.batch_size % n:
        fits = settings.batch_size - left or n
        raise UserError(f"train.batch_size={settings.batch_size} cannot be divided among {n} processes; use {fits}")
    has_enough = device.type == "cpu" or (device.type == "cuda" and n_here <= torch.cuda.device_count())
    if device.index is not None or not has_enough:
        raise UserError(f"device {device}: {n_here} processes need as many devices; use train.device=cuda or cpu")


def keep_freed_memory() -> None:
    """Make glibc keep freed memory instead of returning it to the system and faulting it in again.

    Call it before the first tensor.
    """
    if platform.libc_ver()[0] == "glibc":
        m_trim_threshold, m_mmap_max = -1, -4  # from glibc's malloc.h
        libc = ctypes.CDLL(None)
        libc.mallopt(m_mmap_max, 0)
        libc.mallopt(m_trim_threshold, 2**31 - 1)


def peak_memory_bytes(device: torch.device) -> int:
    """Return the peak memory of this process: allocated tensors on a GPU, otherwise resident memory; 0 unless Linux."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    status = Path("/proc/self/status")
    lines = [line.split() for line in status.read_text().splitlines()] if status.exists() else []
    return next((int(line[1]) * 1024 for line in lines if line[:1] == ["VmHWM:"]), 0)


def processor_name() -> str:
    """Return the processor's name."""
    information = Path("/proc/cpuinfo")  # Linux
    lines = information.read_text().splitlines() if information.exists() else []
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return name or platform.processor() or platform.machine()


def n_cores(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Return the number of cores that this process may use, by its affinity and the quota of its container."""
    n = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):  # the file is missing or says "max"
        allowed, period = map(int, quota.read_text().split())
        n = max(1, min(n, allowed // period))
    return n
