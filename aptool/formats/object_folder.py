"""Folders on an object store, uploaded file by file: the marker file, which commits the folder, comes last.

A model is replaced atomically: the names of its files contain a hash of the content, and one PUT of the
configuration, which lists the names under ``objects``, switches to the new files. Files of a collection keep
their names for other programs, so a collection has no manifest while it is replaced.
"""

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from aptool.documents import read_json
from aptool.errors import AptoolError, InputError, error_with
from aptool.formats.location import Location, ObjectPath, store_of
from aptool.formats.outputs import sha256_of

# The entry of the marker file with the names of the other files: {name: name on the store}.
OBJECTS = "objects"

_CONTENT_NAME = re.compile(r".+-[0-9a-f]{16}(\.\w+)?")


@contextmanager
def published(
    folder: ObjectPath,
    mark: str,
    before_upload: Callable[[dict[str, Path]], None],
    *,
    by_content: bool,
) -> Iterator[Path]:
    """Yield a temporary local folder, which is uploaded if the block succeeds.

    ``before_upload`` is called with the files, by relative name, that may replace files of the store. With
    ``by_content``, the other files are named by their content, and ``mark``, which is JSON, lists the names.
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
            before_upload({**files, mark: temporary / mark})
            store.delete([f"{key}/{mark}"])
            for relative, file in files.items():
                store.upload(f"{key}/{relative}", file)
            store.upload(f"{key}/{mark}", temporary / mark)
            return
        before = _objects(folder / mark)
        names = {relative: _content_name(relative, file) for relative, file in files.items()}
        existing = set(store.names(key))
        for relative, file in files.items():
            if names[relative] not in existing:
                store.upload(f"{key}/{names[relative]}", file)
        document = read_json(temporary / mark)
        (temporary / mark).write_text(_dumped({**document, OBJECTS: names}), encoding="utf-8")
        before_upload({mark: temporary / mark})
        store.upload(f"{key}/{mark}", temporary / mark)
        stale = set(before.values()) - set(names.values())
        store.delete([f"{key}/{old}" for old in sorted(stale) if _CONTENT_NAME.fullmatch(old)])


def remove_published(folder: ObjectPath, mark: str) -> None:
    """Remove a folder that was published with ``by_content``, ``mark`` first."""
    names = _objects(folder / mark).values()
    store, key = store_of(folder)
    store.delete([f"{key}/{mark}"])
    store.delete([f"{key}/{name}" for name in names if _CONTENT_NAME.fullmatch(name)])


@contextmanager
def fetched(folder: Location, mark: str, names: tuple[str, ...]) -> Iterator[Path]:
    """Yield a local folder, or a temporary copy of files of a remote folder; missing files are skipped."""
    objects = _objects(folder / mark)
    if isinstance(folder, Path) and not objects:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="aptool-") as created:
        temporary = Path(created)
        try:
            _fetch(folder, mark, names, objects, temporary)
            yield temporary
        except AptoolError as error:  # may contain the path of the temporary folder
            raise error_with(error.exit_code, str(error).replace(created, str(folder))) from error


def located(folder: Location, mark: str, name: str) -> Location:
    """The location of a file that may be named by its content."""
    return folder / _objects(folder / mark).get(name, name)


def _fetch(
    folder: Location, mark: str, names: tuple[str, ...], objects: dict[str, str], temporary: Path
) -> None:
    try:
        document = (folder / mark).read_bytes()
    except FileNotFoundError:
        return
    if objects:
        # The document has the same bytes as in a local folder.
        entries = json.loads(document)
        del entries[OBJECTS]
        document = _dumped(entries).encode()
    (temporary / mark).write_bytes(document)
    for relative in names:
        if relative == mark:
            continue
        target = temporary / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            _download(folder / objects.get(relative, relative), target)
        except FileNotFoundError:
            target.unlink(missing_ok=True)


def _download(source: Location, target: Path) -> None:
    """Download a file; raise FileNotFoundError if it is missing."""
    with source.open("rb") as opened, target.open("wb") as file:
        shutil.copyfileobj(opened, file, 8 << 20)


@contextmanager
def local_copy(path: Location) -> Iterator[Path]:
    """Yield a local file, or a temporary copy of a remote file."""
    if isinstance(path, Path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="aptool-") as name:
        temporary = Path(name) / path.name
        _download(path, temporary)
        yield temporary


def _objects(mark: Location) -> dict[str, str]:
    """The names on the store by file name; empty if the files are not named by their content."""
    try:
        document: Any = json.loads(mark.read_bytes())
        objects = document.get(OBJECTS, {})
        names = {str(name): str(path) for name, path in objects.items()}
    except (OSError, ValueError, AttributeError, RecursionError):
        return {}
    if any(PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts for path in names.values()):
        raise InputError(mark, position=OBJECTS, value=names, expected="names of files in the same folder")
    return names


def _content_name(relative: str, file: Path) -> str:
    """The name of a file with a hash of its content: ``model-0123456789abcdef.safetensors``."""
    path = PurePosixPath(relative)
    return str(path.with_name(f"{path.stem}-{sha256_of(file)[:16]}{path.suffix}"))


def _dumped(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2) + "\n"
