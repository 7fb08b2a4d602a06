"""Change one operator or constant of a package at random, and run the tests of the package on the change.

``python tools/mutate.py PACKAGE [--mutants 10] [--seed 1] [--tests PATH ...]`` tests each mutant in a copy of
the tree. A mutant that lives is a missing test, or equivalent.
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

ROOT = Path(__file__).parent.parent
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
        line = lines[row - 1]
        if text is None or "raise " in line or line[:start].endswith(("strict=", "frozen=")):
            continue
        changed = line[:start] + text + line[end:]
        try:
            compile("".join([*lines[: row - 1], changed, *lines[row:]]), file, "exec")
            yield file, row, changed
        except SyntaxError:  # an asterisk of arguments
            continue


def passes(tree: Path, tests: list[str]) -> bool:
    """Whether the tests pass in a copy of the tree within ten minutes."""
    command = [sys.executable, "-m", "pytest", "-n", "0", "-x", "-q", "-p", "no:cacheprovider", *tests]
    variables = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        ended = subprocess.run(command, cwd=tree, env=variables, timeout=600, capture_output=True)
    except subprocess.TimeoutExpired:
        return False
    return ended.returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", help="package or module, such as evaluation or training/losses.py")
    parser.add_argument("--mutants", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", nargs="*", help="tests to run instead of tests/PACKAGE")
    options = parser.parse_args()
    package = ROOT / "aptool" / options.package
    files = [package] if package.is_file() else sorted(package.rglob("*.py"))
    every = [mutant for file in files for mutant in mutants(file)]
    chosen = random.Random(options.seed).sample(every, min(options.mutants, len(every)))
    tests = options.tests or [f"tests/{options.package.partition('/')[0]}"]
    living = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as temporary:
        tree = Path(temporary)
        for source in (ROOT / name for name in COPIED):
            (shutil.copytree if source.is_dir() else shutil.copy2)(source, tree / source.name)
        if not passes(tree, tests):
            sys.exit("the tests fail without a mutant")
        for file, row, changed in chosen:
            lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
            mutated = "".join([*lines[: row - 1], changed, *lines[row:]])
            (tree / file.relative_to(ROOT)).write_text(mutated, encoding="utf-8")
            lives = passes(tree, tests)
            shutil.copy2(file, tree / file.relative_to(ROOT))
            living += lives
            print(f"{'LIVES' if lives else 'killed'}: {file.relative_to(ROOT)}:{row}")
            print(f"  - {lines[row - 1].strip()}\n  + {changed.strip()}", flush=True)
    print(f"{living} of {len(chosen)} mutants live ({len(every):,} in {options.package})")


if __name__ == "__main__":
    main()
