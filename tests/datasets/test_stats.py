"""Statistics: a collection counted by hand, and table 1 of the paper on the published files."""

import json
import os

import pytest
from click.testing import CliRunner

from aptool.cli.data import data
from aptool.datasets.stats import describe
from aptool.datasets.trecqa import import_trecqa
from aptool.datasets.wikiqa import import_wikiqa
from aptool.formats.collection import CollectionWriter, LabelledPool

DATA = os.environ.get("APTOOL_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="APTOOL_DATA is not set")


@pytest.fixture
def small(tmp_path):
    """Three questions.

    q1 "who is it ?" (4 words): relevant "it is me ." (4), non-relevant "no" (1), "no" again under another id
    q2 "why ?" (2 words): relevant "so that it's me" (6 for the tokenizer, which parts it ' s; 4 whitespace
       tokens), and an answer "x" that its pool lacks
    q3 "when ?" (2 words): wrong "no" (1)
    """
    pools = [
        LabelledPool(
            "q1", "who is it ?", ["a", "b", "c"], ["it is me .", "no", "no"], {"a": 1, "b": 0, "c": 0}
        ),
        LabelledPool("q2", "why ?", ["a"], ["so that it's me"], {"a": 2, "x": 1}),
        LabelledPool("q3", "when ?", ["b", "b"], ["no", "no"], {"b": 0}),
    ]
    with CollectionWriter(tmp_path / "small", name="small", source="this file") as writer:
        writer.add_split("dev", pools)
    from aptool.formats.collection import CollectionFiles

    return CollectionFiles(tmp_path / "small")


def test_counted_by_hand(small):
    found = describe(small)
    dev = found.splits["dev"]
    assert (dev.questions, dev.candidates) == (3, 5)
    assert (dev.pool_mean, dev.pool_least, dev.pool_most) == (pytest.approx(5 / 3), 1, 3)
    lengths = [dev.M, dev.L]
    assert lengths == pytest.approx([(4 + 2 + 2) / 3, (4 + 6) / 2])
    assert dev.L_all == pytest.approx((4 + 1 + 1 + 6 + 1) / 5)
    assert dev.L_over_M == pytest.approx((4 / 4 + 6 / 2) / 2)
    assert (dev.relevant, dev.relevant_mean) == (3, 1)
    assert (dev.without_relevant, dev.without_nonrelevant) == (1, 1)
    assert (dev.relevant_not_in_pool, dev.questions_without_relevant_in_pool) == (1, 1)
    assert (dev.distinct_answers, dev.repeated_texts) == (3, 1)
    assert found.policies["duplicate_candidates_dropped"] == {"dev": 1}
    # Words: who is it ? why when me . no so that ' s; running: 8 in questions, 4 + 1 + 6 in answers.
    assert (found.types, found.tokens) == (13, 19)


def test_whitespace_tokens(small):
    found = describe(small, words="whitespace")
    assert round(found.splits["dev"].L, 6) == (4 + 4) / 2
    # it's is one word now.
    assert (found.types, found.tokens) == (12, 17)


def test_shared_answers_are_counted_like_own_ones(tmp_path):
    from aptool.formats.collection import CollectionFiles

    answers = {"1": "a b c", "2": "d", "3": "d"}
    pools = [LabelledPool("q", "a ?", ["1", "2", "3"], None, {"1": 1})]
    with CollectionWriter(tmp_path / "shared", name="shared", source="this file") as writer:
        writer.add_answers(answers.items())
        writer.add_split("test", pools)
    found = describe(CollectionFiles(tmp_path / "shared"))
    test = found.splits["test"]
    assert (test.L, test.L_all, test.L_over_M) == (3, pytest.approx(5 / 3), 1.5)
    assert (test.distinct_answers, test.repeated_texts) == (2, 1)
    assert (found.types, found.tokens) == (5, 6)  # a ? b c d; "d" is one distinct answer


def test_words_without_a_vector(small, tmp_path):
    pytest.importorskip("aptool.text.vectors")
    # "Who" is there in another case only, and ? twice in q2 and q3 besides q1.
    (tmp_path / "vectors.txt").write_text("3 2\nno 0.5 0.5\nme 1 0\n? 0 1\n", encoding="utf-8")
    found = describe(small, vectors=str(tmp_path / "vectors.txt")).coverage
    # Known: no (once), me (twice), ? (three times); 13 types and 19 running words in all.
    assert (found.unknown_types, found.unknown_tokens) == (10, 13)


def test_json_holds_what_the_table_shows(small):
    result = CliRunner().invoke(data, ["stats", str(small.path), "--json"], catch_exceptions=False)
    found = json.loads(result.stdout)
    assert found["splits"]["dev"]["questions"] == 3
    assert found["splits"]["dev"]["M"] == pytest.approx(8 / 3)
    table = CliRunner().invoke(data, ["stats", str(small.path)], catch_exceptions=False).stdout
    assert table.splitlines()[0] == "small (words are tokenizer tokens)"
    lines = {line[:40].strip(): line.split()[-1] for line in table.splitlines()}
    assert lines["M: words per question"] == "2.67"
    assert lines["questions without relevant answer"] == "1"


@needs_data
def test_table_1_of_the_paper(tmp_path):
    """Questions exactly; M and L as near as whitespace tokens come to the paper's rounded means."""
    files = {split: f"{DATA}/wikiqa/WikiQA-{split}.tsv" for split in ("train", "dev")}
    found = describe(import_wikiqa(tmp_path / "w", files, questions="answerable"), words="whitespace").splits
    assert (found["train"].questions, found["dev"].questions) == (873, 126)
    assert (round(found["train"].M), round(found["dev"].M)) == (6, 6)
    assert round(found["dev"].pool_mean) == 9
    assert 23 < found["train"].L < 27  # the paper has 25
    assert found["train"].without_relevant == found["dev"].without_relevant == 0

    folders = {"train": f"{DATA}/trecqa/train-all", "dev": f"{DATA}/trecqa/clean-dev"}
    found = describe(
        import_trecqa(tmp_path / "t", folders, questions="both-labels"), words="whitespace"
    ).splits
    assert (found["train"].questions, found["dev"].questions) == (1162, 65)
    assert (round(found["dev"].M), round(found["dev"].L)) == (8, 28)
    assert found["train"].without_nonrelevant == found["dev"].without_relevant == 0
