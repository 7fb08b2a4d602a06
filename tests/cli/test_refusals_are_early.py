"""A wrong path is refused before large libraries are imported."""

import subprocess
import sys

import pytest

# Prints the large libraries that a command imported, after the command.
PROGRAM = """
import sys
from aptool.cli.main import main
try:
    main()
except SystemExit as stop:
    print(stop.code, *({"torch", "transformers", "matplotlib", "ray"} & set(sys.modules)))
"""


def message(folder, *arguments):
    """The message of a refused command, which has imported no large library."""
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
    )
    assert finished.stdout.split() == ["1"], finished.stderr
    return finished.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("report", "nowhere"),
        ("explain", "--model", "nowhere", "--question", "a", "--answer", "b"),
        ("train", "nowhere"),
        ("score", "nowhere.parquet", "--model", "nowhere", "--output", "x.run"),
        ("encode", "nowhere.parquet", "--model", "nowhere", "--output", "x"),
        ("plot", "training", "nowhere", "--output", "x.svg"),
        ("plot", "lengths", "nowhere.run", "--qrels", "nowhere", "--output", "x.svg"),
        ("plot", "costs", "nowhere", "--output", "x.svg"),
        ("matrix", "nowhere.toml", "--output", "x"),
        ("export", "nowhere", "--output", "x"),
        ("vectors", "learn", "nowhere", "--output", "x.bin"),
        ("eval", "nowhere.run", "--qrels", "nowhere"),
        ("compare", "nowhere.run", "other.run", "--qrels", "nowhere"),
        ("data", "import", "csv", "train=nowhere.csv", "--output", "x"),
        ("data", "folds", "nowhere", "--output", "x"),
    ],
    ids=" ".join,
)
def test_a_wrong_path_is_refused_without_large_libraries(arguments, tmp_path):
    assert "nowhere" in message(tmp_path, *arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_recipe_is_refused_without_large_libraries(collection_folder, tmp_path):
    printed = message(tmp_path, "train", collection_folder, "--preset", "nowhere.toml")
    assert "nowhere.toml: file not found; expected a recipe" in printed
