"""Devices: resolution of ``--device``, precision, determinism and memory.

These results are reproducible to the bit, with one version of PyTorch on one kind of processor, also after an
interruption:

- Weights trained on a CPU, given recipe, seed, collection and number of threads and processes.
- Run files scored on a CPU, given model and pools, on any number of threads, processes and nodes.
- Weights trained on GPUs with ``training.deterministic``, given also the kind and number of GPUs.

Otherwise a GPU sums in any order, so the last bits of weights and scores may differ.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from aptool.environment import BATCH_SIZES, GIB, BatchSizes
from aptool.errors import AptoolError, UsageError, first_line, one_line

# MKL chooses the code of each of these functions when it is first called. If threads call it at the same
# time, one of them may compute half of the digits (PyTorch issue 188792), so the first calls are made here.
for _function in (torch.tanh, torch.exp, torch.log, torch.sqrt, torch.sin, torch.cos, torch.erf, F.gelu):
    for _type in (torch.float32, torch.float64):
        _function(torch.ones(1, dtype=_type))

# Parts of messages of PyTorch's out-of-memory errors without a type: CPU, CUDA, cuBLAS and cuDNN.
_OUT_OF_MEMORY = ("DefaultCPUAllocator", "CUDA error: out of memory", "_STATUS_ALLOC_FAILED")


def pick_device(name: str) -> torch.device:
    """Return a device by name; ``auto`` is a GPU if PyTorch can use it, otherwise the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        with memory_for(f"a first number on {name}", "a device with more free memory, or --device cpu"):
            torch.zeros(1, device=device).item()  # fails on devices without memory, such as meta
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = one_line(first_line(error))
        raise UsageError(f"--device {name!r}: {reason}; expected auto, cpu or a GPU such as cuda") from error
    return device


def has_tensor_cores(device: torch.device) -> bool:
    """Whether a GPU multiplies bf16 in hardware (Ampere and later)."""
    return torch.cuda.get_device_capability(device) >= (8, 0)


def multiplies_bf16() -> bool:
    """Whether the CPU multiplies bf16 in hardware; if PyTorch does not say, it does not."""
    capabilities: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16"))


def check_precision(option: str, precision: str, device: torch.device) -> None:
    """Raise if a GPU cannot compute in a precision, the value of an option."""
    if device.type == "cuda" and precision == "bf16" and not has_tensor_cores(device):
        raise UsageError(
            f"{option} {precision!r}: {torch.cuda.get_device_name(device)} cannot compute in it; "
            "expected fp32, or a GPU of compute capability 8.0 or later"
        )


def exact_products() -> None:
    """Compute fp32 products on GPUs in fp32, in this process.

    By default, cuDNN computes LSTMs and convolutions in TF32, which changes scores by more than 1e-5. Its
    attention, which takes milliseconds to plan for each new shape, is turned off.
    """
    cuda: Any = torch.backends.cuda
    cudnn: Any = torch.backends.cudnn
    cuda.enable_cudnn_sdp(False)
    if hasattr(cudnn, "conv"):  # since PyTorch 2.9
        for kind in (cuda.matmul, cudnn.conv, cudnn.rnn):
            kind.fp32_precision = "ieee"
    else:
        cuda.matmul.allow_tf32 = cudnn.allow_tf32 = False


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed the random generators of the CPU and of a device; those of other devices are the user's."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed_all(seed)


@contextmanager
def repeatable_sums(device: torch.device, enabled: bool) -> Iterator[None]:
    """Use deterministic algorithms on a GPU inside the block; CPU algorithms are always deterministic."""
    if not enabled or device.type != "cuda":
        yield
        return
    # cuBLAS reads the variable at the first product of a stream; PyTorch requires it.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def to_device(network: nn.Module, device: torch.device | str) -> None:
    """Move a network to a device; an error names both amounts of memory."""
    needed = sum(weight.numel() * weight.element_size() for weight in network.state_dict().values())
    with memory_for(f"moving {needed / GIB:.1f} GiB to {device}", "a GPU with more memory, or --device cpu"):
        network.to(device)


@contextmanager
def memory_for(work: str, expected: str) -> Iterator[None]:
    """Convert an out-of-memory error inside the block into an ``AptoolError``."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise AptoolError(f"out of memory in {work}; expected {expected}") from error


def is_out_of_memory(error: RuntimeError | MemoryError) -> bool:
    """Whether an error means that a GPU or this machine is out of memory."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return any(message in str(error) for message in _OUT_OF_MEMORY)


def batch_sizes(device: torch.device) -> BatchSizes:
    """Return the batch sizes on a device; those of a CPU on unknown devices."""
    return BATCH_SIZES.get(device.type, BATCH_SIZES["cpu"])


def send(array: np.ndarray, device: torch.device | str) -> Tensor:
    """Copy an array to a device without synchronizing with it."""
    tensor = torch.from_numpy(array)
    if torch.device(device).type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)
