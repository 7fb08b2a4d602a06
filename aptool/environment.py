"""Environment of this process: hardware, versions, optional packages, command line, threads, batches."""

import contextlib
import logging
import os
import platform
import shlex
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

from aptool.errors import AptoolError, first_line

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

__version__ = "0.3.0"

# What computes the network of a checkpoint of another library.
Backend: TypeAlias = Literal["torch", "openvino"]
BACKENDS: tuple[Backend, ...] = get_args(Backend)

# Precisions of encoders on devices.
Precision: TypeAlias = Literal["auto", "fp32", "bf16"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)

# Libraries whose version may change scores.
LIBRARIES = ("torch", "numpy", "pyarrow", "polars", "tokenizers", "transformers", "ray")
GIB = 2**30

# Spin iterations of libgomp's waiting threads; its default is 300,000, about 3 ms.
SPIN_COUNT = 10_000

# With any of these variables, the user controls how threads wait.
USER_SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")


class BatchSizes(NamedTuple):
    """Tokens per batch on a kind of device; they decide speed and memory, and no score on a CPU."""

    encoder: int  # of texts to score; few enough for the caches of a core, enough to keep a GPU busy
    network: int  # of a pretrained network, padding included
    pairs: int  # of both texts of pairs, for poolings of pairs


BATCH_SIZES = {
    "cpu": BatchSizes(1 << 13, 1 << 12, 1 << 14),
    "cuda": BatchSizes(1 << 18, 1 << 16, 1 << 17),
}
ENCODER_BATCHES = f"{BATCH_SIZES['cpu'].encoder:,}; GPU: {BATCH_SIZES['cuda'].encoder:,}"


def hardware() -> dict[str, Any]:
    """The processor (model, architecture, cores), available memory in GiB, and `gpus`."""
    return {
        "cpu": {"model": _cpu_model(), "architecture": platform.machine(), "cores": os.cpu_count() or 1},
        "memory_gib": round(available_memory() / GIB, 1),
        "gpus": gpus() if "torch" in sys.modules else [],  # without torch, no GPU was used
    }


def gpus() -> list[dict[str, Any]]:
    """Name, number of multiprocessors and memory in GiB of each GPU that PyTorch sees."""
    import torch

    if not torch.cuda.is_available():
        return []
    devices = [torch.cuda.get_device_properties(number) for number in range(torch.cuda.device_count())]
    return [
        {
            "name": gpu.name,
            "multiprocessors": gpu.multi_processor_count,
            "memory_gib": round(gpu.total_memory / GIB, 1),
        }
        for gpu in devices
    ]


def devices() -> list[str]:
    """The GPUs that PyTorch sees, if it is installed, and the processor; ``--device auto`` uses the first."""
    names = []
    with contextlib.suppress(ModuleNotFoundError):
        for number, gpu in enumerate(gpus()):
            names.append(f"cuda:{number} ({gpu['name']}, {gpu['memory_gib']:.0f} GiB)")
    return [*names, f"cpu ({_cpu_model()}, {available_cores():g} cores)"]


def available_cores() -> float:
    """Number of cores of this process: its affinity, or the CPU limit of the container if lower."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    cores = float(len(affinity(0)) if affinity is not None else os.cpu_count() or 1)
    limit = _text("/sys/fs/cgroup/cpu.max").split()
    if len(limit) == 2 and limit[0].isdigit():
        cores = min(cores, int(limit[0]) / int(limit[1]))
    return cores


def available_memory() -> int:
    """Memory in bytes: of the machine, or the limit of the container if lower."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _text("/sys/fs/cgroup/memory.max").strip()
    return min(memory, int(limit)) if limit.isdigit() else memory


def versions() -> dict[str, str]:
    """The versions of Python, of aptool and of the installed `LIBRARIES`."""
    installed = {name: version_of(name) for name in LIBRARIES}
    libraries = {name: text for name, text in installed.items() if text}
    return {"python": platform.python_version(), "aptool": __version__, **libraries}


@cache  # reading the metadata of a package takes milliseconds
def version_of(package: str) -> str | None:
    """The installed version of a package; None if it is not installed."""
    from importlib import metadata  # takes longer than `import aptool`

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def versions_of(*libraries: str) -> dict[str, str]:
    """Return the versions of aptool and of installed libraries, without build tags."""
    versions = {"aptool": __version__}
    for name in libraries:
        if name not in versions and (text := version_of(name)):
            versions[name] = text.partition("+")[0]
    return versions


def install_command(extra: str) -> str:
    """The command that installs an extra of aptool, for error messages; aptool is not on PyPI yet."""
    return f'`python -m pip install -e ".[{extra}]"` in a copy of the aptool repository'


@contextlib.contextmanager
def requiring_torch(subject: str) -> Iterator[None]:
    """Convert a failed import of PyTorch by ``subject`` to an error that names its extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise AptoolError(f"{subject} needs PyTorch: {install_command('torch')}") from error


def require(package: str, *, purpose: str, extra: str) -> Any:
    """Import a package of an extra, with the progress bars and retry messages of Hugging Face turned off.

    Without the package, the error says that ``purpose`` needs it; if it cannot be imported, why.
    """
    try:
        module: Any = import_module(package)
    except Exception as error:  # of a damaged installation
        if isinstance(error, ModuleNotFoundError) and f"{package}.".startswith(f"{error.name}."):
            raise AptoolError(_missing(package, purpose, extra)) from error
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason = f"which cannot be imported: {type(cause).__name__}: {first_line(cause)}"
        raise AptoolError(f"{purpose} needs {package}, {reason}") from error
    if package == "transformers":
        module.logging.set_verbosity_error()
        module.logging.disable_progress_bar()
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # a line per retry
    return module


def check_installed(package: str, *, purpose: str, extra: str) -> None:
    """Check that an optional package is installed, without importing it; see `require`."""
    if find_spec(package) is None:
        raise AptoolError(_missing(package, purpose, extra))


def _missing(package: str, purpose: str, extra: str) -> str:
    return f"{purpose} needs {package}: {install_command(extra)}"


class Tabular:
    """A result with rows and columns."""

    def to_polars(self) -> "pl.DataFrame":
        """Return the rows as a polars frame."""
        raise NotImplementedError

    def to_pandas(self) -> "pd.DataFrame":
        """Convert the rows and columns of ``to_polars`` to a pandas frame; raise if pandas is missing."""
        try:
            return self.to_polars().to_pandas()
        except ModuleNotFoundError as error:
            raise AptoolError("pandas is not installed: `pip install pandas`") from error

    def _repr_html_(self) -> str:
        """The first and the last rows as a table, in a notebook."""
        return self.to_polars()._repr_html_()


def command() -> str | None:
    """The command line of this process, if it is a command of aptool."""
    program = Path(sys.argv[0]) if sys.argv and sys.argv[0] else Path()
    if program.name == "aptool" or program.parts[-2:] == ("aptool", "__main__.py"):
        return shlex.join(["aptool", *sys.argv[1:]])
    return None


def _cpu_model() -> str:
    lines = _text("/proc/cpuinfo").splitlines()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def _text(path: str) -> str:
    """The text of a kernel file; empty if it does not exist."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError:
        return ""


def limit_spinning() -> None:
    """Set ``GOMP_SPINCOUNT``, which libgomp reads when torch is loaded, unless the user has set it."""
    if "torch" not in sys.modules and not any(name in os.environ for name in USER_SETTINGS):
        os.environ["GOMP_SPINCOUNT"] = str(SPIN_COUNT)
