"""Runs as folders: shards, and the manifest that makes them one run.

A shard is a TREC run file with all candidates of its questions; no question is in two of them. Its name is
the beginning of its SHA-256, so that a shard is never written over: where a run is replaced, the manifest
lists the old shards until one write of it changes to the new ones.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from aptool.documents import json_text, read_json
from aptool.errors import InputError
from aptool.formats.atomic import atomic_file, check_writable
from aptool.formats.location import Location, PathOrUrl, location
from aptool.formats.schemas import check_document
from aptool.formats.storage import readable
from aptool.formats.stores import store_of
from aptool.formats.urls import is_object_url, is_remote

MANIFEST = "run.json"

_SHARD = re.compile(r"[0-9a-f]{24}\.run")
# A killed process leaves temporary files of shards.
_OWN = re.compile(rf"{_SHARD.pattern}|\.{_SHARD.pattern}\.[a-z0-9_]{{8}}\.part")

# Shards that are read at one time.
_REQUESTS = 16


class Shard(NamedTuple):
    """An entry of the manifest."""

    bytes: int
    sha256: str
    questions: int
    candidates: int

    @property
    def file(self) -> str:
        """Its name in the folder."""
        return _name(self.sha256)


def names_folder(output: PathOrUrl) -> bool:
    """Whether an output is to be a folder: its name ends in a slash."""
    return str(output).endswith("/")


def check_run_folder(output: PathOrUrl) -> None:
    """Checks, before any work, that a run can be written as a folder.

    Raises:
        InputError: it cannot be written, or there is a file, or a folder with other files and no manifest.
    """
    folder = location(output)
    if not store_of(folder)[1]:
        raise InputError(output, problem="a bucket", expected="a folder in it")
    if folder.is_file():
        raise InputError(folder, problem="a file", expected="a folder, or nothing yet")
    there = folder.is_dir()
    check_writable(folder / MANIFEST if there else folder)
    names = [one.name for one in folder.iterdir()] if there else []
    if MANIFEST not in names and not all(map(_OWN.fullmatch, names)):
        raise InputError(
            folder, problem=f"no {MANIFEST} in it", expected="a folder to replace, or nothing yet"
        )


def put_shard(folder: Location, lines: bytes) -> str:
    """Writes a shard, unless it is there.

    Returns:
        Its SHA-256, which ``has_shard`` takes.

    Raises:
        InputError: it cannot be written.
    """
    digest = hashlib.sha256(lines).hexdigest()
    folder.mkdir(exist_ok=True)
    store, key = store_of(folder / _name(digest))
    while not store.create(key, lines):
        found, version = store.read_versioned(key)
        if found == lines or store.swap(key, lines, version):
            break
    return digest


def has_shard(folder: Location, digest: str) -> bool:
    """Whether a shard is there and as it was written."""
    store, key = store_of(folder / _name(digest))
    try:
        return hashlib.sha256(store.read(key)).hexdigest() == digest
    except FileNotFoundError:
        return False


def publish_shards(folder: Location, tag: str, shards: Sequence[Shard]) -> None:
    """Writes the manifest, and removes the shards of the run that it replaces.

    Raises:
        InputError: a shard is not there, or the manifest cannot be written.
    """
    store, key = store_of(folder)

    def check(shard: Shard) -> None:
        try:
            size = store.stat(f"{key}/{shard.file}").size
        except FileNotFoundError:
            size = 0
        if size != shard.bytes:
            raise InputError(folder / shard.file, value=f"{size} bytes", expected=f"{shard.bytes} bytes")

    with ThreadPoolExecutor(_REQUESTS) as pool:
        list(pool.map(check, shards))
    entries = [{"file": shard.file, **shard._asdict()} for shard in shards]
    manifest = {"format": 1, "tag": tag, "shards": entries}
    check_document("run", manifest, folder / MANIFEST)
    with atomic_file(folder / MANIFEST) as temporary:
        temporary.write_text(json_text(manifest), encoding="utf-8")
    kept = {shard.file for shard in shards}
    old = [name for name in store.names(key) if _OWN.fullmatch(name) and name not in kept]
    store.delete([f"{key}/{name}" for name in old])


def run_folder(path: PathOrUrl) -> Location | None:
    """The folder that a run is in; None where the path is that of a file, or of nothing."""
    if is_remote(path) and not is_object_url(path):
        return None
    place = location(path)
    with readable(path):
        if isinstance(place, Path):
            return place if place.is_dir() else None
        if names_folder(path):
            return place
        return place if not place.is_file() and (place / MANIFEST).is_file() else None


def is_run(path: PathOrUrl) -> bool:
    """Whether there is a run: a file, or a folder with a manifest."""
    folder = run_folder(path)
    return (location(path) if folder is None else folder / MANIFEST).is_file()


def read_shards(folder: Location) -> Iterator[tuple[Location, bytes]]:
    """The shards of a run, in the manifest's order, each with its lines.

    Raises:
        InputError: the folder holds no run, or a shard is missing or has changed; it is named.
    """
    manifest = folder / MANIFEST
    if not manifest.is_file():
        expected = "a run file, or a folder that `aptool score` has completed"
        raise InputError(folder, problem=f"no {MANIFEST} in it", expected=expected)
    document = read_json(manifest)
    check_document("run", document, manifest)
    shards = document["shards"]
    for name, times in Counter(shard["file"] for shard in shards).items():
        if times > 1:
            raise InputError(manifest, place="shards", value=name, expected="each file once")

    def read(shard: dict[str, str]) -> tuple[Location, bytes]:
        path = folder / shard["file"]
        with readable(path):
            data = path.read_bytes()
        found = hashlib.sha256(data).hexdigest()
        if found != shard["sha256"]:
            expected = f"{shard['sha256'][:12]}…, as {MANIFEST} has it"
            raise InputError(path, column="sha256", value=f"{found[:12]}…", expected=expected)
        return path, data

    with ThreadPoolExecutor(_REQUESTS) as pool:
        for start in range(0, len(shards), _REQUESTS):
            yield from pool.map(read, shards[start : start + _REQUESTS])


def _name(digest: str) -> str:
    return f"{digest[:24]}.run"
