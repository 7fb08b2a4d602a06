"""``aptool doctor``: what aptool finds on this machine, and what will get in the way."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path

import click

from aptool.environment import GIB, available_cores, available_memory, gpus, version_of
from aptool.version import __version__

# What each extra of pyproject.toml adds; a test holds the two together.
EXTRAS = {
    "cloud": "paths on S3, Google Cloud Storage and Azure",
    "cluster": "--cluster: training and scoring with Ray",
    "distill": "word vectors from a sentence encoder, static embedding models",
    "transformers": "pretrained encoders and cross-encoders",
    "bench": "`python -m bench.rival`: the library that it compares with",
    "faults": "`python -m bench.faults`: the tools that it compares",
    "fusion": "fuse --train: fusion that is learned",
    "hub": "push, models from hf://",
    "ir-datasets": "data import ir-datasets",
    "mlflow": "train --log mlflow",
    "pyterrier": "aptool.pyterrier: models and runs as transformers of PyTerrier",
    "tensorboard": "train --log tensorboard",
    "wandb": "train --log wandb",
    "report": "report, plot and explain as pages and pictures",
}
PACKAGES = ("torch", "polars", "pyarrow", "numpy", "tokenizers", "pytrec-eval-terrier", "ray", "transformers")
LEAST_DISK_GIB = 5
LEAST_MEMORY_GIB = 4


@dataclass
class Findings:
    """What was found.

    Attributes:
        versions: Version of aptool, Python and each package of ``PACKAGES``; None if it is not installed.
        devices: Devices that a network can run on, the one of ``--device auto`` first.
        cores: Cores that this process may use; fractional if a container limits them.
        threads: Threads that PyTorch uses.
        memory_gib: Memory that this process may take, in GiB.
        disk_gib: Free disk space of the current folder, in GiB.
        ray_address: The cluster that ``--cluster`` would connect to.
        extras: For each extra, the packages of it that are missing.
        problems: One line on each thing that will get in the way.
    """

    versions: dict[str, str | None] = field(default_factory=dict)
    devices: list[str] = field(default_factory=list)
    cores: float = 0.0
    threads: int = 0
    memory_gib: float = 0.0
    disk_gib: float = 0.0
    ray_address: str | None = None
    extras: dict[str, list[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(as_json: bool) -> None:
    """Show versions, devices, extras, memory and disk, and what will get in the way.

    Exits with 1 if something will.
    """
    findings = examine(Path.cwd())
    if as_json:
        click.echo(json.dumps(asdict(findings), indent=2))
    else:
        _print(findings)
    if findings.problems:
        click.get_current_context().exit(1)


def examine(folder: Path) -> Findings:
    """Looks at this machine from ``folder``; connects to nothing and starts nothing."""
    import torch

    seen = [f"cuda:{index} ({gpu['name']}, {gpu['memory_gib']:.0f} GiB)" for index, gpu in enumerate(gpus())]
    found = Findings(
        versions={
            "aptool": __version__,
            "Python": platform.python_version(),
            **{name: version_of(name) for name in PACKAGES},
        },
        devices=[*seen, f"cpu ({platform.processor() or platform.machine()})"],
        cores=available_cores(),
        threads=torch.get_num_threads(),
        memory_gib=round(available_memory() / GIB, 1),
        disk_gib=round(shutil.disk_usage(folder).free / GIB, 1),
        ray_address=os.environ.get("RAY_ADDRESS"),
        extras=missing_by_extra(),
    )
    found.problems = _problems(found, folder)
    return found


def missing_by_extra() -> dict[str, list[str]]:
    """For each extra that the installed aptool declares, its packages that are not installed."""
    missing: dict[str, list[str]] = {}
    for requirement in metadata.requires("aptool") or []:
        name = re.match(r"[\w.-]+", requirement)
        extra = re.search(r"""extra\s*==\s*['"]([\w-]+)['"]""", requirement)
        if name and extra:
            packages = missing.setdefault(extra[1], [])
            if version_of(name[0]) is None:
                packages.append(name[0])
    return missing


def _problems(found: Findings, folder: Path) -> list[str]:
    """One line on each thing that will get in the way, with what to do about it."""
    problems = []
    if len(found.devices) == 1 and Path("/dev/nvidia0").exists():
        problems.append(
            "an NVIDIA GPU is here and PyTorch does not see it: install torch for CUDA (pytorch.org)"
        )
    if found.threads > found.cores:
        threads = max(1, int(found.cores))
        problems.append(
            f"PyTorch uses {found.threads} threads on {found.cores:g} cores: set OMP_NUM_THREADS={threads}"
        )
    if found.memory_gib < LEAST_MEMORY_GIB:
        problems.append(
            f"{found.memory_gib} GiB of memory: large collections need more than {LEAST_MEMORY_GIB} GiB; "
            "`train --set training.minibatch=N` with a smaller N helps"
        )
    if found.disk_gib < LEAST_DISK_GIB:
        problems.append(f"{folder}: {found.disk_gib} GiB of free disk space: less than {LEAST_DISK_GIB} GiB")
    if not os.access(folder, os.W_OK):
        problems.append(f"{folder}: no permission to write here: give outputs as --output /elsewhere/NAME")
    if version_of("pytrec-eval") is not None:
        problems.append(
            "pytrec-eval of 2020 is installed and hides pytrec-eval-terrier: uninstall it, and install "
            "pytrec-eval-terrier again"
        )
    if found.versions["ray"] is not None:
        problems.extend(_ray_problems(found))
    return problems


def _ray_problems(found: Findings) -> list[str]:
    shared = Path("/dev/shm")  # Ray's object store is there
    free = shutil.disk_usage(shared).free / GIB if shared.is_dir() else 0
    if free < min(1, 0.1 * found.memory_gib):
        return [
            f"{shared} has {free:.1f} GiB: Ray's object store falls back to the disk, which is slow "
            "(docker run --shm-size=2g)"
        ]
    return []


def _print(found: Findings) -> None:
    width = 10
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items() if version)
    lines = [
        ("versions", versions),
        ("devices", "; ".join(found.devices)),
        ("cores", f"{found.cores:g}, PyTorch uses {found.threads} threads"),
        ("memory", f"{found.memory_gib} GiB"),
        ("disk", f"{found.disk_gib} GiB free here"),
        ("Ray", f"RAY_ADDRESS={found.ray_address}" if found.ray_address else "RAY_ADDRESS is not set"),
    ]
    for name, text in lines:
        click.echo(f"{name:{width}}{text}")
    for extra, missing in found.extras.items():
        adds = EXTRAS.get(extra, "")
        state = f'pip install "aptool[{extra}]"' if missing else "installed"
        click.echo(f"{'extra':{width}}{extra}: {adds}: {state}")
    for problem in found.problems:
        click.echo(f"{'problem':{width}}{problem}")
    if not found.problems:
        click.echo(f"{'problems':{width}}none found")
