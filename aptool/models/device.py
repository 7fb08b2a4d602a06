"""Which device a network runs on: the one place where ``--device`` and ``auto`` are resolved.

What is repeatable to the bit:

- Training on a CPU: the same recipe, seed and collection give the same weights on the same number of threads
  and processes, also after an interruption.
- Scoring on a CPU: the same model and pools give the same run file, however many threads, processes or nodes
  share the work, also after an interruption.
- On a GPU: nothing. Sums may be taken in another order each time, so the last bits of weights and scores may
  differ, as they may between a GPU and a CPU.

All of this is for one version of PyTorch and one kind of processor; with another, the last bits may differ.
"""

import numpy as np
import torch
from torch import Tensor

from aptool.errors import UsageError, first_line, one_line


def pick_device(name: str) -> torch.device:
    """The device with a given name; ``auto`` is a GPU if PyTorch sees one, else the CPU.

    Raises:
        UsageError: this machine has no such device.
    """
    # cuDNN's LSTM alone would compute in TF32 by default, which moves scores by more than 1e-5.
    torch.backends.cudnn.rnn.fp32_precision = "ieee"  # type: ignore[attr-defined]
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # PyTorch names devices that hold no numbers, such as meta
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = one_line(first_line(error))
        raise UsageError(f"--device {name!r}: {reason}; expected auto, cpu or a GPU such as cuda") from error
    return device


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether PyTorch raised this because a GPU or this machine has no memory left."""
    return isinstance(error, torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


def send(array: np.ndarray, device: torch.device | str) -> Tensor:
    """An array as a tensor on a device; the host does not wait for a GPU to receive it."""
    tensor = torch.from_numpy(array)
    if torch.device(device).type == "cpu":
        return tensor
    return tensor.pin_memory().to(device, non_blocking=True)
