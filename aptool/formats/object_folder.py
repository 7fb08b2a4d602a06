"""Folders on an object store, which has none: files first, and last the one that makes them a whole.

A model has to be whole also while it is replaced: its files get names with a hash of their content, and one
PUT of its configuration, which lists them under ``objects``, changes from the old model to the new one. The
files of a collection keep their names, for other programs to read: while it is replaced it has no manifest,
and so is no collection.
"""

import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from aptool.documents import read_json
from aptool.errors import AptoolError, InputError, error_with
from aptool.formats.location import Location, ObjectPath
from aptool.formats.stores import store_of

# The entry of the marking file that has the names of the others: {name: name on the store}.
OBJECTS = "objects"

_ADDRESSED = re.compile(r".+-[0-9a-f]{16}(\.\w+)?")


def check_object_folder(folder: ObjectPath, mark: str) -> None:
    """Check that a folder on a store is new, or one with the file ``mark``, which may be replaced."""
    store, key = store_of(folder)
    store.check_writable(key)
    names = store.names(key)
    if names and mark not in names:
        raise InputError(folder, problem=f"no {mark} in it", expected="a folder to replace, or nothing yet")


@contextmanager
def published(folder: ObjectPath, mark: str, *, by_content: bool) -> Iterator[Path]:
    """Yield a temporary folder of this machine, which is uploaded if the block succeeds.

    Args:
        folder: where to.
        mark: the file, JSON if ``by_content``, whose PUT is the commit.
        by_content: name the other files by their content.
    """
    with tempfile.TemporaryDirectory(prefix="aptool-") as name:
        temporary = Path(name)
        yield temporary
        files = {
            str(file.relative_to(temporary)): file
            for file in sorted(temporary.rglob("*"))
            if file.is_file() and file != temporary / mark
        }
        store, key = store_of(folder)
        if not by_content:
            store.delete([f"{key}/{mark}"])
            for relative, file in files.items():
                store.upload(f"{key}/{relative}", file)
            store.upload(f"{key}/{mark}", temporary / mark)
            return
        before = _objects(folder / mark)
        names = {relative: _addressed(relative, file) for relative, file in files.items()}
        there = set(store.names(key))
        for relative, file in files.items():
            if names[relative] not in there:
                store.upload(f"{key}/{names[relative]}", file)
        document = read_json(temporary / mark)
        (temporary / mark).write_text(_dumped({**document, OBJECTS: names}), encoding="utf-8")
        store.upload(f"{key}/{mark}", temporary / mark)
        gone = set(before.values()) - set(names.values())
        store.delete([f"{key}/{old}" for old in sorted(gone) if _ADDRESSED.fullmatch(old)])


def remove_published(folder: ObjectPath, mark: str) -> None:
    """Remove what ``published`` wrote by content; first the file that makes it a whole."""
    names = _objects(folder / mark).values()
    store, key = store_of(folder)
    store.delete([f"{key}/{mark}"])
    store.delete([f"{key}/{name}" for name in names if _ADDRESSED.fullmatch(name)])


@contextmanager
def fetched(folder: Location, mark: str, wanted: tuple[str, ...]) -> Iterator[Path]:
    """Some files of a folder as a folder of this machine: itself, or one that is removed after the block.

    Args:
        folder: as ``published`` or ``atomic_folder`` writes it.
        mark: its file that may list where the others are.
        wanted: files to fetch; one that is not there is left out.
    """
    objects = _objects(folder / mark)
    if isinstance(folder, Path) and not objects:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="aptool-") as name:
        temporary = Path(name)
        try:
            _fetch(folder, mark, wanted, objects, temporary)
            yield temporary
        except AptoolError as error:  # names a file there
            raise error_with(error.exit_code, str(error).replace(name, str(folder))) from error


def located(folder: Location, mark: str, name: str) -> Location:
    """Where a file of a folder is; see ``published``."""
    return folder / _objects(folder / mark).get(name, name)


def _fetch(
    folder: Location, mark: str, wanted: tuple[str, ...], objects: dict[str, str], temporary: Path
) -> None:
    try:
        document = (folder / mark).read_bytes()
    except FileNotFoundError:
        return
    if objects:
        # As it was written, so that it is the same file wherever the folder is.
        plain = json.loads(document)
        del plain[OBJECTS]
        document = _dumped(plain).encode()
    (temporary / mark).write_bytes(document)
    for relative in wanted:
        if relative == mark:
            continue
        target = temporary / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            copy_to(folder / objects.get(relative, relative), target)
        except FileNotFoundError:
            target.unlink(missing_ok=True)


def copy_to(source: Location, target: Path) -> None:
    """Copy a file to this machine."""
    with source.open("rb") as opened, target.open("wb") as file:
        shutil.copyfileobj(opened, file, 8 << 20)


@contextmanager
def local_copy(path: Location) -> Iterator[Path]:
    """A file as one of this machine: itself, or a copy that is removed after the block."""
    if isinstance(path, Path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="aptool-") as name:
        temporary = Path(name) / path.name
        copy_to(path, temporary)
        yield temporary


def _objects(mark: Location) -> dict[str, str]:
    """Where the files of a folder are, by name; empty where they have their own names."""
    try:
        document: Any = json.loads(mark.read_bytes())
        found = document.get(OBJECTS, {})
        plain = {str(name): str(path) for name, path in found.items()}
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}
    if any(PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts for path in plain.values()):
        raise InputError(mark, place=OBJECTS, value=plain, expected="names of files in the same folder")
    return plain


def _addressed(relative: str, file: Path) -> str:
    """The name of a file with a hash of its content: ``model-0123456789abcdef.safetensors``."""
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()[:16]
    path = PurePosixPath(relative)
    return str(path.with_name(f"{path.stem}-{digest}{path.suffix}"))


def _dumped(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"
