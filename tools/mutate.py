"""Change one operator, comparison or constant at random, and run the tests of its package on the change.

``python tools/mutate.py [PACKAGE ...] [--mutants 40] [--seed 1]`` draws lines of models, scoring, evaluation
and training, or of the given packages or modules. Each mutant is tested alone, in a copy of the tree, with a
time limit. One that lived shows a missing test, or is equivalent.
"""

import argparse
import io
import os
import random
import shutil
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ["models", "scoring", "evaluation", "training"]
COPIED = ("aptool", "tests", "schemas", "tools", "bench", "jobs", "examples", "docs", "pyproject.toml")
PAIRS = ("< <=", "> >=", "== !=", "+ -", "* /", "and or", "True False", "max min")
CHANGES = dict(words for pair in PAIRS for words in (pair.split(), pair.split()[::-1])) | {"//": "/"}


def mutants(file: Path) -> Iterator[tuple[Path, int, str]]:
    """Each valid mutant of a file: the file, the number of the line, and the changed line."""
    source = file.read_text(encoding="utf-8")
    lines = source.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        text = CHANGES.get(token.string)
        if token.type == tokenize.NUMBER:
            text = f"({token.string} + 1)"
        (row, start), (_, end) = token.start, token.end
        if text is None:
            continue
        line = lines[row - 1]
        if "raise " in line or line[:start].endswith(("strict=", "frozen=")) or line[start:].startswith("*,"):
            continue
        changed = line[:start] + text + line[end:]
        try:
            compile("".join([*lines[: row - 1], changed, *lines[row:]]), file, "exec")
            yield file, row, changed
        except SyntaxError:  # an asterisk of arguments
            continue


def passes(tree: Path, package: str, limit: float) -> bool:
    """Whether the tests of a package pass in a copy of the tree, within a number of seconds."""
    tests = f"tests/{package}"
    command = [sys.executable, "-m", "pytest", "-n", "0", "-x", "-q", "-p", "no:cacheprovider", tests]
    variables = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ended = subprocess.run(command, cwd=tree, env=variables, timeout=limit, capture_output=True)
    except subprocess.TimeoutExpired:
        return False
    return ended.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("packages", nargs="*", default=PACKAGES, help="such as scoring or training/losses.py")
    parser.add_argument("--mutants", type=int, default=40, help="(default 40)")
    parser.add_argument("--seed", type=int, default=1, help="(default 1)")
    parser.add_argument("--limit", type=float, default=600, help="seconds of the tests (default 600)")
    options = parser.parse_args()
    paths = [ROOT / "aptool" / package for package in options.packages]
    files = [file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("*.py")))]
    every = [mutant for file in files for mutant in mutants(file)]
    chosen = random.Random(options.seed).sample(every, min(options.mutants, len(every)))
    lived = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as temporary:
        tree = Path(temporary)
        for source in (ROOT / name for name in COPIED):
            (shutil.copytree if source.is_dir() else shutil.copy2)(source, tree / source.name)
        for package in sorted({package_of(file) for file, _, _ in chosen}):
            if not passes(tree, package, options.limit):
                sys.exit(f"the tests of {package} fail, or take too long, without a mutant")
        for file, row, changed in chosen:
            lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
            mutated = "".join([*lines[: row - 1], changed, *lines[row:]])
            (tree / file.relative_to(ROOT)).write_text(mutated, encoding="utf-8")
            lives = passes(tree, package_of(file), options.limit)
            shutil.copy2(file, tree / file.relative_to(ROOT))
            lived += lives
            print(f"{'lived' if lives else 'found'}: {file.relative_to(ROOT)}:{row}")
            print(f"  - {lines[row - 1].strip()}\n  + {changed.strip()}", flush=True)
    among = ", ".join(options.packages)
    print(f"{len(chosen) - lived} found, {lived} lived ({len(every):,} mutants in {among})")


def package_of(file: Path) -> str:
    """The package of a module, whose tests have the same name."""
    return file.relative_to(ROOT / "aptool").parts[0]


if __name__ == "__main__":
    main()
