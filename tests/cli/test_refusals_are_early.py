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


def message(folder, *arguments, code=1):
    """The message of a refused command, which has imported no large library."""
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
    )
    assert finished.stdout.split() == [str(code)], finished.stderr
    return finished.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("report", "nowhere"),
        ("explain", "--model", "nowhere", "--question", "a", "--answer", "b"),
        ("train", "nowhere"),
        ("score", "nowhere.parquet", "--model", "nowhere", "--output", "x.run"),
        ("matrix", "nowhere.toml", "--output", "x"),
        ("eval", "nowhere.run", "--qrels", "nowhere"),
        ("compare", "nowhere.run", "other.run", "--qrels", "nowhere"),
        ("data", "import", "table", "train=nowhere.csv", "--output", "x"),
        ("data", "folds", "nowhere", "--output", "x"),
    ],
    ids=" ".join,
)
def test_a_wrong_path_is_refused_without_large_libraries(arguments, tmp_path):
    assert "nowhere" in message(tmp_path, *arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("--preset", "nowhere.toml", "nowhere.toml: file not found; expected a recipe"),
        ("--vectors", "nowhere.bin", "nowhere.bin: file not found"),
        ("--start", "nowhere", "nowhere: folder not found; expected a model"),
        ("--start", "empty", "empty: no model here"),
    ],
)
def test_a_missing_input_of_training_is_refused_without_large_libraries(
    option, value, expected, collection_folder, tmp_path
):
    (tmp_path / "empty").mkdir()
    assert expected in message(tmp_path, "train", collection_folder, option, value)


def test_a_folder_without_a_model_is_refused_without_large_libraries(collection_folder, tmp_path):
    pools = f"{collection_folder}/test.pools.parquet"
    printed = message(tmp_path, "score", pools, "--model", collection_folder, "--output", "x")
    assert f"{collection_folder}: no model here; expected the folder of one model" in printed


@pytest.mark.parametrize(
    ("path", "preset", "row", "code", "expected"),
    [
        ("nowhere", "ap-cnn", "c", 1, "nowhere: folder not found"),
        ("COLLECTION", "nowhere.toml", "c", 1, "system 's': nowhere.toml: file not found; expected a recipe"),
        ("COLLECTION", "ap-cn", "c", 2, "system 's': preset 'ap-cn': expected one of"),
        ("COLLECTION", "ap-cnn", "d", 1, "rows/0/collection: 'd': expected one of c"),
    ],
)
def test_a_wrong_name_in_a_matrix_is_refused_without_large_libraries(
    path, preset, row, code, expected, collection_folder, tmp_path
):
    path = path.replace("COLLECTION", str(collection_folder))
    table = f'[collections.c]\npath = "{path}"\n[systems.s]\npreset = "{preset}"\n'
    (tmp_path / "table.toml").write_text(f'{table}[[rows]]\ncollection = "{row}"\nsystems = ["s"]\n')
    assert expected in message(tmp_path, "matrix", "table.toml", "--output", "x", code=code)
