"""Which device a network runs on: the one place where ``--device`` and ``auto`` are resolved.

What is repeatable to the bit:

- Training on a CPU: the same recipe, seed and collection give the same weights on the same number of threads
  and processes, also after an interruption.
- Scoring on a CPU: the same model and pools give the same run file, however many threads, processes or nodes
  share the work, also after an interruption.
- Training on a GPU with ``training.deterministic``: the same, on the same kind and number of GPUs.
- Else on a GPU: nothing. Sums may be taken in another order each time, so the last bits of weights and scores
  may differ, as they may between a GPU and a CPU.

All of this is for one version of PyTorch and one kind of processor; with another, the last bits may differ.
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

# Oldest GPU with tensor cores for bf16 and TF32: Ampere.
TENSOR_CORES = (8, 0)

# What PyTorch was built for: sm_75, sm_90a, sm_120.
_CAPABILITY = re.compile(r"sm_(\d+)(\d)")


def pick_device(name: str) -> torch.device:
    """The device with a given name; ``auto`` is a GPU if PyTorch sees one that it can use, else the CPU."""
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
        torch.zeros(1, device=device).item()  # PyTorch names devices that hold no numbers, such as meta
    except (RuntimeError, AssertionError, ImportError) as error:
        gpus = range(torch.cuda.device_count()) if torch.cuda.is_available() else range(0)
        seen = bool(gpus) and name in ("cuda", *(f"cuda:{number}" for number in gpus))
        reason = (_too_old(torch.device(name)) if seen else "") or one_line(first_line(error))
        raise UsageError(f"--device {name!r}: {reason}; expected auto, cpu or a GPU such as cuda") from error
    return device


def gpus_like(device: torch.device) -> list[torch.device]:
    """The GPUs of this machine that share the work of ``cuda``: those of one kind, the current one first.

    A device of another name is alone: ``cpu``, or one GPU such as ``cuda:1``.
    """
    if device.type != "cuda" or device.index is not None:
        return [device]
    first = torch.cuda.current_device()
    numbers = [first, *(number for number in range(torch.cuda.device_count()) if number != first)]
    kinds = [(torch.cuda.get_device_name(one), torch.cuda.get_device_capability(one)) for one in numbers]
    return [
        torch.device("cuda", number) for number, kind in zip(numbers, kinds, strict=True) if kind == kinds[0]
    ]


def _too_old(device: torch.device) -> str:
    """Why this PyTorch cannot use a GPU; empty if it can."""
    built = [_CAPABILITY.match(name) for name in torch.cuda.get_arch_list()]
    found = torch.cuda.get_device_capability(device)
    least = min(((int(one[1]), int(one[2])) for one in built if one is not None), default=found)
    if found >= least:
        return ""
    wanted = f"expected {least[0]}.{least[1]} or later for this PyTorch"
    return f"{torch.cuda.get_device_name(device)} has compute capability {found[0]}.{found[1]}, {wanted}"


def has_tensor_cores(device: torch.device) -> bool:
    """Whether a GPU multiplies bf16 and TF32 by itself."""
    return torch.cuda.get_device_capability(device) >= TENSOR_CORES


@cache
def has_bf16_lstm() -> bool:
    """Whether PyTorch trains an LSTM in bf16 on this processor, which takes AVX-512 or later."""
    with torch.random.fork_rng(devices=[]), torch.autocast("cpu", torch.bfloat16):
        try:
            torch.nn.LSTM(1, 1)(torch.zeros(1, 1, 1))
        except RuntimeError:
            return False
    return True


def check_training_precision(precision: str, device: torch.device, *, lstm: bool = False) -> None:
    """Checks that a device can train an encoder in a precision.

    Args:
        precision: ``fp32`` or ``bf16``.
        device: the device to train on.
        lstm: whether the encoder has LSTMs.
    """
    if precision == "bf16" and device.type == "cpu" and lstm and not has_bf16_lstm():
        raise UsageError("encoder.precision 'bf16': not supported for LSTMs on this processor; expected fp32")
    if precision == "bf16" and device.type == "cuda" and not has_tensor_cores(device):
        raise UsageError(
            f"encoder.precision 'bf16': {torch.cuda.get_device_name(device)} cannot compute in it; "
            "expected fp32, or a GPU of compute capability 8.0 or later"
        )


def set_products(precision: str) -> None:
    """How GPUs multiply numbers of fp32, in this process: in TF32 if ``precision`` is ``tf32``, else in fp32.

    Each of torch's settings is made: left alone, cuDNN's LSTM and convolutions would compute in TF32, which
    moves scores by more than 1e-5.
    """
    kind = "tf32" if precision == "tf32" else "ieee"
    torch.backends.cuda.matmul.fp32_precision = kind
    torch.backends.cudnn.conv.fp32_precision = kind  # type: ignore[attr-defined]
    torch.backends.cudnn.rnn.fp32_precision = kind  # type: ignore[attr-defined]


@contextmanager
def repeatable_sums(device: torch.device, wanted: bool) -> Iterator[None]:
    """Has a GPU add up in one order whatever it computes inside; a CPU does so anyway.

    An operation that has no such order raises ``RuntimeError``: none of aptool's is among those that PyTorch
    names (``torch.use_deterministic_algorithms``).
    """
    if not wanted or device.type != "cuda":
        yield
        return
    # cuBLAS reads it where a stream first multiplies; PyTorch refuses products without it.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def to_device(network: nn.Module, device: torch.device | str) -> None:
    """Moves a network."""
    device = torch.device(device)
    needed = sum(one.numel() * one.element_size() for one in network.state_dict().values())
    try:
        network.to(device)
    except RuntimeError as error:
        if not is_out_of_memory(error) or device.type != "cuda":
            raise
        own = torch.cuda.current_device() if device.index is None else device.index
        numbers = (one for one in range(torch.cuda.device_count()) if one != own)
        others = [one for one in numbers if _free_memory(one) > 2 * needed]
        fits = f"--device cuda:{others[0]}" if others else "a GPU with more free memory"
        raise AptoolError(
            f"{device}: {_free_memory(device) / GIB:.1f} GiB free, less than the model's "
            f"{needed / GIB:.1f} GiB; expected {fits}, or --device cpu"
        ) from error


def _free_memory(device: torch.device | int) -> int:
    """Bytes of a GPU that this process may still take, with those that it holds and may use anew."""
    free: int = torch.cuda.mem_get_info(device)[0]
    return free + torch.cuda.memory_reserved(device)


@contextmanager
def memory_for(work: str, expected: str) -> Iterator[None]:
    """Says in one line that a GPU, or this machine, has too little memory for some work."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise AptoolError(f"out of memory in {work}; expected {expected}") from error


def is_out_of_memory(error: RuntimeError | MemoryError) -> bool:
    """Whether this was raised because a GPU or this machine has no memory left."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(error)


def send(array: np.ndarray, device: torch.device | str) -> Tensor:
    """An array as a tensor on a device; the host does not wait for a GPU to receive it."""
    tensor = torch.from_numpy(array)
    if torch.device(device).type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)
