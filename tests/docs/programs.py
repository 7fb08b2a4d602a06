"""Stand-in for programs that tests of the docs cannot run: check the arguments and do nothing.

Usage: ``python programs.py PROGRAM ARGUMENT...``, such as ``python programs.py make eval``.
"""

import os
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def main(program: str, *arguments: str) -> str | None:
    """Check a command; return an error message, or None if it is correct."""
    if program == "make":
        return check_make(arguments)
    if program in ("python", "python3"):
        return check_python(arguments)
    if program == "pip":
        return check_pip(arguments)
    if program in ("docker", "kubectl", "sbatch"):
        return check_paths(arguments)
    return None


def check_make(arguments: tuple[str, ...]) -> str | None:
    """Check that the targets exist."""
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    unknown = [name for name in arguments if "=" not in name and name not in targets]
    return f"make has no target {unknown}" if unknown else None


def check_python(arguments: tuple[str, ...]) -> str | None:
    """Run a script of ``examples``; check the arguments of pip, and that another module exists."""
    if arguments[0].startswith("examples/"):
        os.execv(sys.executable, [sys.executable, str(ROOT / arguments[0]), *arguments[1:]])
    flag, name = arguments[:2]
    if name == "pip":
        return check_pip(arguments[2:])
    path = ROOT.joinpath(*name.split("."))
    exists = name == "venv" or path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
    return None if flag == "-m" and exists else f"no such module: {name}"


def check_pip(arguments: tuple[str, ...]) -> str | None:
    """Check that the extras of aptool exist."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for argument in arguments:
        for extra in re.findall(r"(?:aptool|\.)\[([\w,-]+)\]", argument):
            unknown = set(extra.split(",")) - set(project["optional-dependencies"])
            if unknown:
                return f"aptool has no extra {sorted(unknown)}"
    return None


def check_paths(arguments: tuple[str, ...]) -> str | None:
    """Check that the files of ``jobs`` exist."""
    lost = [name for name in arguments if name.startswith("jobs/") and not (ROOT / name).exists()]
    return f"no such file in the repository: {lost}" if lost else None


if __name__ == "__main__":
    problem = main(*sys.argv[1:])
    sys.exit(problem)
