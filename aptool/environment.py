"""Where this process runs: hardware, operating system, versions of libraries, and the command."""

import os
import platform
import shlex
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

# Libraries that a score can depend on.
LIBRARIES = ("aptool", "torch", "numpy", "pyarrow", "polars", "tokenizers", "transformers", "ray", "bm25s")


def hardware() -> dict[str, Any]:
    """The processor (model, architecture, cores), memory in GiB, and the GPUs by name and memory in GiB."""
    found: dict[str, Any] = {
        "cpu": {"model": _cpu_model(), "architecture": platform.machine(), "cores": os.cpu_count() or 1},
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "gpus": [],
    }
    torch = sys.modules.get("torch")  # without torch nothing has run on a GPU
    if torch is not None and torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            gpu = torch.cuda.get_device_properties(number)
            entry = {
                "name": gpu.name,
                "multiprocessors": gpu.multi_processor_count,
                "memory_gib": round(gpu.total_memory / 2**30, 1),
            }
            found["gpus"].append(entry)
    return found


def operating_system() -> dict[str, str]:
    """The kernel and the distribution."""
    try:
        distribution = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        distribution = platform.system()
    return {"kernel": f"{platform.system()} {platform.release()}", "distribution": distribution}


def versions() -> dict[str, str]:
    """The versions of Python and of those `LIBRARIES` that are installed."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def command() -> str | None:
    """The command line of this process, if it is one of aptool."""
    program = Path(sys.argv[0]) if sys.argv and sys.argv[0] else Path()
    if program.name == "aptool" or program.parts[-2:] == ("aptool", "__main__.py"):
        return shlex.join(["aptool", *sys.argv[1:]])
    return None


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
