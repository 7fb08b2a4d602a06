"""Devices: resolution of ``--device``, precision, determinism and memory.

These results are reproducible to the bit, with one version of PyTorch on one kind of processor, also after an
interruption:

- Weights trained on a CPU, given recipe, seed, collection and number of threads and processes.
- Run files scored on a CPU, given model and pools, on any number of threads, processes and nodes.
- Weights trained on GPUs with ``training.deterministic``, given also the kind and number of GPUs.

Otherwise a GPU sums in any order, so the last bits of weights and scores may differ.
"""

import logging
import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from typing_extensions import override

from aptool.environment import BATCH_SIZES, GIB, BatchSizes
from aptool.errors import AptoolError, UsageError, first_line, one_line

logger = logging.getLogger(__name__)

# Objects with the precision of float32 products on GPUs, their attribute, and its values.
# PyTorch 2.9 replaced `allow_tf32` by `fp32_precision`.
_CUDA, _CUDNN = torch.backends.cuda, torch.backends.cudnn
_GPU_PRODUCTS: list[Any] = [_CUDA.matmul, _CUDNN]
_PRECISION, _TF32, _FP32 = "allow_tf32", True, False
if hasattr(_CUDNN, "conv"):
    _GPU_PRODUCTS = [_CUDA.matmul, _CUDNN.conv, _CUDNN.rnn]
    _PRECISION, _TF32, _FP32 = "fp32_precision", "tf32", "ieee"  # type: ignore[assignment]

# Functions that create a tensor of a given size.
_FACTORIES = (torch.empty, torch.eye, torch.full, torch.ones, torch.randn, torch.zeros)

# Parts of messages of PyTorch's out-of-memory errors without a type: CPU, CUDA, cuBLAS and cuDNN.
_OUT_OF_MEMORY = ("DefaultCPUAllocator", "CUDA error: out of memory", "_STATUS_ALLOC_FAILED")

# Architectures that PyTorch is compiled for: sm_75, sm_90a, sm_120.
_CAPABILITY = re.compile(r"sm_(\d+)(\d)")


def pick_device(name: str) -> torch.device:
    """Return a device by name; ``auto`` is a GPU if PyTorch can use it, otherwise the CPU."""
    if name == "auto":
        if not torch.cuda.is_available():
            return torch.device("cpu")
        problem = _too_old(torch.device("cuda"))
        if problem:
            logger.info(f"{problem}: using the CPU")
        return torch.device("cpu" if problem else "cuda")
    try:
        device = torch.device(name)
        with memory_for(f"a first number on {name}", "a device with more free memory, or --device cpu"):
            torch.zeros(1, device=device).item()  # fails on devices without memory, such as meta
    except (RuntimeError, AssertionError, ImportError) as error:
        gpus = range(torch.cuda.device_count()) if torch.cuda.is_available() else range(0)
        seen = bool(gpus) and name in ("cuda", *(f"cuda:{number}" for number in gpus))
        reason = (_too_old(torch.device(name)) if seen else "") or one_line(first_line(error))
        raise UsageError(f"--device {name!r}: {reason}; expected auto, cpu or a GPU such as cuda") from error
    return device


def gpus_like(device: torch.device) -> list[torch.device]:
    """Return the GPUs to use for ``cuda``: the current GPU, then all other GPUs of the same model.

    Any other device, ``cpu`` or a GPU such as ``cuda:1``, is used alone.
    """
    if device.type != "cuda" or device.index is not None:
        return [device]

    def kind(gpu: int) -> tuple[str, tuple[int, int]]:
        return torch.cuda.get_device_name(gpu), torch.cuda.get_device_capability(gpu)

    current = torch.cuda.current_device()
    gpus = [current, *(gpu for gpu in range(torch.cuda.device_count()) if gpu != current)]
    return [torch.device("cuda", gpu) for gpu in gpus if kind(gpu) == kind(current)]


def _too_old(device: torch.device) -> str:
    """Return the reason why this PyTorch cannot use a GPU, or an empty string."""
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
    """Whether a GPU multiplies bf16 and TF32 in hardware (Ampere and later)."""
    return torch.cuda.get_device_capability(device) >= (8, 0)


@cache
def has_bf16_lstm() -> bool:
    """Whether PyTorch trains an LSTM in bf16 on this processor (AVX-512 or later)."""
    with torch.autocast("cpu", torch.bfloat16):
        try:
            torch.nn.LSTM(1, 1)(torch.zeros(1, 1, 1))
        except RuntimeError:
            return False
    return True


def check_training_precision(precision: str, device: torch.device, *, lstm: bool = False) -> None:
    """Raise unless a device can train an encoder in ``precision``; ``lstm``: the encoder has LSTMs."""
    if precision == "bf16" and device.type == "cpu" and lstm and not has_bf16_lstm():
        raise UsageError("encoder.precision 'bf16': not supported for LSTMs on this processor; expected fp32")
    check_precision("encoder.precision", precision, device)


def check_precision(option: str, precision: str, device: torch.device) -> None:
    """Raise if a GPU cannot compute in a precision, the value of an option."""
    if device.type == "cuda" and precision in ("tf32", "bf16") and not has_tensor_cores(device):
        raise UsageError(
            f"{option} {precision!r}: {torch.cuda.get_device_name(device)} cannot compute in it; "
            "expected fp32, or a GPU of compute capability 8.0 or later"
        )


def set_products(precision: str) -> None:
    """Set the precision of fp32 products on GPUs in this process: TF32 for ``tf32``, otherwise fp32.

    By default, cuDNN computes LSTMs and convolutions in TF32, which changes scores by more than 1e-5. Its
    attention, which takes milliseconds to plan for each new shape, is turned off.
    """
    _CUDA.enable_cudnn_sdp(False)
    for kind in _GPU_PRODUCTS:
        setattr(kind, _PRECISION, _TF32 if precision == "tf32" else _FP32)


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
    """Move a network to a device. An out-of-memory error suggests another GPU."""
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
    """Return the free memory of a GPU in bytes, including the cache of this process."""
    free: int = torch.cuda.mem_get_info(device)[0]
    return free + torch.cuda.memory_reserved(device)


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


class TooManyWeightsError(Exception):
    """A network has more weights than a `WeightLimit` permits."""

    def __init__(self, weights: int) -> None:
        super().__init__(weights)
        self.weights = weights


class WeightLimit(TorchFunctionMode):
    """Raise ``TooManyWeightsError`` before new tensors inside the block have more than ``most`` numbers."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most, self._count = most, 0

    @override
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _FACTORIES:
            first = args[0] if args else kwargs["size"]
            size = first if isinstance(first, Sequence) else args  # (2, 3) or 2, 3
            self._count += math.prod(size) ** (2 if func is torch.eye else 1)
            if self._count > self._most:
                raise TooManyWeightsError(self._count)
        return func(*args, **kwargs)


def batch_sizes(device: torch.device) -> BatchSizes:
    """Return the batch sizes on a device; those of a CPU on unknown devices."""
    return BATCH_SIZES.get(device.type, BATCH_SIZES["cpu"])


def send(array: np.ndarray, device: torch.device | str) -> Tensor:
    """Copy an array to a device without synchronizing with it."""
    tensor = torch.from_numpy(array)
    if torch.device(device).type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)
