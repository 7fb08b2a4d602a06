"""Code of users: plugins, which register encoders, poolings or measures, and hashes of their source files.

Plugins come from ``--plugin``, from ``APTOOL_PLUGINS`` and from entry points of installed packages. Their
classes may redefine methods that faster code re-implements (``redefines``). A plugin or a word function
decides scores, as a model does: its hash is part of every fingerprint, so that results of an edited file are
never mixed with earlier ones.
"""

import ast
import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
import sysconfig
from collections import UserDict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import entry_points, packages_distributions
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from typing_extensions import override

from aptool.environment import version_of
from aptool.errors import AptoolError, UsageError, first_line, one_line

# Modules and files, separated as in PATH; child processes inherit the variable.
VARIABLE = "APTOOL_PLUGINS"

# The group of entry points.
GROUP = "aptool.plugins"

_INSTALLED = {"site-packages", "dist-packages"}  # names of folders
_STANDARD = Path(sysconfig.get_path("stdlib"))

# Packages whose versions are recorded by name.
_EXCLUDED = {"aptool", "torch"}

# Specification, hash and imports of each loaded module. `importlib.reload` replaces the specification.
# An edit without a reload does not change the code that runs.
_hashed: dict[str, tuple[Any, str, tuple[str, ...]]] = {}

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
    """Import the plugins of ``APTOOL_PLUGINS`` and of installed packages, once per process."""
    for name in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        _import(name)
    with _lock:
        if GROUP in _loaded:
            return
        _loaded.add(GROUP)
    for plugin in entry_points(group=GROUP):
        try:
            plugin.load()
        except Exception as error:
            raise AptoolError(f"plugin {plugin.name!r} ({plugin.value}): {_reason(error)}") from error


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
            raise AptoolError(f"--plugin {name}: {_reason(error)}; expected a module that imports") from error
        _loaded.add(name)


def _import_file(path: Path) -> None:
    """Import a file as a module of the same name, with its folder on the search path."""
    if not path.is_file():
        raise UsageError(f"--plugin {path}: file not found; expected a .py file, on a cluster on every node")
    imported = sys.modules.get(path.stem)
    if imported is not None and getattr(imported, "__file__", None) != str(path):
        raise UsageError(f"--plugin {path}: a module {path.stem} is imported already; expected another name")
    _add_to_path(path.parent)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise


def _add_to_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _reason(error: BaseException) -> str:
    return one_line(f"{type(error).__name__}: {first_line(error)}").rstrip(".")


class Registry(UserDict[str, type[T]]):
    """Subclasses of a class by name; one given as ``MODULE:CLASS`` is imported when it is looked up."""

    def __init__(self, base: type, entries: Mapping[str, type[T] | str]) -> None:
        super().__init__()
        self._base = base
        self.data.update(entries)  # type: ignore[arg-type]  # names are resolved by __getitem__

    @override
    def __getitem__(self, name: str) -> type[T]:
        entry = kind = super().__getitem__(name)
        expected = f"a subclass of {self._base.__name__}"
        try:
            if isinstance(entry, str):
                module, _, attribute = entry.partition(":")
                kind = getattr(importlib.import_module(module), attribute)
        except AptoolError:
            raise
        except (Exception, SystemExit) as error:
            expected += " as MODULE:CLASS"
            raise AptoolError(
                f"{name!r} of a plugin is {entry!r}: {_reason(error)}; expected {expected}"
            ) from error
        if not (isinstance(kind, type) and issubclass(kind, self._base)):
            raise AptoolError(f"{name!r} of a plugin is {entry!r}: expected {expected}")
        self.data[name] = kind
        return kind


def redefines(part: object, base: type, *methods: str) -> bool:
    """Whether a method that ``base`` defines or inherits is another one in the class of ``part``.

    Kernels, matrices of scores and tables of an encoder re-implement methods of ``base``. A subclass that
    redefines such a method is computed by its own definition instead.
    """
    kind = type(part)
    if not issubclass(kind, base):
        return True
    below = kind.__mro__[: kind.__mro__.index(base)]
    return any(name in vars(subclass) for subclass in below for name in ("__call__", *methods))


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
    cached = _hashed.get(name)
    if cached is not None and spec is not None and cached[0] is spec:
        return cached[1:]
    try:
        data = path.read_bytes()
    except OSError as error:
        raise AptoolError(f"{name}: {path}: {error.strerror}; expected the source of a plugin") from error
    result = _digest(data), tuple(dict.fromkeys(_imports(name, path, data)))
    _hashed[name] = spec, *result
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
                base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
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
