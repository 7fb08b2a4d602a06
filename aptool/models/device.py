"""Devices: resolution of ``--device``, precision, determinism and memory.

Reproducible to the bit, with one version of PyTorch on one kind of processor, also after an interruption:

- Training on a CPU: the same recipe, seed and collection give the same weights on the same number of threads
  and processes.
- Scoring on a CPU: the same model and pools give the same run file on any number of threads, processes and
  nodes.
- Training on a GPU with ``training.deterministic``, on the same kind and number of GPUs.

Otherwise a GPU sums in any order, so the last bits of weights and scores may differ.
"""

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from aptool.errors import AptoolError, UsageError, first_line, one_line

logger = logging.getLogger(__name__)

GIB = 2**30

# Minimum compute capability with tensor cores for bf16 and TF32: Ampere.
TENSOR_CORES = (8, 0)

# Build targets of PyTorch: sm_75, sm_90a, sm_120.
_CAPABILITY = re.compile(r"sm_(\d+)(\d)")


def pick_device(name: str) -> torch.device:
    """Return the device of that name; ``auto`` is a GPU if PyTorch can use one, else the CPU."""
    set_products("fp32")
    if name == "auto":
        if not torch.cuda.is_available():
            return torch.device("cpu")
        problem = _too_old(torch.device("cuda"))
        if problem:
            logger.info(f"{problem}: using the CPU")
        return torch.device("cpu" if problem else "cuda")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # fails on devices without memory, such as meta
    except (RuntimeError, AssertionError, ImportError) as error:
        gpus = range(torch.cuda.device_count()) if torch.cuda.is_available() else range(0)
        seen = bool(gpus) and name in ("cuda", *(f"cuda:{number}" for number in gpus))
        reason = (_too_old(torch.device(name)) if seen else "") or one_line(first_line(error))
        raise UsageError(f"--device {name!r}: {reason}; expected auto, cpu or a GPU such as cuda") from error
    return device


def gpus_like(device: torch.device) -> list[torch.device]:
    """Return the GPUs that share the work of ``cuda``: all of the current GPU's kind, the current GPU first.

    Any other device works alone: ``cpu``, or one GPU such as ``cuda:1``.
    """
    if device.type != "cuda" or device.index is not None:
        return [device]

    def kind(gpu: int) -> tuple[str, tuple[int, int]]:
        return torch.cuda.get_device_name(gpu), torch.cuda.get_device_capability(gpu)

    current = torch.cuda.current_device()
    gpus = [current, *(gpu for gpu in range(torch.cuda.device_count()) if gpu != current)]
    return [torch.device("cuda", gpu) for gpu in gpus if kind(gpu) == kind(current)]


def _too_old(device: torch.device) -> str:
    """Say why this PyTorch cannot use a GPU; empty if it can."""
    targets = [_CAPABILITY.match(name) for name in torch.cuda.get_arch_list()]
    capability = torch.cuda.get_device_capability(device)
    least = min(((int(match[1]), int(match[2])) for match in targets if match), default=capability)
    if capability >= least:
        return ""
    return (
        f"{torch.cuda.get_device_name(device)} has compute capability {capability[0]}.{capability[1]}, "
        f"expected {least[0]}.{least[1]} or later for this PyTorch"
    )


def has_tensor_cores(device: torch.device) -> bool:
    """Whether a GPU multiplies bf16 and TF32 in hardware."""
    return torch.cuda.get_device_capability(device) >= TENSOR_CORES


@cache
def has_bf16_lstm() -> bool:
    """Whether PyTorch trains an LSTM in bf16 on this processor (AVX-512 or later)."""
    with torch.random.fork_rng(devices=[]), torch.autocast("cpu", torch.bfloat16):
        try:
            torch.nn.LSTM(1, 1)(torch.zeros(1, 1, 1))
        except RuntimeError:
            return False
    return True


def check_training_precision(precision: str, device: torch.device, *, lstm: bool = False) -> None:
    """Raise unless a device can train an encoder, with LSTMs if ``lstm``, in ``fp32`` or ``bf16``."""
    if precision == "bf16" and device.type == "cpu" and lstm and not has_bf16_lstm():
        raise UsageError("encoder.precision 'bf16': not supported for LSTMs on this processor; expected fp32")
    if precision == "bf16" and device.type == "cuda" and not has_tensor_cores(device):
        raise UsageError(
            f"encoder.precision 'bf16': {torch.cuda.get_device_name(device)} cannot compute in it; "
            "expected fp32, or a GPU of compute capability 8.0 or later"
        )


def set_products(precision: str) -> None:
    """Let GPUs multiply fp32 in TF32 if ``precision`` is ``tf32``, else in fp32, in this process.

    By default cuDNN's LSTM and convolutions compute in TF32, which changes scores by more than 1e-5.
    """
    kind = "tf32" if precision == "tf32" else "ieee"
    torch.backends.cuda.matmul.fp32_precision = kind
    torch.backends.cudnn.conv.fp32_precision = kind  # type: ignore[attr-defined]
    torch.backends.cudnn.rnn.fp32_precision = kind  # type: ignore[attr-defined]


@contextmanager
def repeatable_sums(device: torch.device, enabled: bool) -> Iterator[None]:
    """Use deterministic algorithms on a GPU inside the block; those of a CPU are deterministic anyway."""
    if not enabled or device.type != "cuda":
        yield
        return
    # cuBLAS reads it at the first product of a stream; PyTorch refuses products without it.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def to_device(network: nn.Module, device: torch.device | str) -> None:
    """Move a network; if a GPU has too little memory, name a GPU that has enough."""
    device = torch.device(device)
    needed = sum(weight.numel() * weight.element_size() for weight in network.state_dict().values())
    try:
        network.to(device)
    except RuntimeError as error:
        if not is_out_of_memory(error) or device.type != "cuda":
            raise
        current = torch.cuda.current_device() if device.index is None else device.index
        larger = [
            gpu
            for gpu in range(torch.cuda.device_count())
            if gpu != current and _free_memory(gpu) > 2 * needed
        ]
        expected = f"--device cuda:{larger[0]}" if larger else "a GPU with more free memory"
        raise AptoolError(
            f"{device}: {_free_memory(device) / GIB:.1f} GiB free, less than the model's "
            f"{needed / GIB:.1f} GiB; expected {expected}, or --device cpu"
        ) from error


def _free_memory(device: torch.device | int) -> int:
    """Return the free bytes of a GPU, with the bytes that this process has reserved."""
    free: int = torch.cuda.mem_get_info(device)[0]
    return free + torch.cuda.memory_reserved(device)


@contextmanager
def memory_for(work: str, expected: str) -> Iterator[None]:
    """Turn an out-of-memory error of the block into a one-line error."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise AptoolError(f"out of memory in {work}; expected {expected}") from error


def is_out_of_memory(error: RuntimeError | MemoryError) -> bool:
    """Whether a GPU or this machine is out of memory."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(error)


def send(array: np.ndarray, device: torch.device | str) -> Tensor:
    """Copy an array to a device, without synchronizing with a GPU."""
    tensor = torch.from_numpy(array)
    if torch.device(device).type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)
