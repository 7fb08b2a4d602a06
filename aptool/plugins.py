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

# Modules and files, separated as in PATH; child processes inherit the variable.
VARIABLE = "APTOOL_PLUGINS"

T = TypeVar("T")

_lock = Lock()
_loaded: set[str] = set()


def use_plugin(name: str) -> None:
    """Import a plugin, a module or a ``.py`` file, in this process and in child processes."""
    if name.endswith(".py"):
        name = str(Path(os.path.expanduser(name)).absolute())  # noqa: PTH111 - as `location`
    _import(name)
    names = os.environ.get(VARIABLE, "").split(os.pathsep)
    os.environ[VARIABLE] = os.pathsep.join(dict.fromkeys([*filter(None, names), name]))


def load_plugins() -> None:
    """Import the plugins of ``APTOOL_PLUGINS``, once per process."""
    for name in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        _import(name)


def _import(name: str) -> None:
    """Import a module or a file, once per process."""
    with _lock:
        if name in _loaded:
            return
        try:
            if name.endswith(".py"):
                _import_file(Path(name))
            else:
                _add_to_path(Path.cwd())
                importlib.import_module(name)
        except UsageError:
            raise
        except (Exception, SystemExit) as error:
            if isinstance(error, ModuleNotFoundError) and error.name in (name, name.partition(".")[0]):
                raise UsageError(
                    f"--plugin {name}: module not found; expected a Python module or the path of a .py file"
                ) from error
            reason = one_line(f"{type(error).__name__}: {first_line(error)}").rstrip(".")
            raise AptoolError(f"--plugin {name}: {reason}; expected a module that imports") from error
        _loaded.add(name)


def _import_file(path: Path) -> None:
    """Import a file as a module of the same name, with its folder on the search path."""
    if not path.is_file():
        raise UsageError(f"--plugin {path}: file not found; expected a .py file, on a cluster on every node")
    _add_to_path(path.parent)
    importlib.invalidate_caches()  # the file may be new
    file = getattr(importlib.import_module(path.stem), "__file__", None)
    if file is None or not path.samefile(file):
        raise UsageError(f"--plugin {path}: another module {path.stem} exists; expected another name")


def _add_to_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


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
