"""Refuse unclear phrases and warn about names: ``python tools/check_wording.py [PATH...]``.

Read Markdown outside code blocks, and in Python files comments, strings and assigned names. The rules are in
``tools/wording.toml``. Print ``file:line: 'phrase': write ...`` per match. A phrase ends in exit code 1, a
name in a warning.
"""

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PATHS = ("README.md", "CONTRIBUTING.md", "aptool", "bench", "docs", "examples", "jobs", "tools")

# Python 3.12 and later split f-strings.
PROSE_TOKENS = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


class Rules(NamedTuple):
    """Suggestions by pattern and by name, and allowed matches as (file, phrase)."""

    phrases: dict[re.Pattern[str], str]
    names: dict[str, str]
    allowed: set[tuple[str, str]]


def read_rules(path: Path) -> Rules:
    """Read ``wording.toml``."""
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    phrases = {re.compile(pattern, re.IGNORECASE): use for pattern, use in document["phrases"].items()}
    allowed = {(entry["file"], entry["phrase"].lower()) for entry in document.get("allowed", [])}
    return Rules(phrases, document["names"], allowed)


def prose_of_markdown(text: str) -> Iterator[tuple[int, str]]:
    """Lines outside code blocks, with their numbers."""
    in_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code:
            yield number, line


def prose_of_python(source: str) -> Iterator[tuple[int, str]]:
    """Lines of comments and strings, with their numbers."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in PROSE_TOKENS:
            yield from enumerate(token.string.splitlines(), token.start[0])


def names_of_python(source: str) -> Iterator[tuple[int, str]]:
    """Names of variables and parameters, with their lines."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg


def check_file(path: Path, rules: Rules) -> tuple[list[str], list[str]]:
    """Errors about phrases and warnings about names in a Markdown or Python file."""
    text = path.read_text(encoding="utf-8")
    is_python = path.suffix == ".py"
    phrases = [
        (number, match[0], use)
        for number, line in (prose_of_python(text) if is_python else prose_of_markdown(text))
        for pattern, use in rules.phrases.items()
        for match in pattern.finditer(line)
    ]
    names = [
        (number, name, rules.names[name])
        for number, name in (names_of_python(text) if is_python else ())
        if name in rules.names
    ]
    file = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)

    def messages(matches: list[tuple[int, str, str]], prefix: str) -> list[str]:
        return [
            f"{file}:{number}: {prefix}{phrase!r}: write {use}"
            for number, phrase, use in sorted(matches)
            if (file, phrase.lower()) not in rules.allowed
        ]

    return messages(phrases, ""), messages(names, "warning: ")


def main(arguments: list[str]) -> int:
    """Check files and folders. Default: ``PATHS``."""
    rules = read_rules(Path(__file__).with_name("wording.toml"))
    files = []
    for path in map(Path, arguments or [str(ROOT / name) for name in PATHS]):
        files += [path] if path.is_file() else sorted([*path.rglob("*.py"), *path.rglob("*.md")])
    checked = [check_file(file, rules) for file in files]
    for errors, warnings in checked:
        for message in (*errors, *warnings):
            print(message)
    return int(any(errors for errors, _ in checked))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
