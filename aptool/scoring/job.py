"""The plan of a run: the part of each unit.

The name of a part is a hash of the input, the row group, the system and the tag. A part is therefore complete
and up to date or does not exist: an interrupted run resumes from its parts, and never takes a part of another
input or another system.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from aptool.errors import InputError
from aptool.formats import storage
from aptool.formats.footer import candidate_counts, read_footer, row_groups
from aptool.formats.location import PathOrUrl
from aptool.formats.pools import Unit, answers_beside
from aptool.formats.storage import Input
from aptool.formats.urls import is_remote
from aptool.scoring.parts import Part, parts_folder
from aptool.scoring.systems import System


def plan(
    units: Sequence[Unit], system: System, output: PathOrUrl, tag: str, answers: Input | None = None
) -> list[Part]:
    """Names the part of every unit by everything that its lines depend on.

    Args:
        units: the units.
        system: what will score them.
        output: the run file.
        tag: of the run.
        answers: the file of shared answers; None is ``answers.parquet`` beside each file of pools.

    Raises:
        InputError: an input cannot be read.
    """
    folder = parts_folder(output)
    parts = []
    footers: dict[str, tuple[str, str | None, list[int]]] = {}
    for unit in units:
        if unit.path not in footers:
            identity, footer = _identity(unit.path, unit.version)
            used = answers if answers is not None else shared_input(unit.path)
            shared = _identity(*used)[0] if used is not None else None
            footers[unit.path] = identity, shared, _pairs(unit.path, footer)
        identity, shared, pairs = footers[unit.path]
        facts = [identity, unit.row_group, system.fingerprint, shared, tag]
        digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]
        parts.append(Part(unit, folder / f"{digest}.part", pairs[unit.row_group], tag))
    return parts


def shared_input(pools: str) -> Input | None:
    """The answers file beside a file of pools, as an input."""
    beside = answers_beside(pools)
    return Input(str(beside), storage.stat(beside).version) if beside is not None else None


def unit_pairs(units: Sequence[Unit]) -> list[int]:
    """The number of pairs of each unit.

    Raises:
        InputError: an input cannot be read.
    """
    pairs: dict[str, list[int]] = {}
    for unit in units:
        if unit.path not in pairs:
            pairs[unit.path] = _pairs(unit.path, _identity(unit.path, unit.version)[1])
    return [pairs[unit.path][unit.row_group] for unit in units]


def digest_of(path: str) -> str:
    """A hash of a file's end, which has the places and statistics of a Parquet file's columns."""
    with storage.open_native(path) as file:
        return hashlib.sha256(_tail(file)).hexdigest()


def _tail(file: pa.NativeFile) -> bytes:
    file.seek(max(0, file.size() - (1 << 16)))
    return bytes(file.read())


def _identity(path: str, version: str | None) -> tuple[str, bytes]:
    """What distinguishes a file from another that replaced it, and its footer."""
    with storage.open_native(path, version) as file:
        tail = _tail(file)
        footer = read_footer(file)
    digest = hashlib.sha256(tail).hexdigest()
    # A folder of this machine may be moved; elsewhere nothing but the whole URL names a file.
    name = path if is_remote(path) else Path(path).name
    return json.dumps([name, version, digest]), footer


def _pairs(path: str, footer: bytes) -> list[int]:
    """The number of pairs of each row group."""
    try:
        return candidate_counts(row_groups(footer))
    except ValueError as error:
        raise InputError(path, problem=str(error), expected="a readable Parquet file") from error
