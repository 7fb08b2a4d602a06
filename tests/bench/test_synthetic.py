"""Synthetic collections: published shape, Zipf's law, reproducibility, and learnable relevance."""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aptool.errors import InputError, UsageError
from aptool.formats.pools import list_units, read_answers, read_pools
from aptool.formats.trec import read_qrels
from aptool.text.bm25 import BM25
from bench import synthetic
from bench.made_up_words import spelled
from bench.published_shapes import spread_sizes


@pytest.fixture(scope="module")
def wikiqa(tmp_path_factory):
    return synthetic.build(tmp_path_factory.mktemp("synthetic") / "wikiqa", like="wikiqa")


@pytest.fixture(scope="module")
def insuranceqa(tmp_path_factory):
    return synthetic.build(tmp_path_factory.mktemp("synthetic") / "iqa", like="insuranceqa", scale=0.04)


def read(collection, split):
    """(question, [(answer, relevance)]) per pool."""
    answers = read_answers(collection.answers) if collection.answers else None
    qrels = {row[:2]: row[2] for row in read_qrels(collection.qrels(split)).iter_rows()}
    result = []
    for unit in list_units([collection.pools(split)]):
        pools = read_pools(unit, answers)
        texts, ids = pools.answers.to_pylist(), pools.answer_ids.to_pylist()
        named = zip(pools.question_ids.to_pylist(), pools.questions.to_pylist(), strict=True)
        for index, (question_id, question) in enumerate(named):
            pairs = range(pools.offsets[index], pools.offsets[index + 1])
            candidates = [
                (texts[pools.pair_answer[pair]].split(), qrels.get((question_id, ids[pair]), 0))
                for pair in pairs
            ]
            result.append((question.split(), candidates))
    return result


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


def test_mean_lengths(insuranceqa, wikiqa):
    # Table 1: M is 7 and L is 95 in InsuranceQA; questions of WikiQA have 6 words.
    questions = [len(question) for question, _ in read(insuranceqa, "train")]
    assert np.mean(questions) == pytest.approx(7.15, rel=0.05)
    answers = [len(text.split()) for text in read_answers(insuranceqa.answers).texts.to_pylist()]
    assert np.mean(answers) == pytest.approx(95, rel=0.05)
    assert np.mean([len(question) for question, _ in read(wikiqa, "train")]) == pytest.approx(6.3, rel=0.05)


def test_answers_are_shared_and_reused(insuranceqa):
    # 1,000 x 500 candidates out of 24,981 answers; here 40 x 500 out of 999.
    count = len(read_answers(insuranceqa.answers).answer_ids)
    assert count == sum(round(n * 0.04) for n in (18540, 1454, 2493, 2494))
    (unit,) = list_units([insuranceqa.pools("dev")])
    assert len(set(read_pools(unit, read_answers(insuranceqa.answers)).answer_ids.to_pylist())) > 0.95 * count


def test_words_follow_zipf(wikiqa):
    # Zipf's law: frequency falls about as 1 / rank, so from rank 10 to rank 1000 about a hundredfold.
    words = Counter(word for _, pool in read(wikiqa, "train") for text, _ in pool for word in text)
    counts = [count for _, count in words.most_common()]
    assert 30 < counts[10] / counts[1000] < 300
    # Top 200 words are about half of all running words in English; in WikiQA they are 49%.
    assert 0.4 < sum(counts[:200]) / sum(counts) < 0.6


def test_same_seed_same_bytes(tmp_path, insuranceqa):
    made = {
        (seed, scale): synthetic.build(tmp_path / "out", like="insuranceqa", scale=scale, seed=seed).manifest
        for seed, scale in ((0, 0.04), (1, 0.04))
    }
    assert made[0, 0.04]["files"] == insuranceqa.manifest["files"]
    assert not set(made[0, 0.04]["files"].values()) & set(made[1, 0.04]["files"].values())


def precision_at_1(pools, score):
    best = [pool[int(np.argmax([score(question, text) for text, _ in pool]))][1] for question, pool in pools]
    return np.mean(best)


def translation(train):
    """A scorer by the association of question and answer words in relevant pairs."""
    answers = [set(text) for _, pool in train for text, _ in pool]
    frequency = Counter(word for text in answers for word in text)
    together, in_questions = defaultdict(Counter), Counter()
    for question, pool in train:
        for text, right in pool:
            for word in set(question) if right else ():
                in_questions[word] += 1
                together[word].update(set(text))

    def score(question, text):
        total = 0.0
        for word in set(question):
            for other in set(text) if in_questions[word] else ():
                expected = in_questions[word] * frequency[other] / len(answers)
                total += math.log((together[word][other] + 2) / (expected + 2))
        return total / len(set(text)) ** 0.5

    return score


def test_relevance_is_learnable_and_not_from_shared_words_alone(wikiqa):
    train, dev = read(wikiqa, "train"), read(wikiqa, "dev")
    chance = np.mean([np.mean([right for _, right in pool]) for _, pool in dev])
    index = BM25([text for _, pool in dev for text, _ in pool])
    position = {id(text): i for i, text in enumerate(text for _, pool in dev for text, _ in pool)}
    shared = precision_at_1(dev, lambda question, text: index.scores(question)[position[id(text)]])
    learnt = precision_at_1(dev, translation(train))
    # 126 questions: two standard errors are about 0.09.
    assert learnt > shared + 0.15
    assert learnt > chance + 0.25
    assert learnt < 0.95


def test_shared_words_find_an_insuranceqa_answer_often_but_not_always(insuranceqa):
    dev = read(insuranceqa, "dev")
    index = BM25([text for _, pool in dev for text, _ in pool])
    position = {id(text): i for i, text in enumerate(text for _, pool in dev for text, _ in pool)}
    precision = precision_at_1(dev, lambda question, text: index.scores(question)[position[id(text)]])
    assert 0.1 < precision < 0.9  # chance is 1.5 of 500


def test_words_are_all_different():
    words = [spelled(rank) for rank in range(300_000)]
    assert len(set(words)) == len(words)
    assert all(word.isascii() and word.isalpha() and word.islower() for word in words[::1000])


@given(st.integers(1, 50), st.integers(1, 3), st.integers(0, 400), st.floats(0, 1.5), st.integers(0, 9))
def test_sizes_add_up_to_the_total(count, least, more, spread, seed):
    sizes = spread_sizes(count * least + more, count, spread, least, np.random.default_rng(seed))
    assert sizes.shape == (count,)
    assert sizes.sum() == count * least + more
    assert sizes.min() >= least


def test_invalid_arguments_are_refused(tmp_path):
    with pytest.raises(UsageError, match="expected one of insuranceqa, trecqa, wikiqa"):
        synthetic.build(tmp_path / "out", like="squad")
    for scale in (0, -1, math.inf, math.nan):
        with pytest.raises(UsageError, match="expected a number above 0"):
            synthetic.build(tmp_path / "out", like="wikiqa", scale=scale)
    (tmp_path / "thesis.txt").write_text("dear to someone", encoding="utf-8")
    with pytest.raises(InputError, match=r"no record that aptool wrote it"):
        synthetic.build(tmp_path, like="wikiqa", scale=0.01)
    assert (tmp_path / "thesis.txt").exists()
