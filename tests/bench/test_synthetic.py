"""Synthetic collections: the published shape, shared answers, reproducibility."""

import math

import pytest

from aptool.errors import InputError, UsageError
from bench import synthetic


@pytest.fixture(scope="module")
def insuranceqa(tmp_path_factory):
    return synthetic.build(tmp_path_factory.mktemp("synthetic") / "iqa", like="insuranceqa", scale=0.04)


@pytest.mark.parametrize(
    ("like", "scale", "expected"),
    [
        # Table 1 of the paper: 873, 126 and 243 questions; 20,360 pairs of which 8,672 are of these
        # questions, 1,130 and 2,352 pairs.
        ("wikiqa", 1, {"train": (873, 8672), "dev": (126, 1130), "test": (243, 2352)}),
        # 1,162, 65 and 68 questions.
        ("trecqa", 1, {"train": (1162, 53313), "dev": (65, 1117), "test": (68, 1442)}),
        # 12,887 questions with 18,540 right answers, 1,000 x 500 and 2 x 1,800 x 500 candidates; a tenth.
        (
            "insuranceqa",
            0.1,
            {"train": (1289, 1854), "dev": (100, 50000), "test1": (180, 90000), "test2": (180, 90000)},
        ),
    ],
)
def test_shape(tmp_path, like, scale, expected):
    collection = synthetic.build(tmp_path / "out", like=like, scale=scale)
    splits = collection.manifest["splits"]
    assert {split: (c["questions"], c["candidates"]) for split, c in splits.items()} == expected
    assert collection.manifest["policies"]["duplicate_candidates_dropped"] == dict.fromkeys(expected, 0)
    assert collection.manifest["policies"]["relevant_missing_from_pool_kept"] == dict.fromkeys(expected, 0)


def test_same_seed_same_bytes(tmp_path, insuranceqa):
    made = {
        (seed, scale): synthetic.build(
            tmp_path / f"{seed}", like="insuranceqa", scale=scale, seed=seed
        ).manifest
        for seed, scale in ((0, 0.04), (1, 0.04))
    }
    assert made[0, 0.04]["files"] == insuranceqa.manifest["files"]
    assert not set(made[0, 0.04]["files"].values()) & set(made[1, 0.04]["files"].values())


def test_invalid_arguments_are_refused(tmp_path):
    with pytest.raises(UsageError, match="expected one of insuranceqa, trecqa, wikiqa"):
        synthetic.build(tmp_path / "out", like="squad")
    for scale in (0, -1, math.inf, math.nan):
        with pytest.raises(UsageError, match="expected a number above 0"):
            synthetic.build(tmp_path / "out", like="wikiqa", scale=scale)
    (tmp_path / "thesis.txt").write_text("dear to someone", encoding="utf-8")
    with pytest.raises(InputError, match="it exists; expected another path"):
        synthetic.build(tmp_path, like="wikiqa", scale=0.01)
    assert (tmp_path / "thesis.txt").exists()
