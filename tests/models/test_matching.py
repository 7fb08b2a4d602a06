"""Poolings of token similarities, compared with double loops over tokens."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import OVER_STATES, pooled, tokens

from aptool.config import load_recipe
from aptool.models.build import POOLINGS, build_ranker
from aptool.models.ragged import Ragged, inner_products
from aptool.scoring.kernels import EncodedAnswers, Pairs, kernel_for
from aptool.scoring.ranker_scorer import RankerScorer

texts = st.lists(st.lists(st.integers(2, 19), min_size=1, max_size=7), min_size=1, max_size=5)


@pytest.fixture(autouse=True, scope="module")
def one_core():
    """One core per operation, as in ``RankerScorer``."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def cosine(x, y):
    norms = math.sqrt(sum(a * a for a in x)) * math.sqrt(sum(b * b for b in y))
    return sum(a * b for a, b in zip(x, y, strict=True)) / norms


def maxsim(S):
    return sum(max(row) for row in S) / len(S)


def mean(states):
    return [sum(column) / len(states) for column in zip(*states, strict=True)]


def of_tokens(Q, A):
    return maxsim([[cosine(x, y) for y in A] for x in Q])


# Double loops over the tokens of both texts.
LOOPS = {
    "maxsim": of_tokens,
    "mean-maxsim": lambda Q, A: (cosine(mean(Q), mean(A)) + of_tokens(Q, A)) / 2,
}


@pytest.mark.parametrize("kind", LOOPS)
@settings(max_examples=15)
@given(questions=texts, answers=texts)
def test_scores_equal_loops_over_tokens(kind, questions, answers):
    system = pooled(kind)
    pairs = np.array([(q, a) for q in range(len(questions)) for a in range(len(answers))])
    with torch.inference_mode():
        Q, A = (system.encode(Ragged.of(tokens(*some))) for some in (questions, answers))
        matrix = system.score_matrix(Q, A)
        paired = system.score_pairs(Q.select(pairs[:, 0]), A.select(pairs[:, 1]))
    states = [[text.tolist() for text in part.values.double().split(part.sizes.tolist())] for part in (Q, A)]

    actual = RankerScorer(system).score(tokens(*questions), tokens(*answers), pairs[:, 0], pairs[:, 1])

    expected = [LOOPS[kind](states[0][q], states[1][a]) for q, a in pairs]
    for scores in (actual, matrix.flatten(), paired):
        assert scores.tolist() == pytest.approx(expected, abs=1e-5)


@given(
    M=st.integers(1, 40), sizes=st.lists(st.integers(1, 70), min_size=1, max_size=12), c=st.integers(1, 70)
)
@settings(max_examples=60)
def test_an_inner_product_depends_only_on_its_two_rows(M, sizes, c):
    generator = torch.Generator().manual_seed(M + 100 * c)
    rows = torch.randn(M, c, generator=generator)
    others = torch.randn(sum(sizes), c, generator=generator)

    together = inner_products(rows, others)
    apart = [inner_products(rows, some) for some in others.split(sizes)]

    assert torch.equal(together, torch.cat(apart, 1))


@pytest.mark.parametrize("kind", LOOPS)
def test_scores_of_unshared_answers_depend_on_no_other_pair(kind):
    generator = np.random.default_rng(1)
    lengths = generator.integers(1, 12, 20), np.append(generator.integers(1, 60, 199), 3000)
    question = generator.integers(0, 20, 200)
    kernel = kernel_for(POOLINGS[kind](24, POOLINGS[kind].Options()))
    torch.manual_seed(0)
    Q, A = (Ragged.of_sizes(torch.randn(int(sizes.sum()), 24), sizes) for sizes in lengths)

    def scores(chosen):
        rows = kernel.cache_answers(A.select(chosen))
        starts = np.cumsum(rows.sizes) - rows.sizes
        encoded = EncodedAnswers([rows.values], np.zeros_like(starts), starts, rows.sizes, rows.sizes)
        pairs = Pairs(question[chosen], np.ones(len(chosen), dtype=np.int64))
        return kernel.score_pairs(kernel.prepare_questions(Q), encoded, pairs).numpy()

    with torch.inference_mode():
        together = scores(np.arange(200))
        for _ in range(20):
            some = generator.permutation(200)[: generator.integers(1, 200)]
            np.testing.assert_array_equal(scores(some), together[some])

    states = [[text.tolist() for text in part.values.double().split(part.sizes.tolist())] for part in (Q, A)]
    expected = [LOOPS[kind](states[0][question[answer]], states[1][answer]) for answer in range(40)]
    assert together[:40].tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("rows", ["the same questions", "some questions"])
@pytest.mark.parametrize("kind", LOOPS)
def test_scores_of_shared_answers_equal_the_definition(kind, rows):
    """The products are as large as those of long answers in many pools."""
    generator = np.random.default_rng(2)
    lengths = generator.integers(3, 20, 30), np.append(generator.integers(90, 200, 5), [1, 400])
    pooling = POOLINGS[kind](384, POOLINGS[kind].Options())
    torch.manual_seed(0)
    Q, A = (Ragged.of_sizes(torch.randn(int(sizes.sum()), 384), sizes) for sizes in lengths)
    number = 30 if rows == "the same questions" else 20
    chosen = [np.sort(generator.permutation(30)[:number]) for _ in A.sizes]
    pairs = Pairs(np.concatenate(chosen), np.array([len(some) for some in chosen]))
    kernel = kernel_for(pooling)

    with torch.inference_mode():
        kept = kernel.cache_answers(A)
        starts = np.cumsum(kept.sizes) - kept.sizes
        encoded = EncodedAnswers([kept.values], np.zeros_like(starts), starts, kept.sizes, A.sizes)
        actual = kernel.score_pairs(kernel.prepare_questions(Q), encoded, pairs)
        expected = pooling.score_pairs(Q.select(pairs.questions), A.select(pairs.answers))

    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kind", LOOPS)
def test_gradients_equal_numerical_differences(kind):
    torch.manual_seed(4)
    pooling = POOLINGS[kind](3, POOLINGS[kind].Options()).double()
    states = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)

    def scores(states):
        questions, answers = Ragged.join([states[:2], states[:1]]), Ragged.join([states[2:], states[1:2]])
        return pooling.score_pairs(questions, answers)

    assert torch.autograd.gradcheck(scores, states, atol=1e-5)


@pytest.mark.parametrize("pooling", OVER_STATES)
def test_states_are_projected_before_they_are_pooled(pooling):
    torch.manual_seed(1)
    options = ["encoder.features=6", f"pooling.type={pooling}", "pooling.dim=2"]
    system = build_ranker(load_recipe("qa-cnn", options), 20, 5).eval()
    pairs = [tokens([2, 3, 4], [5]), tokens([6, 7], [8, 9, 3, 2])]

    with torch.inference_mode():
        states = [system.encode(Ragged.of(some)) for some in pairs]
        expected = system.score_pairs(*states)
    actual = RankerScorer(system).score(*pairs, np.arange(2), np.arange(2))

    assert {some.values.shape[1] for some in states} == {2}
    torch.testing.assert_close(torch.from_numpy(actual), expected, atol=1e-5, rtol=1e-5)
