"""The Python of README.md, run as it stands there on a tiny collection in the place of WikiQA."""

import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def python_blocks(text):
    """The blocks of Python in a Markdown text."""
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def run_readme(collection):
    """Runs the blocks in the current folder, one after the other; returns the names that they leave.

    ``collection`` is copied to where they look for theirs.
    """
    import shutil

    shutil.copytree(collection, "data/wikiqa")
    names = {}
    for block in python_blocks(README.read_text(encoding="utf-8")):
        exec(compile(block, str(README), "exec"), names)
    return names
