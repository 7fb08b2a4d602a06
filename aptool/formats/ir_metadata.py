"""What made a run file as an ``ir_metadata`` document (Breuer, Keller and Schaer, SIGIR 2022; version 0.1).

The document describes a run by the PRIMAD model: platform, research goal, implementation, method, actor,
data. It stands beside the run as ``RUN.ir-metadata.yml``. The research goal and the actor are for the
author to add; entries that aptool does not write are kept when the run is made anew.
"""

import zlib
from typing import Any

import yaml

from aptool.documents import parse_yaml
from aptool.errors import InputError, first_line
from aptool.formats.atomic import atomic_file, check_writable
from aptool.formats.location import Location, PathOrUrl, location
from aptool.formats.stores import store_of
from aptool.formats.unpacking import GZIP
from aptool.options import expected_without

SCHEMA_VERSION = 0.1
SUFFIX = ".ir-metadata.yml"
# The entries of `to_document`.
_WRITTEN = ("schema-version", "run-version", "tag", "platform", "implementation", "method", "data")
_EXPECTED = "a document of ir_metadata"
_COMPONENTS = ("platform", "research goal", "implementation", "method", "actor", "data")


def metadata_path(run: PathOrUrl) -> Location:
    """Where the metadata of a run file stand."""
    return location(f"{run}{SUFFIX}")


def to_document(facts: dict[str, Any]) -> dict[str, Any]:
    """The document.

    Args:
        facts: what made the run, as `scoring.record.gather` gives it.

    Returns:
        Nested plain values, in the order of the PRIMAD model.
    """
    executable = {} if facts["command"] is None else {"executable": {"cmd": facts["command"]}}
    return {
        "schema-version": SCHEMA_VERSION,
        "run-version": 1.0,
        "tag": facts["tag"],
        "platform": _platform(facts),
        "implementation": {**executable, "source": {"lang": ["python"]}},
        "method": _method(facts),
        "data": _data(facts),
    }


def write_metadata(run: PathOrUrl, facts: dict[str, Any]) -> Location:
    """Write the metadata of a run file beside it; what an author has added there stays.

    Args:
        run: the run file.
        facts: as in `to_document`.

    Returns:
        The file.
    """
    path = metadata_path(run)
    document = to_document(facts)
    document |= {key: value for key, value in _existing(path).items() if key not in document}
    _write(path, document)
    return path


def drop_metadata(run: PathOrUrl) -> None:
    """Take back what `write_metadata` wrote beside a run file, which now has another run; for `write_run`.

    What an author has added there stays, and so does a file that aptool did not write.
    """
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
    """Checks, before a run is scored, that its metadata can be written."""
    _existing(metadata_path(run))


def _is_by_aptool(document: dict[str, Any]) -> bool:
    """Whether the retrieval toolkit that the document names is aptool."""
    value: Any = document
    for key in ("platform", "software", "retrieval toolkit"):
        value = value.get(key) if isinstance(value, dict) else None
    return isinstance(value, list) and any(str(name).startswith("aptool==") for name in value)


def _existing(path: Location) -> dict[str, Any]:
    """The document that stands there; empty if there is none."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InputError(str(path), problem=first_line(error), expected=_EXPECTED) from error
    found = parse_yaml(text, path, expected=_EXPECTED)
    if not isinstance(found, dict) or "schema-version" not in found:
        raise InputError(str(path), problem="something else", expected=f"{_EXPECTED}, or no file")
    return found


def _write(path: Location, document: dict[str, Any]) -> None:
    order = [key for key in document if key not in _COMPONENTS] + [
        key for key in _COMPONENTS if key in document
    ]
    # Paths of many characters stay on their line, so that they can be searched for.
    text = yaml.safe_dump(
        {key: document[key] for key in order}, sort_keys=False, allow_unicode=True, width=1_000
    )
    with atomic_file(path) as temporary:
        temporary.write_text(f"# ir_metadata.start\n{text}# ir_metadata.end\n", encoding="utf-8")


def _platform(facts: dict[str, Any]) -> dict[str, Any]:
    machine = facts["hardware"]
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
    libraries = [f"{name}=={version}" for name, version in facts["versions"].items() if name != "python"]
    return {
        "hardware": hardware,
        "operating system": facts["operating_system"],
        "software": {
            "libraries": {"python": libraries},
            "retrieval toolkit": [f"aptool=={facts['versions']['aptool']}"],
            "python": facts["versions"]["python"],
        },
    }


def _method(facts: dict[str, Any]) -> dict[str, Any]:
    stages = [pools["first_stage"] for pools in facts["pools"] if pools.get("first_stage")]
    first = {"name": "first stage", "method": stages[0]["system"] if stages else "pools as given"}
    system = dict(facts["system"])
    reranker = {"name": facts["tag"], "method": system.pop("name"), **system, "reranks": "first stage"}
    return {
        "automatic": True,
        "score ties": "score descending, then document id descending, as trec_eval",
        "retrieval": [first, reranker],
        "work": facts["work"],
        "finished": facts["finished"],
    }


def _data(facts: dict[str, Any]) -> dict[str, Any]:
    pools = facts["pools"]
    known = [one for one in pools if "collection" in one]
    found: dict[str, Any] = {"test collection": {"topics": ", ".join(one["path"] for one in pools)}}
    if known:
        one = known[0]
        found["test collection"] = {
            "name": one["collection"],
            "source": one["source"],
            "split": one["split"],
            "fingerprint": one["fingerprint"],
            **found["test collection"],
        }
    training = facts["system"].get("training")
    if training is not None:
        entry = {"name": training["collection"], "fingerprint": training["fingerprint"]}
        found["training data"] = [entry]
    return found


# Bytes at the beginning of a file in which its first line is looked for.
_HEAD_BYTES = 1 << 16
# Of a run's line: question, Q0, answer, rank, score, tag.
_FIELDS, _SCORE = 6, 4


def check_run_output(path: PathOrUrl) -> None:
    """Checks, before any work, that a run file can be written."""
    if str(path).endswith("/"):
        raise InputError(path, problem="a folder", expected=expected_without("a run file, not a folder"))
    check_writable(path)
    store, key = store_of(path)
    try:
        head = store.read(key, 0, min(_HEAD_BYTES, store.stat(key).size))
    except FileNotFoundError:
        return
    if not _begins_a_run(head):
        raise InputError(path, problem="not a run", expected="a run to replace, or nothing yet")


def _begins_a_run(head: bytes) -> bool:
    """Whether a file's first line is one of a run; an empty file is as good as none."""
    if head.startswith(GZIP):
        try:
            head = zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(head, _HEAD_BYTES)
        except zlib.error:
            return False
    lines = (line.split() for line in head.splitlines())
    first = next((line for line in lines if line and not line[0].startswith(b"#")), None)
    if first is None:
        return not head.strip()
    try:
        float(first[_SCORE])
    except (IndexError, ValueError):
        return False
    return len(first) >= _FIELDS
