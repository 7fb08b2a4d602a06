"""Runs the Python of README.md on small data."""

import re
import shutil
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"
ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
COLLECTION = "data/faq"


def blocks(language):
    """The blocks of a language in the README."""
    pattern = rf"^```{language}\n(.*?)^```$"
    return re.findall(pattern, README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def rank_answers():
    """Run the first block, which prints a ranking; return its variables."""
    return run(blocks("python")[0])


def train_and_compare(collection, preset=None):
    """Run the second block on ``collection`` in the current folder, with another ``preset``."""
    shutil.copytree(collection, COLLECTION)
    block = blocks("python")[1]
    return run(block if preset is None else re.sub(r'preset="[^"]+"', f'preset="{preset}"', block))


def run(block):
    """Run a block of Python; return its variables."""
    names = {}
    exec(compile(block, str(README), "exec"), names)
    return names
