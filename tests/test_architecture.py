"""The layers of the packages: imports go down, and one package imports each large library."""

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import forked
import pytest

import aptool

ROOT = Path(aptool.__file__).parent

# Layers from top to bottom. A module may import modules of lower layers and of the same package.
LAYERS = [
    ["cli"],
    ["execution"],
    ["cluster"],
    ["experiments"],
    ["training"],
    ["scoring", "reporting"],
    ["models", "evaluation"],
    ["data"],
    ["text"],
    ["plugins"],
    ["config", "environment", "progress"],
    ["arguments", "documents", "outputs"],
    ["files"],
    ["paths"],
    ["errors"],
]
LAYER_OF = {package: number for number, packages in enumerate(LAYERS) for package in packages}
FILES = sorted(ROOT.rglob("*.py"))


def module_of(file):
    parts = ("aptool", *file.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(file): ast.parse(file.read_text(encoding="utf-8")) for file in FILES}


@functools.cache
def imported(module, at_top=False):
    """The modules that a module imports, at any line; `from package import module` imports the module."""
    return set(_imported(module, at_top))


def _imported(module, at_top):
    for node in MODULES[module].body if at_top else ast.walk(MODULES[module]):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} line {node.lineno}: a relative import"
            for name in node.names:
                full = f"{node.module}.{name.name}"
                yield full if full in MODULES else node.module
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            # The name must be constant, except in modules that import commands, public names, plugins or
            # optional packages.
            if isinstance(node.args[0], ast.Constant):
                yield node.args[0].value
            else:
                assert module in ("aptool.cli.main", "aptool", "aptool.plugins", "aptool.environment")


def package_of(module):
    return module.split(".")[1] if "." in module else ""


def test_every_module_has_a_layer():
    assert {package_of(module) for module in MODULES} - {"", "__main__"} == set(LAYER_OF)


def test_imports_go_down():
    upwards = [
        (module, other)
        for module in set(MODULES) - {"aptool", "aptool.__main__"}
        for other in imported(module) - {"aptool"}
        if other.split(".")[0] == "aptool" and package_of(other) != package_of(module)
        if LAYER_OF[package_of(other)] <= LAYER_OF[package_of(module)]
    ]

    assert upwards == []


def test_imports_have_no_cycle():
    below = {module: {other for other in imported(module) if other in MODULES} for module in MODULES}
    # Every module imports the package first; the package imports its public names only for type checkers.
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


def test_one_package_or_module_imports_a_library():
    for library, package in (("ray", "cluster"), ("click", "cli")):
        assert {package_of(module) for module in importers_of(library)} == {package}
    assert importers_of("pytrec_eval") == {"aptool.evaluation.measures"}


def test_the_driver_of_a_baseline_loads_no_torch():
    code = "import sys, aptool.cluster.score; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_no_function_has_more_than_ten_parameters():
    for module, tree in MODULES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
                names = [argument.arg for argument in arguments if argument.arg not in ("self", "cls")]
                assert len(names) <= 10, f"{module}.{node.name}: {len(names)} parameters"


LARGE = {
    *("torch", "ray", "polars", "pyarrow", "numpy", "jsonschema", "tokenizers", "safetensors", "pytrec_eval"),
    *("scipy", "transformers"),
}


def test_commands_import_large_libraries_only_when_they_run():
    """Neither these modules nor the modules of aptool that they import at the top import large libraries."""
    commands = [module for module in MODULES if package_of(module) == "cli"]
    seen, waiting = set(), ["aptool", "aptool.__main__", "aptool.config", "aptool.errors", *commands]
    while waiting:
        current = waiting.pop()
        if current in seen or current not in MODULES:
            continue
        seen.add(current)
        result = imported(current, at_top=True)
        assert not {name.split(".")[0] for name in result} & LARGE, current
        # Importing a.b.c imports a and a.b first.
        waiting += [".".join(name.split(".")[:n]) for name in result for n in range(1, name.count(".") + 2)]


def test_help_imports_no_large_library(tmp_path):
    code = (
        "import sys, runpy\n"
        "for command in ([], ['train'], ['score']):\n"
        "    sys.argv = ['aptool', *command, '--help']\n"
        "    try:\n"
        "        runpy.run_module('aptool', run_name='__main__')\n"
        "    except SystemExit as end:\n"
        "        assert not end.code\n"
        "print(*sorted(name for name in sys.modules if '.' not in name))\n"
    )

    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)

    assert (finished.returncode, finished.stderr) == (0, "")
    loaded = set(finished.stdout.splitlines()[-1].split())
    assert "click" in loaded
    assert not loaded & LARGE


def test_imports_have_no_side_effects(tmp_path):
    """No import opens a file for writing or prints. Ray Data does: its module is left out."""
    modules = sorted(m for m in MODULES if not m.endswith(("__main__", "ray_data")))
    code = (
        "import sys, importlib\n"
        "def watch(event, arguments):\n"
        "    if event == 'open' and isinstance(arguments[1], str) and set(arguments[1]) & set('wax+'):\n"
        "        raise RuntimeError(f'{arguments[0]} is opened for writing')\n"
        "import pytrec_eval, jsonschema\n"
        "sys.dont_write_bytecode = True\n"
        "sys.addaudithook(watch)\n"
        f"for name in {modules!r}:\n"
        "    importlib.import_module(name)\n"
    )

    assert forked.run(tmp_path / "process", forked.python, code) == (0, "", "")


@pytest.mark.parametrize(("command", "most"), [("score", 45), ("train", 55)])
def test_a_command_loads_few_modules(command, most, collection_folder, model_folder, tmp_path):
    small = [f"--set={option}" for option in ("training.epochs=1", "encoder.features=8", "vectors.dim=8")]
    arguments = {
        "score": [collection_folder / "dev.pools.parquet", "--model", model_folder, "--output", "new.run"],
        "train": [collection_folder, *small, "--output", "model"],
    }
    code = (
        "import os, sys\n"
        f"os.chdir({str(tmp_path)!r})\n"
        "from aptool.__main__ import main\n"
        f"sys.argv = ['aptool', *{[command, *map(str, arguments[command])]!r}]\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as end:\n"
        "    assert not end.code\n"
        "print(*(m for m in sys.modules if m.split('.')[0] in ('aptool', 'pandas')))\n"
    )

    ended = forked.run(tmp_path / "process", forked.python, code)

    assert ended.code == 0, ended.err
    loaded = ended.out.splitlines()[-1].split()
    assert "aptool.scoring.ranker_scorer" in loaded
    assert len(loaded) <= most, loaded


def test_the_page_of_the_architecture_names_the_packages():
    page = (ROOT.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("| package | contents |\n")[2].partition("\n\n")[0]
    named = [name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split(" | ")[0])]

    assert sorted(named) == sorted(LAYER_OF)
