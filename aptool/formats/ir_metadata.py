"""Metadata of a run file as an ``ir_metadata`` document (Breuer, Keller and Schaer, SIGIR 2022; version 0.1).

``RUN.ir-metadata.yml`` describes a run by the PRIMAD model: platform, research goal, implementation, method,
actor, data. Authors may add entries, such as the research goal and the actor; aptool preserves them.
"""

import hashlib
import json
from typing import Any

from aptool.documents import parse_yaml, yaml_text
from aptool.errors import InputError, first_line
from aptool.formats.atomic import atomic_file
from aptool.formats.location import Location, PathOrUrl, location, output_location
from aptool.formats.outputs import (
    EXPECTED,
    METADATA_SUFFIX,
    Kind,
    read_written,
    record,
    sha256_of,
)

SCHEMA_VERSION = 0.1
# The entries that aptool writes.
_WRITTEN = (
    *("schema-version", "run-version", "run-sha256", "tag", "platform", "implementation", "method", "data"),
)
_DOCUMENT = "a document of ir_metadata"
_COMPONENTS = ("platform", "research goal", "implementation", "method", "actor", "data")


def metadata_path(run: PathOrUrl) -> Location:
    """The metadata file of a run file."""
    return location(f"{output_location(run)}{METADATA_SUFFIX}")


def write_metadata(run: PathOrUrl, metadata: dict[str, Any], sha256: str) -> Location:
    """Write the metadata of a run, from ``scoring.score.run_metadata``; preserve entries of its author.

    ``sha256`` is that of ``formats.runs.main_file``.
    """
    path = metadata_path(run)
    executable = {} if metadata["command"] is None else {"executable": {"cmd": metadata["command"]}}
    document = {
        "schema-version": SCHEMA_VERSION,
        "run-version": 1.0,
        "tag": metadata["tag"],
        "platform": _platform(metadata),
        "implementation": {**executable, "source": {"lang": ["python"]}},
        "method": _method(metadata),
        "data": _data(metadata),
        "run-sha256": sha256,
    }
    document |= {key: value for key, value in _existing(path).items() if key not in document}
    _write(path, document)
    return path


def drop_metadata(run: PathOrUrl) -> None:
    """Delete stale metadata of an overwritten run, except entries of its author and files of other tools."""
    path = metadata_path(run)
    try:
        document = _existing(path)
    except InputError:
        return
    if not _is_by_aptool(document):
        return
    added = {key: value for key, value in document.items() if key not in _WRITTEN}
    if added:
        _write(path, {"schema-version": SCHEMA_VERSION, **added})
    else:
        path.unlink(missing_ok=True)


def check_metadata(run: PathOrUrl) -> None:
    """Raise if the entries of aptool have changed, so that the metadata may not be replaced."""
    path = metadata_path(run)
    entries = _entries_by_aptool(_existing(path))
    if not entries:
        return
    written = read_written(path.parent).get(path.name)
    if written is None:
        raise InputError(path, problem="no record that aptool wrote it", expected=EXPECTED)
    if {_hash(entries), sha256_of(path)}.isdisjoint(written.hashes):
        raise InputError(path, problem="entries of aptool have changed", expected=EXPECTED)


def _entries_by_aptool(document: dict[str, Any]) -> dict[str, Any]:
    """The entries of aptool; those of the author are left out."""
    return {key: document[key] for key in _WRITTEN[1:] if key in document}


def _hash(entries: dict[str, Any]) -> str:
    """SHA-256 of entries, whatever their order and layout in the file."""
    return hashlib.sha256(json.dumps(entries, sort_keys=True, default=str).encode()).hexdigest()


def _is_by_aptool(document: dict[str, Any]) -> bool:
    """Whether the document names aptool as the retrieval toolkit."""
    value: Any = document
    for key in ("platform", "software", "retrieval toolkit"):
        value = value.get(key) if isinstance(value, dict) else None
    return isinstance(value, list) and any(str(name).startswith("aptool==") for name in value)


def _existing(path: Location) -> dict[str, Any]:
    """The existing document; empty if there is none."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InputError(str(path), problem=first_line(error), expected=_DOCUMENT) from error
    document = parse_yaml(text, path, expected=_DOCUMENT)
    if not isinstance(document, dict) or "schema-version" not in document:
        raise InputError(str(path), problem="unknown content", expected=f"{_DOCUMENT}, or no file")
    return document


def _write(path: Location, document: dict[str, Any]) -> None:
    order = [key for key in document if key not in _COMPONENTS] + [
        key for key in _COMPONENTS if key in document
    ]
    text = yaml_text({key: document[key] for key in order})
    record(path, Kind.METADATA, _hash(_entries_by_aptool(document)))
    with atomic_file(path) as temporary:
        temporary.write_text(f"# ir_metadata.start\n{text}# ir_metadata.end\n", encoding="utf-8")


def _platform(metadata: dict[str, Any]) -> dict[str, Any]:
    machine = metadata["hardware"]
    cpu = machine["cpu"]
    hardware: dict[str, Any] = {
        "cpu": {
            "model": cpu["model"],
            "architecture": cpu["architecture"],
            "operation mode": "64-bit",
            "number of cores": cpu["cores"],
        },
        "ram": f"{machine['memory_gib']:.0f} GB",
    }
    if machine["gpus"]:
        gpu = machine["gpus"][0]
        hardware["gpu"] = {
            "architecture": gpu["name"],
            "number of cores": gpu["multiprocessors"],
            "ram": f"{gpu['memory_gib']:.0f} GB",
        }
    libraries = [f"{name}=={version}" for name, version in metadata["versions"].items() if name != "python"]
    return {
        "hardware": hardware,
        "operating system": metadata["operating_system"],
        "software": {
            "libraries": {"python": libraries},
            "retrieval toolkit": [f"aptool=={metadata['versions']['aptool']}"],
            "python": metadata["versions"]["python"],
        },
    }


def _method(metadata: dict[str, Any]) -> dict[str, Any]:
    has_run = any(pools.get("first_stage") for pools in metadata["pools"])
    first = {"name": "first stage", "method": "run" if has_run else "pools as given"}
    system = dict(metadata["system"])
    reranker = {"name": metadata["tag"], "method": system.pop("name"), **system, "reranks": "first stage"}
    return {
        "automatic": True,
        "score ties": "score descending, then document id descending, as trec_eval",
        "retrieval": [first, reranker],
        "work": metadata["work"],
        "finished": metadata["finished"],
    }


def _data(metadata: dict[str, Any]) -> dict[str, Any]:
    pools = metadata["pools"]
    first = next((pool for pool in pools if "collection" in pool), None)
    test: dict[str, Any] = {}
    if first is not None:
        test = {"name": first["collection"]} | {key: first[key] for key in ("source", "split", "fingerprint")}
    data: dict[str, Any] = {"test collection": {**test, "topics": ", ".join(pool["path"] for pool in pools)}}
    training = metadata["system"].get("training")
    if training is not None:
        data["training data"] = [{"name": training["collection"], "fingerprint": training["fingerprint"]}]
    return data
