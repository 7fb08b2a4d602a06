"""Statistics: of a collection counted by hand, and of the published files as in table 1 of the paper."""

import json

import pytest
from click.testing import CliRunner
from imported import DATA, counts_of, needs_data

from aptool.cli.data import data
from aptool.data.collection import Collection
from aptool.data.published import import_trecqa, import_wikiqa
from aptool.data.stats import describe
from aptool.data.writing import LabelledPool, write_collection


@pytest.fixture
def small(tmp_path):
    """Three questions.

    q1 "who is it ?" (4 words): relevant "it is me ." (4), non-relevant "no" (1), "no" again under another id
    q2 "why ?" (2 words): relevant "so that it's me" (4 words), and a relevant answer "x" that is not in its
       pool
    q3 "when ?" (2 words): wrong "no" (1)
    """
    pools = [
        LabelledPool(
            "q1", "who is it ?", ["a", "b", "c"], ["it is me .", "no", "no"], {"a": 1, "b": 0, "c": 0}
        ),
        LabelledPool("q2", "why ?", ["a"], ["so that it's me"], {"a": 2, "x": 1}),
        LabelledPool("q3", "when ?", ["b", "b"], ["no", "no"], {"b": 0}),
    ]
    write_collection(tmp_path / "small", {"dev": pools}, name="small", source="this file")
    return Collection(tmp_path / "small")


def test_counted_by_hand(small):
    statistics = describe(small)
    dev = statistics.splits["dev"]
    assert (dev.questions, dev.candidates) == (3, 5)
    assert (dev.pool_mean, dev.pool_least, dev.pool_most) == (pytest.approx(5 / 3), 1, 3)
    lengths = [dev.M, dev.L]
    assert lengths == pytest.approx([(4 + 2 + 2) / 3, (4 + 4) / 2])
    assert dev.L_all == pytest.approx((4 + 1 + 1 + 4 + 1) / 5)
    assert dev.L_over_M == pytest.approx((4 / 4 + 4 / 2) / 2)
    assert dev.relevant == 3
    assert (dev.without_relevant, dev.without_nonrelevant) == (1, 1)
    assert (dev.relevant_not_in_pool, dev.questions_without_relevant_in_pool) == (1, 1)
    assert dev.distinct_answers == 3
    assert statistics.policies["duplicate_candidates_dropped"] == {"dev": 1}


def test_shared_answers_are_counted_as_texts_of_pools(tmp_path):
    answers = [("1", "a b c"), ("2", "d"), ("3", "d")]
    splits = {"test": [LabelledPool("q", "a ?", ["1", "2", "3"], None, {"1": 1})]}
    write_collection(tmp_path / "shared", splits, name="shared", source="this file", answers=answers)
    statistics = describe(Collection(tmp_path / "shared"))
    test = statistics.splits["test"]
    assert (test.L, test.L_all, test.L_over_M) == (3, pytest.approx(5 / 3), 1.5)
    assert test.distinct_answers == 2


def test_json_and_table_have_the_same_statistics(small):
    result = CliRunner().invoke(data, ["stats", str(small.path), "--json"], catch_exceptions=False)
    statistics = json.loads(result.stdout)
    assert statistics["splits"]["dev"]["questions"] == 3
    assert statistics["splits"]["dev"]["M"] == pytest.approx(8 / 3)
    table = CliRunner().invoke(data, ["stats", str(small.path)], catch_exceptions=False).stdout
    assert table.splitlines()[0] == "small"
    lines = {line[:40].strip(): line.split()[-1] for line in table.splitlines()}
    assert lines["M: words per question"] == "2.67"
    assert lines["questions without relevant answer"] == "1"


@needs_data
def test_table_1_of_the_paper(tmp_path):
    """The numbers of questions are exact; M and L are close to the rounded means of the paper."""
    files = {split: f"{DATA}/wikiqa/WikiQA-{split}.tsv" for split in ("train", "dev")}
    wikiqa = import_wikiqa(tmp_path / "w", files, questions="answerable")
    assert counts_of(wikiqa) == {"train": (873, 8672, 1040), "dev": (126, 1130, 140)}
    assert wikiqa.manifest["policies"]["questions_dropped_not_answerable"] == {"train": 1245, "dev": 170}
    statistics = describe(wikiqa).splits
    assert (round(statistics["train"].M), round(statistics["dev"].M)) == (6, 6)
    assert round(statistics["dev"].pool_mean) == 9
    assert 23 < statistics["train"].L < 27  # the paper has 25
    assert statistics["train"].without_relevant == statistics["dev"].without_relevant == 0

    folders = {"train": f"{DATA}/trecqa/train-all", "dev": f"{DATA}/trecqa/clean-dev"}
    trecqa = import_trecqa(tmp_path / "t", folders, questions="both-labels")
    assert counts_of(trecqa) == {"train": (1162, 53313, 6299), "dev": (65, 1117, 205)}
    assert trecqa.name == "trecqa-clean"
    statistics = describe(trecqa).splits
    assert (round(statistics["dev"].M), round(statistics["dev"].L)) == (8, 28)
    assert statistics["train"].without_nonrelevant == statistics["dev"].without_relevant == 0
