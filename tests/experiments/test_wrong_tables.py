"""A wrong table of `aptool matrix` is a one-line error with the position."""

import pytest

GOOD = """
[collections.tiny]
path = "C"
[systems.random]
baseline = "random"
[systems.ap-cnn]
preset = "ap-cnn"
[systems.both]
fuse = ["random", "ap-cnn"]
[[rows]]
collection = "tiny"
systems = ["random"]
"""
BAD = {
    "not TOML": ("baseline =", "baseline", 1, "eval.toml: ", "expected TOML"),
    "unknown entry": ("[[rows]]", "[[row]]", 1, "eval.toml: top level: ", ""),
    "unknown collection": (
        'collection = "tiny"',
        'collection = "tony"',
        1,
        "eval.toml: rows/0/collection: 'tony'",
        "expected one of tiny",
    ),
    "unknown system": (
        'systems = ["random"]',
        'systems = ["bm25"]',
        1,
        "eval.toml: rows/0/systems: 'bm25'",
        "expected one of random, ap-cnn, both",
    ),
    "fusion of a fusion": (
        'fuse = ["random", "ap-cnn"]',
        'fuse = ["random", "both"]',
        1,
        "eval.toml: systems/both/fuse: 'both'",
        "expected a system that is not itself fused",
    ),
    "fusion without its parts": (
        'systems = ["random"]',
        'systems = ["random", "both"]',
        1,
        "fuse of both: 'ap-cnn'",
        "expected one of random, both",
    ),
    "name of two words": ("[systems.both]", '[systems."b oth"]', 1, "eval.toml: systems: 'b oth'", ""),
    "unknown measure": (
        "[collections.tiny]",
        'measures = ["mmr"]\n[collections.tiny]',
        1,
        "eval.toml: measures: ['mmr']",
        "unknown measures: 'mmr'",
    ),
    "a name without a value": (
        'path = "C"',
        'path = "${place}/C"',
        1,
        "eval.toml: '${place}'",
        "expected --let place=...",
    ),
    "a seed twice": (
        'systems = ["random"]',
        'systems = ["random"]\nseeds = [3, 3]',
        1,
        "eval.toml: rows/0/seeds: [3, 3]",
        "",
    ),
    "unknown option": (
        'preset = "ap-cnn"',
        'preset = "ap-cnn"\nset = ["training.epoch=1"]',
        1,
        "training.epoch",
        "expected 'epochs' perhaps",
    ),
    "unknown split": (
        'path = "C"',
        'path = "C"\nsplit = "test2"',
        1,
        "split 'test2'",
        "expected one of train, dev, test",
    ),
}


@pytest.mark.parametrize(("old", "new", "code", "start", "expected"), BAD.values(), ids=BAD.keys())
def test_wrong_table_is_one_error_line(run_matrix, collection_folder, old, new, code, start, expected):
    text = GOOD.replace('["random"]', '["random", "ap-cnn"]') if "preset" in old else GOOD
    assert old in text

    finished = run_matrix(text.replace(old, new).replace('"C"', f'"{collection_folder}"'))

    assert (finished.code, finished.out, len(finished.err)) == (code, [], 1)
    assert start in finished.err[0]
    assert expected in finished.err[0]


def test_missing_table_and_unwritable_output_are_one_error_line(
    aptool, tmp_path, collection_folder, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "eval.toml").write_text(GOOD.replace('"C"', f'"{collection_folder}"'))

    missing = aptool("matrix", "none.toml", "--output", "out")
    unwritable = aptool("matrix", "eval.toml", "--output", "eval.toml")

    assert (missing.code, missing.err) == (
        1,
        ["aptool: none.toml: file not found; expected an experiment matrix"],
    )
    assert (unwritable.code, len(unwritable.err)) == (1, 1)
    assert "eval.toml: a file; expected a folder, or a new path" in unwritable.err[0]


def test_unused_and_repeated_values_are_one_error_line(aptool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "eval.toml").write_text(GOOD.replace('"C"', '"${place}"'))

    unknown = aptool("matrix", "eval.toml", "--output", "out", "--let", "place=c", "--let", "plaec=d")
    twice = aptool("matrix", "eval.toml", "--output", "out", "--let", "place=c", "--let", "place=d")

    assert unknown.err == ["aptool: eval.toml: --let: 'plaec': expected one of place"]
    assert (twice.code, len(twice.err)) == (2, 1)
    assert "place given twice" in twice.err[0]
