"""Which device a network runs on: the one place where ``--device`` and ``auto`` are resolved.

What is repeatable to the bit:

- Training on a CPU: the same recipe, seed and collection give the same weights on one number of threads and
  one version of PyTorch.
- Scoring on a CPU: the same model and pools give the same run file, however many threads, processes or
  machines of one kind share the work, and however often it is interrupted.
- On a GPU neither: sums are taken in an order that may change. Scores there agree with those of a CPU to
  about six decimals in fp32, to about two in bf16.

Between different processors, or versions of PyTorch, the last bits of a score may differ.
"""

import torch

from aptool.errors import UsageError, first_line


def pick_device(name: str) -> torch.device:
    """The device with a given name; ``auto`` is a GPU if PyTorch sees one, else the CPU.

    Raises:
        UsageError: this machine has no such device.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = first_line(error)
        raise UsageError(f"--device {name!r}: {reason}; expected auto, cpu or a GPU such as cuda") from error
    return device
