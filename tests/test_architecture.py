"""The rooms of the house: imports run downwards, and each heavy library has one door."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import aptool

ROOT = Path(aptool.__file__).parent

# From the top to the bottom. A module may import what stands on a line below its own, or its own room.
FLOORS = [
    ["cli"],
    ["pyterrier"],
    ["library"],
    ["cluster"],
    ["experiments"],
    ["training"],
    ["scoring", "reporting"],
    ["models", "evaluation", "datasets"],
    ["text"],
    ["formats"],
    ["relay"],
    ["config", "environment", "plugins", "progress", "version"],
    ["documents", "options"],
    ["errors"],
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
FILES = sorted(ROOT.rglob("*.py"))


def module_of(file):
    parts = ("aptool", *file.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(file): ast.parse(file.read_text(encoding="utf-8")) for file in FILES}


def imported(module, tree=None):
    """All modules that a module imports, anywhere in it; `from package import module` is that module."""
    for node in ast.walk(tree if tree is not None else MODULES[module]):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} line {node.lineno}: a relative import"
            for name in node.names:
                full = f"{node.module}.{name.name}"
                yield full if full in MODULES else node.module
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            # By a constant name; cli.main imports its commands when needed, the package its public names,
            # plugins what the user names, and text.tokenizer optional packages.
            if isinstance(node.args[0], ast.Constant):
                yield node.args[0].value
            else:
                assert module in ("aptool.cli.main", "aptool", "aptool.plugins", "aptool.text.tokenizer")


def room_of(module):
    return module.split(".")[1] if "." in module else ""


def test_every_module_has_a_room():
    assert {room_of(module) for module in MODULES} - {"", "__main__"} == set(FLOOR)


@pytest.mark.parametrize("module", sorted(set(MODULES) - {"aptool", "aptool.__main__"}))
def test_imports_run_downwards(module):
    room = room_of(module)
    for other in imported(module):
        if other.split(".")[0] != "aptool" or other == "aptool":
            continue
        assert room_of(other) == room or FLOOR[room_of(other)] > FLOOR[room], f"{module} imports {other}"


def test_there_is_no_circle():
    below = {module: {other for other in imported(module) if other in MODULES} for module in MODULES}
    # Every module imports the package first; the package imports its public names for type checkers alone.
    below["aptool"] = set()
    done, path = set(), []

    def visit(module):
        assert module not in path, " -> ".join([*path[path.index(module) :], module])
        if module not in done:
            path.append(module)
            for other in sorted(below[module] - {module}):
                visit(other)
            path.pop()
            done.add(module)

    for module in MODULES:
        visit(module)
    assert done == set(MODULES)


def importers_of(library):
    return {module for module in MODULES if library in {other.split(".")[0] for other in imported(module)}}


def test_the_cluster_package_is_the_only_door_to_ray():
    assert {room_of(module) for module in importers_of("ray")} == {"cluster"}


def test_one_module_is_the_door_to_pytrec_eval():
    assert importers_of("pytrec_eval") == {"aptool.evaluation.trec_eval"}


@pytest.mark.parametrize("library", ["click", "rich"])
def test_only_commands_talk_to_the_terminal(library):
    importers = importers_of(library)

    assert importers
    assert {room_of(module) for module in importers} == {"cli"}


HEAVY = {
    "torch",
    "ray",
    "polars",
    "pyarrow",
    "numpy",
    "jsonschema",
    "tokenizers",
    "safetensors",
    "pytrec_eval",
    "scipy",
    "transformers",
}


@pytest.mark.parametrize(
    "module",
    [
        "aptool",
        "aptool.__main__",
        "aptool.config",
        "aptool.errors",
        *sorted(m for m in MODULES if room_of(m) == "cli"),
    ],
)
def test_commands_import_heavy_libraries_only_when_they_run(module):
    """Nothing heavy stands at the top of these modules, nor of those of the house that stand there."""
    seen, waiting = set(), [module]
    while waiting:
        current = waiting.pop()
        if current in seen or current not in MODULES:
            continue
        seen.add(current)
        top = [node for node in MODULES[current].body if isinstance(node, ast.Import | ast.ImportFrom)]
        result = set(imported(current, ast.Module(body=top, type_ignores=[])))
        assert not {name.split(".")[0] for name in result} & HEAVY, f"{module}: through {current}"
        # Importing a.b.c imports a and a.b first.
        waiting += [".".join(name.split(".")[:n]) for name in result for n in range(1, name.count(".") + 2)]


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["train", "--help"], ["score", "--help"]])
def test_help_loads_nothing_heavy(arguments, tmp_path):
    code = (
        "import sys, runpy\n"
        f"sys.argv = ['aptool', *{arguments!r}]\n"
        "try:\n"
        "    runpy.run_module('aptool', run_name='__main__')\n"
        "except SystemExit as end:\n"
        "    assert not end.code\n"
        "print(*sorted(name for name in sys.modules if '.' not in name))\n"
    )

    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path
    )

    loaded = set(finished.stdout.splitlines()[-1].split())
    assert "click" in loaded
    assert not loaded & (HEAVY | {"rich"})


def test_nothing_happens_on_import():
    """No module opens files, prints or starts threads by being imported; what Ray does is its own affair."""
    modules = sorted(
        m for m in MODULES if not m.endswith(("__main__", "distributed", "ray_data", ".pyterrier"))
    )
    code = (
        "import sys, importlib\n"
        "def watch(event, arguments):\n"
        "    if event == 'open' and isinstance(arguments[1], str) and set(arguments[1]) & set('wax+'):\n"
        "        raise RuntimeError(f'{arguments[0]} is opened for writing')\n"
        "import torch, polars, pyarrow.parquet, pytrec_eval, jsonschema, tokenizers\n"
        "import safetensors.torch\n"
        "sys.dont_write_bytecode = True\n"
        "sys.addaudithook(watch)\n"
        f"for name in {modules!r}:\n"
        "    importlib.import_module(name)\n"
    )

    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)

    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")
