"""What made a run file, as an ``ir_metadata`` document (Breuer, Keller and Schaer, SIGIR 2022; version 0.1).

The document describes a run by the PRIMAD model: platform, research goal, implementation, method, actor, data.
It stands beside the run as ``RUN.ir-metadata.yml``; what aptool cannot know (the research goal, the actor) is
left out for the author to add.
"""

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from aptool.formats.atomic import atomic_file

SCHEMA_VERSION = 0.1
SUFFIX = ".ir-metadata.yml"

# Libraries that a score can depend on.
LIBRARIES = ("aptool", "torch", "numpy", "pyarrow", "polars", "tokenizers", "transformers", "ray", "bm25s")


def metadata_path(run: str | Path) -> Path:
    """Where the metadata of a run file stand."""
    return Path(f"{run}{SUFFIX}")


def describe_run(
    tag: str,
    *,
    method: dict[str, Any],
    data: dict[str, Any],
    command: str | None = None,
    device: str = "cpu",
) -> dict[str, Any]:
    """The metadata of a run.

    Args:
        tag: of the run.
        method: entries of the stage that reranked, such as name, method and parameters.
        data: entries of ``data``: ``test collection``, ``training data``.
        command: the command that made the run.
        device: what scored it; for a GPU its architecture is added.

    Returns:
        Nested plain values, in the order of the PRIMAD model.
    """
    implementation: dict[str, Any] = {"source": {"lang": ["python"]}}
    if command is not None:
        implementation = {"executable": {"cmd": command}, **implementation}
    return {
        "schema-version": SCHEMA_VERSION,
        "run-version": 1.0,
        "tag": tag,
        "platform": {"hardware": _hardware(device), "operating system": _system(), "software": _software()},
        "implementation": implementation,
        "method": {
            "automatic": True,
            "score ties": "score descending, then document id descending, as trec_eval",
            "retrieval": [
                {"name": "first stage", "method": "pools as given"},
                {**method, "reranks": "first stage"},
            ],
        },
        "data": data,
    }


def write_metadata(run: str | Path, document: dict[str, Any]) -> Path:
    """Writes the metadata of a run file beside it; returns where.

    Raises:
        InputError: it cannot be written.
    """
    import yaml

    path = metadata_path(run)
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    with atomic_file(path) as temporary:
        temporary.write_text(f"# ir_metadata.start\n{text}# ir_metadata.end\n", encoding="utf-8")
    return path


def _hardware(device: str) -> dict[str, Any]:
    hardware: dict[str, Any] = {
        "cpu": {
            "model": _cpu_model(),
            "architecture": platform.machine(),
            "operation mode": platform.architecture()[0].replace("bit", "-bit"),
            "number of cores": os.cpu_count() or 1,
        },
        "ram": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GB",
    }
    if device.startswith("cuda"):
        import torch

        found = torch.cuda.get_device_properties(torch.device(device))
        hardware["gpu"] = {
            "architecture": found.name,
            "number of cores": found.multi_processor_count,
            "ram": f"{found.total_memory / 2**30:.0f} GB",
        }
    return hardware


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def _system() -> dict[str, str]:
    try:
        distribution = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        distribution = platform.system()
    return {"kernel": f"{platform.system()} {platform.release()}", "distribution": distribution}


def _software() -> dict[str, Any]:
    versions = []
    for name in LIBRARIES:
        try:
            versions.append(f"{name}=={metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    toolkit = [one for one in versions if one.startswith("aptool==")]
    return {"libraries": {"python": versions}, "retrieval toolkit": toolkit}
