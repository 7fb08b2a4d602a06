"""Code of users: plugins, which register encoders or poolings, and hashes of their source files.

Plugins come from ``--plugin`` and from ``APTOOL_PLUGINS``. Their classes are computed by their own
definition: faster code serves exact types. A plugin decides scores, as a model does: the hash of its file is
part of every fingerprint, so that results of an edited file are never mixed with earlier ones. Other files
that it imports are not hashed.
"""

import hashlib
import importlib
import inspect
import os
import sys
from collections import UserDict
from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from typing_extensions import override

from aptool.errors import AptoolError, UsageError, first_line, one_line

# Paths of files, separated as in PATH; child processes inherit the variable.
VARIABLE = "APTOOL_PLUGINS"

T = TypeVar("T")

_lock = Lock()
_loaded: set[str] = set()


def use_plugin(path: str) -> None:
    """Import a plugin, a ``.py`` file, in this process and in child processes."""
    path = str(Path(os.path.expanduser(path)).absolute())  # noqa: PTH111 - as `location`
    _import(path)
    paths = os.environ.get(VARIABLE, "").split(os.pathsep)
    os.environ[VARIABLE] = os.pathsep.join(dict.fromkeys([*filter(None, paths), path]))


def load_plugins() -> None:
    """Import the plugins of ``APTOOL_PLUGINS``, once per process."""
    for path in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        _import(path)


def _import(path: str) -> None:
    """Import a file as a module of the same name, once per process, with its folder on the search path."""
    with _lock:
        if path in _loaded:
            return
        file = Path(path)
        if not (file.is_file() and file.suffix == ".py"):
            raise UsageError(
                f"--plugin {path}: file not found; expected a .py file, on a cluster on every node"
            )
        if str(file.parent) not in sys.path:
            sys.path.append(str(file.parent))
        importlib.invalidate_caches()  # the file may be new
        try:
            imported = getattr(importlib.import_module(file.stem), "__file__", None)
        except (Exception, SystemExit) as error:
            reason = one_line(f"{type(error).__name__}: {first_line(error)}").rstrip(".")
            raise AptoolError(f"--plugin {path}: {reason}; expected a module that imports") from error
        if imported is None or not file.samefile(imported):
            raise UsageError(f"--plugin {path}: another module {file.stem} exists; expected another name")
        _loaded.add(path)


class Registry(UserDict[str, type[T]]):
    """Subclasses of a class by name; one of aptool as ``MODULE:CLASS`` is imported when it is looked up."""

    def __init__(self, base: type, entries: Mapping[str, type[T] | str]) -> None:
        super().__init__()
        self._base = base
        self.data.update(entries)  # type: ignore[arg-type]  # names are resolved by __getitem__

    @override
    def __getitem__(self, name: str) -> type[T]:
        entry = super().__getitem__(name)
        if isinstance(entry, str) and entry.startswith("aptool."):
            module, _, attribute = entry.partition(":")
            entry = self.data[name] = getattr(importlib.import_module(module), attribute)
        if not (isinstance(entry, type) and issubclass(entry, self._base)):
            expected = f"a subclass of {self._base.__name__}"
            raise AptoolError(f"{name!r} of a plugin is {entry!r}: expected {expected}")
        return entry


def sources_of(objects: Iterable[Any]) -> dict[str, str]:
    """Return hashes of the source files of classes and functions, by `file_name`; aptool's have no entry."""
    hashes: dict[str, str] = {}
    for item in objects:
        module = "__main__" if item.__module__ == "__mp_main__" else item.__module__  # in a child process
        if module.partition(".")[0] == "aptool":
            continue
        if not (digest := hash_file(file_name(module))):
            try:
                digest = _digest(inspect.getsource(item).encode())  # of a notebook
            except (OSError, TypeError) as error:
                raise AptoolError(f"{item.__qualname__}: has no source; expected a .py file") from error
        hashes[file_name(module)] = digest
    return hashes


def file_name(module: str) -> str:
    """The name of the file of a module, ``folder/name.py``."""
    return module.replace(".", "/") + ".py"


def hash_file(name: str) -> str:
    """Return the hash of the file of an imported module, see `file_name`; empty if it has none."""
    module = sys.modules.get(name.removesuffix(".py").replace("/", "."))
    file = getattr(module, "__file__", None)
    if file is None:
        return ""
    try:
        return _digest(Path(file).read_bytes())
    except OSError as error:
        raise AptoolError(f"{name}: {file}: {error.strerror}; expected the source of a plugin") from error


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
