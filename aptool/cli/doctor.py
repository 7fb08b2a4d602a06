"""``aptool doctor``: check the installation and the machine."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import shutil
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path

import click

from aptool.environment import GIB, available_cores, available_memory, faster_settings, gpus, version_of
from aptool.version import __version__, install_command

# Purpose of each extra of pyproject.toml; a test compares the two.
EXTRAS = {
    "torch": "training, scoring with a model, explain, heat maps of a report",
    "transformers": "pretrained encoders, cross-encoders, checkpoints of other libraries",
    "sentence-transformers": "score --engine sentence-transformers",
    "openvino": "score --engine openvino",
    "report": "aptool report, explain --html",
    "cluster": "--cluster: training and scoring with Ray",
    "cloud": "s3://, gs:// and az:// URLs",
    "excel": "aptool data import csv of .xlsx files",
    "hub": "models from hf://",
    "distill": "word vectors from a sentence encoder, static embedding models",
    "fusion": "aptool fuse --train",
    "ir-datasets": "aptool data import ir-datasets",
    "bench": "python -m bench.rival",
    "faults": "python -m bench.faults",
}
PACKAGES = ("torch", "polars", "pyarrow", "numpy", "tokenizers", "pytrec-eval-terrier", "ray", "transformers")
LEAST_DISK_GIB = 5
LEAST_MEMORY_GIB = 4


@dataclass
class Findings:
    """State of this machine and of the installed packages."""

    versions: dict[str, str | None]  # of aptool, Python and ``PACKAGES``; None if not installed
    devices: list[str]  # the one of ``--device auto`` first
    cores: float  # available to this process; fractional in a container
    threads: int | None  # of PyTorch; None if it is not installed
    memory_gib: float  # available to this process
    disk_gib: float  # free in the current folder
    ray_address: str | None  # default of ``--cluster``
    extras: dict[str, list[str]]  # missing packages per extra
    problems: list[str] = field(default_factory=list)  # one line each, with the remedy


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(as_json: bool) -> None:
    """Check the installation and the machine: devices, memory, disk, versions and extras.

    The exit code is 1 if there is a problem.
    """
    findings = examine(Path.cwd())
    if as_json:
        click.echo(json.dumps(asdict(findings), indent=2))
    else:
        _print(findings)
    if findings.problems:
        click.get_current_context().exit(1)


def examine(folder: Path) -> Findings:
    """Examine this machine and ``folder``, without a network connection."""
    threads, cuda = None, []
    with contextlib.suppress(ModuleNotFoundError):  # PyTorch is an extra
        import torch

        threads = torch.get_num_threads()
        for index, gpu in enumerate(gpus()):
            cuda.append(f"cuda:{index} ({gpu['name']}, {gpu['memory_gib']:.0f} GiB)")
    findings = Findings(
        versions={
            "aptool": __version__,
            "Python": platform.python_version(),
            **{name: version_of(name) for name in PACKAGES},
        },
        devices=[*cuda, f"cpu ({platform.processor() or platform.machine()})"],
        cores=available_cores(),
        threads=threads,
        memory_gib=round(available_memory() / GIB, 1),
        disk_gib=round(shutil.disk_usage(folder).free / GIB, 1),
        ray_address=os.environ.get("RAY_ADDRESS"),
        extras=missing_by_extra(),
    )
    findings.problems = _problems(findings, folder)
    return findings


def missing_by_extra() -> dict[str, list[str]]:
    """Missing packages of each extra that the installed aptool declares; empty in a source tree."""
    missing: dict[str, list[str]] = {}
    requirements: list[str] = []
    with contextlib.suppress(metadata.PackageNotFoundError):
        requirements = metadata.requires("aptool") or []
    for requirement in requirements:
        name = re.match(r"[\w.-]+", requirement)
        extra = re.search(r"""extra\s*==\s*['"]([\w-]+)['"]""", requirement)
        if name and extra:
            packages = missing.setdefault(extra[1], [])
            if version_of(name[0]) is None:
                packages.append(name[0])
    return missing


def _problems(findings: Findings, folder: Path) -> list[str]:
    """One line per problem, with its remedy."""
    problems = []
    if findings.threads is not None and len(findings.devices) == 1 and Path("/dev/nvidia0").exists():
        problems.append("PyTorch does not see the NVIDIA GPU: install PyTorch for CUDA (pytorch.org)")
    if findings.threads is not None and findings.threads > findings.cores:
        threads = max(1, int(findings.cores))
        problems.append(
            f"PyTorch uses {findings.threads} threads on {findings.cores:g} cores: "
            f"set OMP_NUM_THREADS={threads}"
        )
    if findings.memory_gib < LEAST_MEMORY_GIB:
        problems.append(
            f"{findings.memory_gib} GiB of memory: large collections need more than {LEAST_MEMORY_GIB} GiB; "
            "`train --set training.minibatch=N` with a smaller N helps"
        )
    if findings.disk_gib < LEAST_DISK_GIB:
        problems.append(
            f"{folder}: {findings.disk_gib} GiB of free disk space: less than {LEAST_DISK_GIB} GiB"
        )
    if not os.access(folder, os.W_OK):
        problems.append(f"{folder}: no permission to write here: give outputs as --output /elsewhere/NAME")
    if version_of("pytrec-eval") is not None:
        problems.append(
            "pytrec-eval of 2020 is installed and hides pytrec-eval-terrier: uninstall it, and install "
            "pytrec-eval-terrier again"
        )
    shared = Path("/dev/shm")  # holds Ray's object store
    free = shutil.disk_usage(shared).free / GIB if shared.is_dir() else 0
    if findings.versions["ray"] is not None and free < min(1, 0.1 * findings.memory_gib):
        problems.append(
            f"{shared} has {free:.1f} GiB: Ray's object store falls back to the disk, which is slow "
            "(docker run --shm-size=2g)"
        )
    return problems


def _print(findings: Findings) -> None:
    lines = [("problem", problem) for problem in findings.problems] or [("problems", "none")]
    threads = f"PyTorch uses {findings.threads} threads" if findings.threads else "PyTorch is not installed"
    ray = f"RAY_ADDRESS={findings.ray_address}" if findings.ray_address else "RAY_ADDRESS is not set"
    lines += [
        ("devices", "; ".join(findings.devices)),
        ("cores", f"{findings.cores:g}, {threads}"),
        ("memory", f"{findings.memory_gib} GiB"),
        ("disk", f"{findings.disk_gib} GiB free here"),
        ("Ray", ray),
        ("encoders", f"faster than fp32: {faster_settings() or 'no setting is known'}"),
        ("versions", ", ".join(f"{name} {value}" for name, value in findings.versions.items() if value)),
    ]
    for title, text in lines:
        click.echo(f"{title:10}{text}")
    if not findings.extras:
        click.echo("extras    unknown: aptool is not installed as a package")
        return
    click.echo(f"extras, installed with {install_command('NAME')}:")
    names = [name for name in EXTRAS if name in findings.extras]
    for name in sorted(names, key=lambda name: bool(findings.extras[name])):  # installed extras first
        state = "missing" if findings.extras[name] else "installed"
        click.echo(f"  {name:23}{state:11}{EXTRAS[name]}")
