"""The training data of a collection."""

import numpy as np
import pytest
from tiny import recipe

from aptool.config import TextOptions
from aptool.data.collection import Collection
from aptool.data.writing import LabelledPool, write_collection
from aptool.errors import InputError
from aptool.text.tokenizer import WordTokenizer
from aptool.training.data import read_texts, read_training_texts, tokenize
from aptool.training.fit import fit
from aptool.training.losses import NegativeSampler


def write(path, pools, answers=None):
    write_collection(path, {"train": pools}, name="mine", source="made by hand", answers=answers)
    return Collection(path)


def rows(lists):
    return [lists.values[i:j].tolist() for i, j in zip(lists.offsets, lists.offsets[1:], strict=False)]


@pytest.fixture
def texts(tmp_path):
    # "yes" is in both pools under three ids; "gone" is relevant but in no pool; q3 has none.
    collection = write(
        tmp_path / "c",
        [
            LabelledPool("q1", "first", ["a", "b", "c"], ["yes", "no", "yes"], {"a": 1, "gone": 1}),
            LabelledPool("q2", "second", ["b", "d", "e"], ["no", "yes", "maybe"], {"b": 1, "e": 2, "d": 0}),
            LabelledPool("q3", "third", ["a", "d"], ["yes", "yes"], {"d": 0}),
        ],
    )
    return read_texts(collection, "train")


def test_answers_are_identified_by_their_text(texts):
    assert texts.questions == ["first", "second", "third"]
    assert texts.answers == ["yes", "no", "maybe"]
    assert rows(texts.pools) == [[0, 1], [0, 1, 2], [0]]
    assert rows(texts.positives) == [[0], [1, 2], []]
    assert sorted(texts.all()) == ["first", "maybe", "no", "second", "third", "yes"]


def test_a_positive_is_not_a_negative_under_another_id(texts):
    examples = tokenize(texts, WordTokenizer.learn(texts.all()), TextOptions())

    # "yes" is relevant to q1 as a, so it is not a negative as c.
    assert rows(examples.pool_negatives) == [[1], [0], [0]]
    assert examples.pairs.tolist() == [[0, 0], [1, 1], [1, 2]]


def test_questions_and_answers_have_separate_limits(tmp_path):
    collection = write(tmp_path / "c", [LabelledPool("q1", "a b c d", ["x"], ["e f g h i"], {"x": 1})])
    texts = read_texts(collection, "train")

    examples = tokenize(
        texts, WordTokenizer.learn(texts.all()), TextOptions(max_question_tokens=2, max_answer_tokens=3)
    )

    assert (examples.questions.lengths.tolist(), examples.answers.lengths.tolist()) == ([2], [3])
    assert (examples.questions.truncated, examples.answers.truncated) == (1, 1)


def test_shared_answers_are_read(tmp_path):
    collection = write(
        tmp_path / "c",
        [LabelledPool("q1", "where", ["x", "y"], None, {"y": 1})],
        [("x", "here"), ("y", "there")],
    )

    texts = read_texts(collection, "train")

    assert [texts.answers[i] for i in rows(texts.pools)[0]] == ["here", "there"]
    assert [texts.answers[i] for i in rows(texts.positives)[0]] == ["there"]


@pytest.fixture
def shared(tmp_path):
    """Two questions with their answer each, and two answers of no question."""
    pools = [
        LabelledPool("q1", "red roses", ["a"], None, {"a": 1}),
        LabelledPool("q2", "blue sky", ["b"], None, {"b": 1}),
    ]
    texts = [("a", "roses are red"), ("b", "the sky"), ("c", "a red rose of red roses"), ("d", "blue")]
    return write(tmp_path / "c", pools, texts)


@pytest.mark.parametrize("negatives", ["collection", "all"])
def test_negatives_come_from_the_shared_answers_too(shared, negatives):
    corpus = read_training_texts(shared, recipe("ap-cnn"))
    whole = read_training_texts(shared, recipe("ap-cnn", f"training.negatives={negatives}"))

    assert corpus.answers == ["roses are red", "the sky"]
    assert whole.answers == [*corpus.answers, "a red rose of red roses", "blue"]
    assert rows(whole.pools) == rows(whole.positives) == [[0], [1]]


def test_bm25_negatives_are_the_best_answers_that_are_not_relevant(shared, monkeypatch):
    monkeypatch.setattr("aptool.training.data.BM25_NEGATIVES", 2)

    texts = read_training_texts(shared, recipe("ap-cnn", "training.negatives=bm25"))

    # "a red rose of red roses" has both words of "red roses", "blue" a word of "blue sky".
    assert rows(texts.pools) == [[0, 2], [1, 3]]
    examples = tokenize(texts, WordTokenizer.learn(texts.all()), TextOptions())
    assert rows(examples.pool_negatives) == [[2], [3]]
    drawn = NegativeSampler(examples, "bm25", sampled=5).sample(np.array([1, 0]), np.random.default_rng(0))
    assert drawn.tolist() == [[3] * 5, [2] * 5]


@pytest.mark.parametrize("negatives", ["bm25", "all"])
def test_a_system_trains_on_negatives_of_the_collection(collection, tmp_path, negatives):
    options = (f"training.negatives={negatives}", "training.mining_interval=0")

    trained = fit(collection, recipe("qa-cnn", *options), tmp_path / "model")

    # The expected MRR of a random order of six candidates with a single relevant one is .41.
    assert trained.dev["MRR"] > 0.6


def test_row_groups_of_a_split_are_joined(tmp_path, monkeypatch):
    from aptool.data import pools

    made = [
        LabelledPool(f"q{n}", f"question {n}", ["x", f"y{n}"], ["same", f"own {n}"], {f"y{n}": 1})
        for n in range(5)
    ]
    whole = read_texts(write(tmp_path / "one", made), "train")
    monkeypatch.setattr(pools, "ROW_GROUP_CANDIDATES", 2)
    parts = read_texts(write(tmp_path / "five", made), "train")

    assert (parts.questions, parts.answers) == (whole.questions, whole.answers)
    assert np.array_equal(parts.positives.values, whole.positives.values)
    assert rows(parts.pools) == rows(whole.pools) == [[0, n + 1] for n in range(5)]


def test_a_split_without_relevant_answers_is_an_error(tmp_path):
    collection = write(tmp_path / "c", [LabelledPool("q1", "where", ["x"], ["here"], {"x": 0})])

    with pytest.raises(
        InputError, match=r"train\.qrels: none for train\.pools\.parquet; expected at least one"
    ):
        read_texts(collection, "train")
