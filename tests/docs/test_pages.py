"""Commands and Python of the docs run on small data: ``make test-docs``.

All lines of ``sh`` blocks run; of ``console`` blocks, the lines after ``$``. Programs that need an image, a
package index or several minutes do nothing. Output is in blocks of ``text`` and ``console``. It is compared
after ``<!-- exact -->``; ``...`` is any text.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import s3
from pages import Block, blocks, has_output, pages, run_script

# docs/start.md is run by test_first_minutes.py, the Python of docs/library.md by
# tests/library/test_docs.py.
ELSEWHERE = {"docs/start.md", "docs/library.md"}
LANGUAGES = {"sh", "console", "text", "python", "pycon", "json", "toml", "yaml", "csv", "tsv"}


def script_of(block: Block) -> str:
    """The commands of a block; empty for other languages."""
    if block.language == "sh":
        return block.text
    if block.language == "console":
        return "\n".join(line[2:] for line in block.text.splitlines() if line.startswith("$ "))
    return ""


@pytest.mark.parametrize("page", pages())
def test_every_block_has_a_language(page):
    assert {block.language for block in blocks(page)} <= LANGUAGES


def runs(block: Block) -> bool:
    """Whether a block has commands or Python."""
    return bool(script_of(block)) or block.language in ("python", "pycon")


def run_python(block: Block, folder: Path) -> None:
    """Run a block of Python, or compare the output of a block of ``pycon``."""
    file = folder / "block.txt"
    file.write_text(block.text, encoding="utf-8")
    command = [sys.executable, *(["-m", "doctest"] if block.language == "pycon" else []), str(file)]
    finished = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    assert finished.returncode == 0, f"{block.text}\n{finished.stdout}\n{finished.stderr}"


@pytest.mark.docs
@pytest.mark.timeout(0)  # each command has a time limit
@pytest.mark.parametrize(
    "page", [page for page in pages() if page not in ELSEWHERE and any(map(runs, blocks(page)))]
)
def test_the_commands_run(page, workspace, request):
    if any("s3://" in script_of(block) for block in blocks(page)):
        server = request.getfixturevalue("s3_server")
        request.getfixturevalue("s3_at")(server)
        s3.put_empty(f"{server}/lab")
    for block in blocks(page):
        for output in re.findall(r"--output ([\w./-]+)", script_of(block)):  # which the block makes itself
            shutil.rmtree(workspace / output, ignore_errors=True)
            for file in (workspace / output, workspace / f"{output}.json"):
                if file.is_file():
                    file.unlink()
        if block.exact:
            for command, expected in block.commands():
                finished = run_script(f"{command} 2>&1", workspace, os.environ, timeout=600)
                assert finished.returncode == 0, finished.stdout
                assert has_output(finished.stdout, expected), f"{command}\n{finished.stdout}"
        elif block.language in ("python", "pycon"):
            run_python(block, workspace)
        elif script := script_of(block):
            finished = run_script(script, workspace, os.environ, timeout=1200)
            assert finished.returncode == 0, f"line {block.line}\n{finished.stdout}\n{finished.stderr}"
