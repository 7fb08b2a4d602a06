"""Hashes of the code of users: from classes and functions to the source files that define them.

A plugin or a word function decides scores, as a model does. Its hash is part of every fingerprint, so that
results of an edited file are never mixed with earlier ones.
"""

import ast
import hashlib
import inspect
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import packages_distributions
from importlib.util import resolve_name
from pathlib import Path
from typing import Any

from aptool.environment import version_of
from aptool.errors import AptoolError
from aptool.version import __version__

_INSTALLED = {"site-packages", "dist-packages"}  # names of folders
_STANDARD = Path(sysconfig.get_path("stdlib"))

# Packages whose versions are recorded by name.
_EXCLUDED = {"aptool", "torch"}

# Specification, hash and imports of each loaded module. `importlib.reload` replaces the specification.
# An edit without a reload does not change the code that runs.
_loaded: dict[str, tuple[Any, str, tuple[str, ...]]] = {}


def versions_of(*libraries: str) -> dict[str, str]:
    """Return the versions of aptool and of installed libraries, without build tags."""
    versions = {"aptool": __version__}
    for name in libraries:
        if name not in versions and (text := version_of(name)):
            versions[name] = text.partition("+")[0]
    return versions


def sources_of(objects: Iterable[Any]) -> dict[str, str]:
    """Return the sources of classes and functions: hashes of modules, versions of installed packages.

    The modules that a module imports are included. Objects of aptool, torch and the standard library have no
    entry.
    """
    cells: dict[str, str] = {}
    modules: set[str] = set()
    for part in dict.fromkeys(part for item in objects for part in _parts(item)):
        name = getattr(part, "__module__", None)
        name = "__main__" if name == "__mp_main__" else name  # in a child process
        if name == "__main__" and _file(name) is None:
            cells[f"{name}.{part.__qualname__}"] = _digest(_text(part).encode())
        elif isinstance(name, str):
            modules.add(name)
    return cells | hash_modules(modules)


def hash_modules(names: Iterable[str]) -> dict[str, str]:
    """Return the hash of each module and of the modules that it imports; a package's version if installed."""
    hashes: dict[str, str] = {}
    pending, seen = list(names), set[str]()
    while pending:
        name = pending.pop()
        package = name.partition(".")[0]
        if name in seen or package in _EXCLUDED:
            continue
        seen.add(name)
        top = _file(package)
        if top is not None and not _INSTALLED.isdisjoint(top.parts) and package in _distributions():
            distribution = _distributions()[package]
            hashes[distribution] = version_of(distribution) or "uncached"
            continue
        path = _file(name)
        if path is None or (_INSTALLED.isdisjoint(path.parts) and path.is_relative_to(_STANDARD)):
            continue
        hashes[name], imported = _read(name, path)
        pending += [*imported, *_parents(name), *_members(name, path)]
    return dict(sorted(hashes.items()))


def differing_code(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Name the entries that differ, for an error; empty if none does."""
    names = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    return ", ".join(f"{name} {before.get(name, 'none')}, now {now.get(name, 'none')}" for name in names)


def _parts(item: Any) -> Iterator[Any]:
    """Yield a function, or the base classes of a class and their methods, which a plugin may replace."""
    if not inspect.isclass(item):
        yield item
        return
    for base in item.__mro__:
        if base.__module__.partition(".")[0] == "torch":  # other libraries replace methods of nn.Module
            continue
        yield base
        yield from (value for value in vars(base).values() if inspect.isfunction(value))


def _file(name: str) -> Path | None:
    """Return the file of a module, without importing it."""
    if name in sys.modules:
        file = getattr(sys.modules[name], "__file__", None)
        return Path(file) if file is not None else None
    spec = _spec(name)
    return Path(spec.origin) if spec is not None and spec.has_location and spec.origin is not None else None


def _spec(name: str) -> ModuleSpec | None:
    if name in sys.modules:
        return getattr(sys.modules[name], "__spec__", None)
    parent, folders = name.rpartition(".")[0], None
    if parent:
        package = _spec(parent)
        if package is None or package.submodule_search_locations is None:
            return None
        try:
            folders = list(package.submodule_search_locations)
        except KeyError:  # a namespace package inside a package that is not imported
            return None
    return PathFinder.find_spec(name, folders)


def _read(name: str, path: Path) -> tuple[str, tuple[str, ...]]:
    """Return the hash of a file, and the names of the modules that it may import."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    cached = _loaded.get(name)
    if cached is not None and spec is not None and cached[0] is spec:
        return cached[1:]
    try:
        data = path.read_bytes()
    except OSError as error:
        raise AptoolError(f"{name}: {path}: {error.strerror}; expected the source of a plugin") from error
    result = _digest(data), tuple(dict.fromkeys(_imports(name, path, data)))
    _loaded[name] = spec, *result
    return result


def _imports(name: str, path: Path, data: bytes) -> Iterator[str]:
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError):  # a compiled module
        return
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            try:
                base = resolve_name("." * node.level + (node.module or ""), package)
            except ImportError:  # beyond the top-level package
                continue
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _members(name: str, path: Path) -> Iterator[str]:
    """Yield the modules of a package, which it may import by computed names."""
    if path.name == "__init__.py":
        for file in [*path.parent.glob("*.py"), *path.parent.glob("*/__init__.py")]:
            module = file if file.parent == path.parent else file.parent
            yield f"{name}.{module.stem}"


def _parents(name: str) -> Iterator[str]:
    while name := name.rpartition(".")[0]:
        yield name


def _text(part: Any) -> str:
    """Return the source of a class or function of an interactive session."""
    try:
        return inspect.getsource(part)
    except (OSError, TypeError):
        code = getattr(part, "__code__", None)
        return repr((code.co_code, code.co_consts)) if code is not None else ""


@cache  # reads the file lists of all installed packages
def _distributions() -> dict[str, str]:
    return {package: min(names) for package, names in packages_distributions().items()}


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
