"""Which files an output may replace: those that aptool wrote and that have not changed since.

A hidden file in each folder with outputs, ``.aptool-outputs.json``, has the kind and the SHA-256 of each of
them. It is the same on disks and on object stores. An entry is written before its file gets its final name,
so that a killed command can run again.
"""

import contextlib
import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from aptool.documents import parse_json
from aptool.errors import InputError
from aptool.formats.local_store import remove_leftovers
from aptool.formats.location import Location, PathOrUrl, output_location, store_of

MANIFEST = ".aptool-outputs.json"

# The metadata of a run are in a file with its name and this suffix.
METADATA_SUFFIX = ".ir-metadata.yml"

EXPECTED = "another path, or --overwrite (in Python, overwrite=True)"

_UNKNOWN = "no record that aptool wrote it"

# Hashes per file: the present content and, if the last command was killed, that of the content before.
_HASHES = 3

# The entry of a folder itself, which ``adopt`` makes.
_FOLDER = "."


class Kind(StrEnum):
    """A kind of output: a file, or a folder whose files belong together."""

    COLLECTION = "collection"
    EVALUATION = "evaluation"
    HEAT_MAP = "heat map"
    METADATA = "metadata"
    MODEL = "model"
    POOLS = "pools"
    QRELS = "qrels"
    REPORT = "report"
    RESULT = "result"
    RUN = "run"
    SHARDS = "run in shards"
    TABLE = "table"
    VECTORS = "word vectors"


# Names of the files that belong to an output folder, relative to it.
_FOLDER_FILES = {
    Kind.COLLECTION: re.compile(r"collection\.json|answers\.parquet|[^/]+\.(pools\.parquet|qrels)"),
    Kind.MODEL: re.compile(
        r"config\.json|tokenizer\.json|model\.safetensors|README\.md|training/history\.jsonl|"
        r"(config_sentence_transformers|modules|sentence_bert_config|tokenizer_config)\.json|1_Pooling/config\.json"
    ),
    Kind.SHARDS: re.compile(r"_run\.json|part-\d{5,}-[0-9a-f]{12}\.(run|run\.gz|parquet)"),
}


class Written(NamedTuple):
    """An output that aptool wrote: its `Kind` and the SHA-256 of its content."""

    kind: str
    hashes: tuple[str, ...]


def adopt(path: PathOrUrl, kind: Kind) -> None:
    """Record existing files as outputs of this kind, which every process then replaces: ``--overwrite``."""
    final = output_location(path)
    store, key = store_of(final)
    if kind in (Kind.RUN, Kind.SHARDS):
        adopt(f"{final}{METADATA_SUFFIX}", Kind.METADATA)
    if kind not in _FOLDER_FILES:
        with contextlib.suppress(FileNotFoundError):
            record(final, kind, sha256_of(final))
        return
    if present := store.names(key):
        names = [name for name in present if _FOLDER_FILES[kind].fullmatch(name)]
        adopted = {name: Written(kind, (sha256_of(final / name),)) for name in names}
        record_all(final, {_FOLDER: Written(kind, ()), **adopted})


def is_adopted(folder: PathOrUrl) -> bool:
    """Whether `adopt` was called for a folder that no output has replaced since."""
    return _FOLDER in read_written(output_location(folder))


def check_replaceable(path: PathOrUrl, kind: Kind) -> None:
    """Raise if a file is not empty, and aptool did not write it as this kind or it has changed since."""
    final = output_location(path)
    problem = _problem(final, kind, read_written(final.parent).get(final.name))
    if problem is not None:
        raise InputError(path, problem=problem, expected=EXPECTED)


def check_folder_replaceable(folder: PathOrUrl, kind: Kind) -> None:
    """Raise if a folder has files and is not an unchanged output of this kind; files of the user stay."""
    final = output_location(folder)
    store, key = store_of(final)
    names = set(store.names(key))
    if not names:
        return
    written = read_written(final)
    if all(entry.kind != kind for entry in written.values()):
        kinds = sorted({entry.kind for entry in written.values()})
        problem = f"another kind of output ({', '.join(kinds)})" if kinds else _UNKNOWN
        raise InputError(folder, problem=problem, expected=EXPECTED)
    of_kind = [name for name, entry in written.items() if entry.kind == kind and entry.hashes]
    check_names_replaceable(folder, kind, of_kind)


def check_names_replaceable(folder: PathOrUrl, kind: Kind, names: Iterable[str]) -> None:
    """Raise if one of these files of a folder, by relative name, may not be replaced."""
    final = output_location(folder)
    written = read_written(final)
    for name in sorted(names):
        problem = _problem(final / name, kind, written.get(name))
        if problem is not None:
            raise InputError(f"{folder}/{name}", problem=problem, expected=EXPECTED)


def is_unchanged(file: Location, entry: Written) -> bool:
    """Whether a file has the content that aptool wrote."""
    return bool(entry.hashes) and _problem(file, entry.kind, entry) is None


def record(path: PathOrUrl, kind: Kind, sha256: str) -> None:
    """Note that aptool is about to write a file; call before the file gets its final name."""
    final = output_location(path)
    record_all(final.parent, {final.name: Written(kind, (sha256,))})


def record_all(folder: Location, outputs: Mapping[str, Written]) -> None:
    """Note several files of a folder, by name; see ``record``."""
    manifest = folder / MANIFEST
    store, key = store_of(manifest)
    if isinstance(manifest, Path):
        remove_leftovers(manifest)
    while True:
        try:
            data, version = store.read_versioned(key)
        except FileNotFoundError:
            if store.create(key, _dumped(outputs)):
                return
            continue
        written = _parsed(manifest, data)
        if _FOLDER in written and any(entry.kind == written[_FOLDER].kind for entry in outputs.values()):
            del written[_FOLDER]  # the adopted folder is now replaced
        for name, entry in outputs.items():
            before = written[name].hashes if name in written else ()
            hashes = tuple(dict.fromkeys((*entry.hashes, *before)))
            written[name] = Written(entry.kind, hashes[:_HASHES])
        if store.swap(key, _dumped(written), version):
            return


def read_written(folder: Location) -> dict[str, Written]:
    """The outputs of aptool in a folder, by name; empty if there are none."""
    manifest = folder / MANIFEST
    store, key = store_of(manifest)
    try:
        data = store.read(key)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return _parsed(manifest, data)


def sha256_of(file: Location) -> str:
    """SHA-256 of a file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def sha256_of_output(path: PathOrUrl) -> str:
    """SHA-256 of a file, from the record if aptool has just written it."""
    final = output_location(path)
    written = read_written(final.parent).get(final.name)
    return written.hashes[0] if written is not None and written.hashes else sha256_of(final)


def _problem(file: Location, kind: str, entry: Written | None) -> str | None:
    """The reason why a file may not be replaced; None if it may be."""
    store, key = store_of(file)
    try:
        size = store.stat(key).size
    except (FileNotFoundError, NotADirectoryError):
        return None
    if size == 0:
        return None
    if entry is None:
        return _UNKNOWN
    if entry.kind != kind:
        return f"another kind of output ({entry.kind})"
    if sha256_of(file) not in entry.hashes:
        return "changed since aptool wrote it"
    return None


def _dumped(written: Mapping[str, Written]) -> bytes:
    document = {
        name: {"kind": entry.kind, "sha256": list(entry.hashes)} for name, entry in sorted(written.items())
    }
    return (json.dumps(document, indent=1) + "\n").encode()


def _parsed(manifest: Location, data: bytes) -> dict[str, Written]:
    expected = "the record of outputs that aptool keeps"
    try:
        document = parse_json(data.decode("utf-8"), manifest, expected=expected)
        return {
            name: Written(str(entry["kind"]), tuple(map(str, entry["sha256"])))
            for name, entry in document.items()
        }
    except (UnicodeDecodeError, AttributeError, KeyError, TypeError) as error:
        raise InputError(manifest, problem="unknown content", expected=expected) from error
