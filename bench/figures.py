"""What every benchmark has in common: its command line, and the file of its figures."""

import argparse
import json
from pathlib import Path
from typing import Any


def benchmark_parser(document: str | None) -> argparse.ArgumentParser:
    """A parser whose help is the documentation of a benchmark's module, as it stands."""
    return argparse.ArgumentParser(description=document, formatter_class=argparse.RawDescriptionHelpFormatter)


def write_figures(figures: Any, output: Path | None) -> None:
    """Writes figures as JSON; nothing without an output."""
    if output is not None:
        output.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
