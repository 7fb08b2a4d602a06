"""Where this process runs: hardware, operating system, versions of libraries, and the command."""

import os
import platform
import shlex
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

# Libraries that a score can depend on.
LIBRARIES = ("aptool", "torch", "numpy", "pyarrow", "polars", "tokenizers", "transformers", "ray")
GIB = 2**30


def hardware() -> dict[str, Any]:
    """The processor (model, architecture, cores), available memory in GiB, and the GPUs as in `gpus`."""
    found: dict[str, Any] = {
        "cpu": {"model": _cpu_model(), "architecture": platform.machine(), "cores": os.cpu_count() or 1},
        "memory_gib": round(available_memory() / GIB, 1),
        "gpus": [],
    }
    if "torch" in sys.modules:  # without torch nothing has run on a GPU
        found["gpus"] = gpus()
    return found


def gpus() -> list[dict[str, Any]]:
    """Name, number of multiprocessors and memory in GiB of each GPU that PyTorch sees."""
    import torch

    if not torch.cuda.is_available():
        return []
    seen = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    return [
        {
            "name": gpu.name,
            "multiprocessors": gpu.multi_processor_count,
            "memory_gib": round(gpu.total_memory / GIB, 1),
        }
        for gpu in seen
    ]


def available_cores() -> float:
    """Cores that this process may use: its affinity, or less if a container limits its CPU time."""
    cores = float(len(os.sched_getaffinity(0)))
    limit = _first_line("/sys/fs/cgroup/cpu.max").split()
    if len(limit) == 2 and limit[0].isdigit():
        cores = min(cores, int(limit[0]) / int(limit[1]))
    return cores


def available_memory() -> int:
    """Bytes of memory of this machine, or of the container if that is less."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _first_line("/sys/fs/cgroup/memory.max")
    return min(memory, int(limit)) if limit.isdigit() else memory


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
        if version := version_of(name):
            found[name] = version
    return found


def version_of(package: str) -> str | None:
    """The installed version of a package; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


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


def _first_line(path: str) -> str:
    """The first line of a file of the kernel, or nothing if there is no such file."""
    try:
        return Path(path).read_text(encoding="ascii").partition("\n")[0].strip()
    except OSError:
        return ""


# Iterations of libgomp's loop; it estimates 100,000 of them per millisecond, and spins 300,000 by default.
SPIN_COUNT = 10_000

# With any of these, how threads wait is the user's choice.
USER_SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


def limit_spinning(spin_count: int = SPIN_COUNT) -> None:
    """Sets ``GOMP_SPINCOUNT`` in the environment, unless the user has decided how threads wait.

    libgomp reads it when torch is loaded; once torch is imported this does nothing.

    Args:
        spin_count: iterations that a waiting thread spins; 0 sleeps at once.
    """
    if "torch" not in sys.modules and not any(name in os.environ for name in USER_SETTINGS):
        os.environ["GOMP_SPINCOUNT"] = str(spin_count)
