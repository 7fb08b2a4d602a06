"""Pages of the site that are generated: commands, library, options, presets and files.

Commands come from click, their examples from `commands.toml`, the library and the options from docstrings,
files from the JSON Schemas.
"""

import dataclasses
import inspect
import json
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_type_hints

import click
import griffe
import mkdocs_gen_files

import aptool
from aptool.cli.main import cli
from aptool.config import Recipe, preset_names
from aptool.models.build import ENCODERS, POOLINGS
from aptool.models.features import HEADS
from aptool.models.pooling import SIMILARITIES

ROOT = Path(aptool.__file__).parents[1]
EXAMPLES = tomllib.loads((Path(__file__).parent / "commands.toml").read_text(encoding="utf-8"))
# The public names in the order of a first use.
LIBRARY = {
    "Data": ("Collection", "Pools", "Qrels", "Run"),
    "Train, load and score": (
        "train",
        "Model",
        "score",
        "bm25_run",
    ),
    "Evaluate, compare and fuse": ("evaluate", "compare", "fuse", "learn_fusion"),
    "Errors": ("AptoolError",),
}


def write(name: str, *parts: str) -> None:
    """Writes a page of the reference."""
    with mkdocs_gen_files.open(f"reference/{name}.md", "w") as page:
        page.write("\n\n".join(parts) + "\n")


def commands() -> None:
    """The page of commands, from click."""
    context = click.Context(cli, info_name="aptool", **cli.context_settings)
    write(
        "commands",
        "# Commands",
        "Exit codes: 0 success, 1 a fault of the input or of the environment, 2 wrong usage. An error is one "
        "line; `--debug` adds the traceback. Results go to stdout, messages and progress to stderr.",
        *_command(cli, context, level=2),
    )


def _command(command: click.Command, context: click.Context, level: int) -> list[str]:
    """A command and, if it is a group, those in it."""
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    example = EXAMPLES.get(context.command_path.removeprefix("aptool "))
    parts = [
        f"{'#' * min(level, 4)} `{context.command_path}`",
        inspect.cleandoc(command.help or "").replace("\b\n", ""),
        f"```text\n{usage}\n```",
        f"Example:\n\n```console\n$ {example}\n```" if example else "",
        _table(["option", "meaning"], _described(command, context)),
    ]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None, name
            inside = click.Context(inner, info_name=name, parent=context)
            parts += _command(inner, inside, level + 1)
    return parts


def _described(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    """The options of a command, each with its help; the usage line shows the arguments."""
    for option in command.params:
        record = option.get_help_record(context) if isinstance(option, click.Option) else None
        if record:
            yield f"`{record[0]}`", record[1]


def library() -> None:
    """The page of the public names, with their docstrings."""
    public = {name for name in dir(aptool) if not name.startswith("_")} - {"load"}  # another name of Model
    if public != {name for names in LIBRARY.values() for name in names}:
        raise ValueError(f"docs/site/reference.py: LIBRARY: expected the names {', '.join(sorted(public))}")
    parts = []
    for title, names in LIBRARY.items():
        values = [getattr(aptool, name) for name in names]
        parts += [f"## {title}", *(f"::: {value.__module__}.{value.__qualname__}" for value in values)]
    write(
        "library",
        "# Classes and functions",
        "Each is an attribute of `aptool`. [The library](../library.md) introduces them with examples.",
        *parts,
    )


def options() -> None:
    """The page of the options of a recipe, from the dataclasses that hold them."""
    parts = ["# Options of a recipe", "`aptool train --set SECTION.KEY=VALUE`, or an entry of a recipe file."]
    registries = {"encoder": ENCODERS, "pooling": POOLINGS, "similarity": SIMILARITIES, "head": HEADS}
    for section, kinds in registries.items():
        parts.append(f"## `{section}`")
        for name, of_type in kinds.items():
            parts += [f'### `{section}.type = "{name}"`', *_options(of_type.Options)]
    for section, kind in get_type_hints(Recipe).items():
        if dataclasses.is_dataclass(kind):
            parts += [f"## `{section}`", *_options(kind)]
    write("options", *parts)


def _options(kind: Any) -> list[str]:
    """What an options class says, and a table of its fields, those that it inherits included."""
    described: dict[str, str] = {}
    text = ""
    for base in reversed(kind.__mro__):
        for section in griffe.Docstring(inspect.cleandoc(base.__doc__ or "")).parse("google", warnings=False):
            if section.kind is griffe.DocstringSectionKind.attributes:
                described |= {attribute.name: attribute.description for attribute in section.value}
            elif section.kind is griffe.DocstringSectionKind.text:
                text = section.value
    rows = []
    for entry in dataclasses.fields(kind):
        default = "" if entry.default is dataclasses.MISSING else f"`{json.dumps(entry.default)}`"
        rows.append((f"`{entry.name}`", default, described[entry.name]))
    return [text, _table(["option", "default", "meaning"], rows)]


def _table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown; empty without rows."""
    lines = ["| " + " | ".join(map(_cell, row)) + " |" for row in rows]
    if not lines:
        return ""
    return "\n".join(["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|", *lines])


def _cell(text: str) -> str:
    """Text of a docstring or a help text as one cell of a table."""
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|")


def presets() -> None:
    """The page of the presets, as their files have them."""
    parts = [
        "# Presets",
        "`aptool train --preset NAME`. Options that a preset does not name have their defaults.",
    ]
    for name in preset_names():
        text = (ROOT / "aptool" / "presets" / f"{name}.toml").read_text(encoding="utf-8")
        parts += [f"## `{name}`", f"```toml\n{text.strip()}\n```"]
    write("presets", *parts)


def files() -> None:
    """The page of the files that aptool reads and writes, from their JSON Schemas."""
    parts = [
        "# Formats of files",
        "From the JSON Schemas in `schemas/`. [Files and policies](../files.md) has the rest.",
    ]
    for path in sorted((ROOT / "schemas").glob("*.schema.json")):
        schema = json.loads(path.read_text(encoding="utf-8"))
        parts += [f"## {schema.get('title', path.stem)}", schema.get("description", ""), _properties(schema)]
    write("files", *parts)


def _properties(schema: dict[str, Any]) -> str:
    """The table of a schema's properties."""
    required = set(schema.get("required", []))
    rows = []
    for name, entry in schema.get("properties", {}).items():
        kind = entry.get("type", "")
        kind = " or ".join(kind) if isinstance(kind, list) else kind
        rows.append((f"`{name}`", kind, "required" if name in required else "", entry.get("description", "")))
    return _table(["entry", "type", "", "meaning"], rows)


commands()
library()
options()
presets()
files()
