"""The command line of a benchmark, and the JSON file of its results."""

import argparse
import json
from pathlib import Path
from typing import Any


def benchmark_parser(document: str | None, repeats: int | None = None) -> argparse.ArgumentParser:
    """A parser whose help is a module's docstring.

    Args:
        document: the docstring.
        repeats: default of ``--repeats``; without it, the parser has neither ``--repeats`` nor ``--output``.
    """
    parser = argparse.ArgumentParser(
        description=document, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if repeats is not None:
        text = f"number of repeats (default {repeats})"
        parser.add_argument("--repeats", type=int, default=repeats, help=text)
        parser.add_argument("--output", type=Path, help="JSON file for the results")
    return parser


def write_results(results: Any, output: Path | None) -> None:
    """Write results as JSON, if there is an output file."""
    if output is not None:
        output.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
