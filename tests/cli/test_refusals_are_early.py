"""A wrong path is refused before large libraries are imported."""

import json
import subprocess
import sys

# Runs commands; prints their exit codes and messages, and the large libraries that were imported.
PROGRAM = """
import contextlib, io, json, sys
from aptool.cli.main import main
ended = []
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["aptool", *arguments]
    with contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            main()
        except SystemExit as stop:
            ended.append((stop.code, err.getvalue()))
print(json.dumps([ended, sorted({"torch", "transformers", "matplotlib", "ray"} & set(sys.modules))]))
"""


def test_a_wrong_path_or_name_is_refused_without_large_libraries(collection_folder, tmp_path):
    (tmp_path / "empty").mkdir()
    pools, collection = f"{collection_folder}/test.pools.parquet", str(collection_folder)
    cases = [
        ("report nowhere", 1, "nowhere"),
        ("explain --model nowhere --question a --answer b", 1, "nowhere"),
        ("train nowhere", 1, "nowhere"),
        ("score nowhere.parquet --model nowhere --output x.run", 1, "nowhere"),
        ("matrix nowhere.toml --output x", 1, "nowhere"),
        ("eval nowhere.run --qrels nowhere", 1, "nowhere"),
        ("compare nowhere.run other.run --qrels nowhere", 1, "nowhere"),
        ("data import table train=nowhere.csv --output x", 1, "nowhere"),
        ("data folds nowhere --output x", 1, "nowhere"),
        (f"train {collection} --preset nowhere.toml", 1, "nowhere.toml: file not found; expected a recipe"),
        (f"train {collection} --vectors nowhere.bin", 1, "nowhere.bin: file not found"),
        (f"train {collection} --start nowhere", 1, "nowhere: folder not found; expected a model"),
        (f"train {collection} --start empty", 1, "empty: no model here"),
        (f"score {pools} --model {collection} --output x", 1, f"{collection}: no model here; expected the"),
    ]
    for number, (path, preset, row, code, expected) in enumerate(
        [
            ("nowhere", "ap-cnn", "c", 1, "nowhere: folder not found"),
            (collection, "nowhere.toml", "c", 1, "system 's': nowhere.toml: file not found"),
            (collection, "ap-cn", "c", 2, "system 's': preset 'ap-cn': expected one of"),
            (collection, "ap-cnn", "d", 1, "rows/0/collection: 'd': expected one of c"),
        ]
    ):
        table = f'[collections.c]\npath = "{path}"\n[systems.s]\npreset = "{preset}"\n'
        table += f'[[rows]]\ncollection = "{row}"\nsystems = ["s"]\n'
        (tmp_path / f"{number}.toml").write_text(table)
        cases.append((f"matrix {number}.toml --output x", code, expected))
    before = sorted(tmp_path.iterdir())

    commands = json.dumps([line.split() for line, _, _ in cases])
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM, commands], capture_output=True, text=True, timeout=120, cwd=tmp_path
    )

    ended, libraries = json.loads(finished.stdout)
    assert libraries == []
    assert len(ended) == len(cases)
    for (line, code, expected), (ended_with, message) in zip(cases, ended, strict=True):
        assert (ended_with, expected in message) == (code, True), (line, message)
    assert sorted(tmp_path.iterdir()) == before
