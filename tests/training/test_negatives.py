"""Negatives: never a positive, uniform samples, and the highest-scored of each sample."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import lists, ranker, tokens

from aptool.models.ragged import Ragged
from aptool.training import losses
from aptool.training.data import IndexLists, TrainingSet
from aptool.training.losses import NegativeSampler, hardest, hardest_of_all

# Twelve answers. Question 0 has one positive, 1 three (the first and the last answer among them), 2 all but
# answer 5, 3 has a pool without a negative, 4 has every answer as a positive.
ANSWERS = 12
POSITIVES = [[4], [0, 6, 11], [a for a in range(12) if a != 5], [2, 3], [*range(12)]]
POOL_NEGATIVES = [[1, 9], [3, 7, 8], [5], [], []]


@pytest.fixture
def examples():
    return TrainingSet(
        questions=tokens(*([n + 1, 2] for n in range(5))),
        answers=tokens(*([n + 3, n + 4] for n in range(ANSWERS))),
        positives=lists(POSITIVES),
        pool_negatives=lists(POOL_NEGATIVES),
    )


@pytest.mark.parametrize("source", ["corpus", "pool", "mix"])
def test_no_positive_in_ten_thousand_draws(examples, source):
    sampler = NegativeSampler(examples, source, sampled=50)
    questions = np.tile(np.arange(4), 50)

    drawn = sampler.sample(questions, np.random.default_rng(7))

    assert drawn.shape == (200, 50)
    for question in range(4):
        seen = set(drawn[questions == question].ravel().tolist())
        remaining = set(range(ANSWERS)) - set(POSITIVES[question])
        # All possible answers are drawn, and no other answer.
        assert seen == (set(POOL_NEGATIVES[question]) or remaining if source == "pool" else remaining)


@pytest.mark.parametrize(("question", "cells"), [(0, 11), (1, 9), (3, 10)])
def test_corpus_draws_are_uniform(examples, question, cells):
    drawn = NegativeSampler(examples, "corpus", sampled=100).sample(
        np.full(100, question), np.random.default_rng(1)
    )

    seen = np.bincount(drawn.ravel(), minlength=ANSWERS)
    counts = seen[[answer for answer in range(ANSWERS) if answer not in POSITIVES[question]]]
    expected = 10_000 / cells
    # Chi-square has mean df and variance 2 df; five deviations are exceeded once in thousands of seeds.
    df = cells - 1
    assert ((counts - expected) ** 2 / expected).sum() < df + 5 * (2 * df) ** 0.5


def test_pool_draws_are_uniform(examples):
    drawn = NegativeSampler(examples, "pool", sampled=100).sample(np.full(99, 1), np.random.default_rng(1))

    counts = np.bincount(drawn.ravel(), minlength=ANSWERS)[POOL_NEGATIVES[1]]
    assert ((counts - 3300) ** 2 / 3300).sum() < 2 + 5 * 2


@pytest.mark.parametrize("source", ["pool", "mix"])
def test_negatives_are_from_the_corpus_if_no_pool_has_one(examples, source):
    # As in InsuranceQA, whose training pools hold relevant answers only.
    bare = replace(examples, pool_negatives=lists([[]] * len(examples.questions)))

    drawn = NegativeSampler(bare, source, sampled=200).sample(np.array([0, 1]), np.random.default_rng(0))

    for question, answers in enumerate(drawn):
        start, end = examples.positives.offsets[question : question + 2]
        relevant = set(examples.positives.values[start:end])
        assert set(answers) == set(range(ANSWERS)) - relevant


def test_half_of_a_mix_is_from_the_pool(examples):
    drawn = NegativeSampler(examples, "mix", sampled=50).sample(np.full(1000, 0), np.random.default_rng(2))

    # Of 50, 25 come from {1, 9}; of the other 25, from eleven answers, two in eleven fall there as well.
    from_pool = np.isin(drawn, POOL_NEGATIVES[0]).mean()
    assert from_pool == pytest.approx(0.5 + 0.5 * 2 / 11, abs=0.01)


def test_draws_depend_only_on_the_generator(examples):
    sampler = NegativeSampler(examples, "mix", sampled=10)
    questions = np.array([0, 1, 2, 3, 0])

    first = sampler.sample(questions, np.random.default_rng([3, 1]))
    sampler.sample(questions, np.random.default_rng(99))

    assert (sampler.sample(questions, np.random.default_rng([3, 1])) == first).all()
    # Another epoch has other draws, and so has each occurrence of a question.
    assert (sampler.sample(questions, np.random.default_rng([3, 2])) != first).any()
    assert (first[0] != first[4]).any()


def test_question_with_every_answer_relevant_cannot_be_trained_on(examples):
    trainable = NegativeSampler(examples, "pool", sampled=1).trainable()

    assert trainable.tolist() == [True, True, True, True, False]


@pytest.mark.parametrize("system", ["qa-cnn", "ap-cnn"])
def test_the_highest_scored_negatives_are_chosen(examples, system):
    system = ranker(system, dim=8, size=12)
    questions = np.array([1, 0, 0, 3])
    drawn = NegativeSampler(examples, "corpus", sampled=6).sample(questions, np.random.default_rng(0))

    chosen = hardest(system, examples, questions, drawn)
    three = hardest(system, examples, questions, drawn, hard_negatives=3)

    assert (chosen.shape, three.shape) == ((4, 1), (4, 3))
    for question, candidates, best, best_three in zip(questions, drawn, chosen, three, strict=True):
        question_tokens = Ragged.of(examples.questions.take(np.full(len(candidates), question)))
        with torch.inference_mode():
            scored = system(question_tokens, Ragged.of(examples.answers.take(candidates)))
            scores = dict(zip(candidates, scored, strict=True))
        assert best[0] == max(scores, key=scores.get)
        # No other candidate scores higher than the chosen ones, which are sorted by score.
        other_scores = [scores[answer] for answer in set(candidates) - set(best_three)]
        assert all(scores[answer] >= value - 1e-6 for answer in best_three for value in other_scores)
        assert scores[best_three[0]] >= scores[best_three[1]] - 1e-6 >= scores[best_three[2]] - 2e-6


@pytest.mark.parametrize("system", ["qa-cnn", "ap-cnn"])
def test_the_hardest_of_all_answers_are_those_of_the_definition(examples, system, monkeypatch):
    monkeypatch.setattr(losses, "PAIRS_PER_BLOCK", 15)  # five of the twelve answers per block
    system = ranker(system, dim=8, size=12)
    questions = np.array([3, 0, 2, 0])

    chosen = hardest_of_all(system, examples, questions, hard_negatives=3)

    for question, best in zip(questions, chosen, strict=True):
        negatives = np.array([answer for answer in range(ANSWERS) if answer not in POSITIVES[question]])
        if question == 2:  # has a single negative
            assert best.tolist() == [5, 5, 5]
            continue
        question_tokens = Ragged.of(examples.questions.take(np.full(len(negatives), question)))
        with torch.inference_mode():
            scores = system(question_tokens, Ragged.of(examples.answers.take(negatives))).numpy()
        assert best.tolist() == negatives[np.argsort(-scores)[:3]].tolist()


def test_lists_are_ascending_without_duplicates():
    gathered = IndexLists.of(np.array([2, 0, 2, 2, 0]), np.array([9, 4, 1, 9, 3]), 4)

    assert gathered.values.tolist() == [3, 4, 1, 9]
    assert gathered.offsets.tolist() == [0, 2, 2, 4, 4]
    assert IndexLists.of(np.empty(0, np.int64), np.empty(0, np.int64), 2).lengths.tolist() == [0, 0]
    assert gathered.contain(np.array([2, 1]), np.array([9, 4, 1])).tolist() == [
        [True, False, True],
        [False, False, False],
    ]


MEMBERS = st.lists(st.lists(st.integers(0, 9), unique=True), min_size=1, max_size=6)


@given(MEMBERS, st.lists(st.integers(0, 9), min_size=1), st.data())
def test_lists_contain_their_members(members, values, data):
    rows = data.draw(st.lists(st.integers(0, len(members) - 1)))

    contains = lists(members).contain(np.array(rows, dtype=np.int64), np.array(values))

    assert contains.tolist() == [[value in members[row] for value in values] for row in rows]
