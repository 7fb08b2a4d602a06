"""Poolings that match tokens: equal to plain double loops over any texts, alone and in the scorer."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import ranker, tokens

from aptool.config import load_recipe
from aptool.errors import InputError
from aptool.models.build import POOLINGS, build_ranker
from aptool.models.ragged import Ragged
from aptool.scoring.scorer import Scorer

texts = st.lists(st.lists(st.integers(2, 19), min_size=1, max_size=7), min_size=1, max_size=5)


def cosine(x, y):
    norms = math.sqrt(sum(a * a for a in x)) * math.sqrt(sum(b * b for b in y))
    return sum(a * b for a, b in zip(x, y, strict=True)) / norms


def maxsim(S):
    return sum(max(row) for row in S) / len(S)


def soft(S, temperature=0.05):
    total = 0
    for row in S:
        weights = [math.exp((one - max(row)) / temperature) for one in row]
        total += sum(w * one for w, one in zip(weights, row, strict=True)) / sum(weights)
    return total / len(S)


def kernels(S, count=11, width=0.1):
    means = [1.0, *(1 - (2 * k + 1) / (count - 1) for k in range(count - 1))]
    score = 0
    for mean in means:
        logs = [
            math.log(max(1e-6, sum(math.exp(-((one - mean) ** 2) / (2 * width**2)) for one in row)))
            for row in S
        ]
        score += mean / count * sum(logs) / len(S)
    return score


LOOPS = {
    "maxsim": maxsim,
    "symmetric-maxsim": lambda S: (maxsim(S) + maxsim(list(zip(*S, strict=True)))) / 2,
    "soft-maxsim": soft,
    "kernels": kernels,
}


@pytest.mark.parametrize("encoder", ["qa-cnn", "qa-bilstm"])
@pytest.mark.parametrize("kind", LOOPS)
@given(questions=texts, answers=texts)
def test_matching_is_a_double_loop_over_tokens(kind, encoder, questions, answers):
    system = ranker(encoder)
    system.pooling = POOLINGS[kind](system.encoder.size, POOLINGS[kind].Options())
    pairs = np.array([(q, a) for q in range(len(questions)) for a in range(len(answers))])
    with torch.inference_mode():
        Q, A = (system.encode(Ragged.of(tokens(*some))) for some in (questions, answers))
        matrix = system.score_matrix(Q, A)
    states = [[one.tolist() for one in part.values.double().split(part.sizes.tolist())] for part in (Q, A)]

    found = Scorer(system).score(tokens(*questions), tokens(*answers), pairs[:, 0], pairs[:, 1])

    expected = [LOOPS[kind]([[cosine(x, y) for y in states[1][a]] for x in states[0][q]]) for q, a in pairs]
    assert found.tolist() == pytest.approx(expected, abs=2e-4 if kind == "kernels" else 1e-5)
    assert matrix.flatten().tolist() == pytest.approx(expected, abs=2e-4 if kind == "kernels" else 1e-5)


@pytest.mark.parametrize("pooling", ["maxsim", "attentive", "max", "mean"])
def test_states_are_projected_before_they_are_pooled(pooling):
    torch.manual_seed(1)
    options = ["encoder.features=6", f"pooling.type={pooling}", "pooling.dim=2"]
    system = build_ranker(load_recipe("qa-cnn", options), 20, 5).eval()
    pairs = [tokens([2, 3, 4], [5]), tokens([6, 7], [8, 9, 3, 2])]

    with torch.inference_mode():
        states = [system.encode(Ragged.of(some)) for some in pairs]
        expected = system.score_pairs(*states)
    found = Scorer(system).score(*pairs, np.arange(2), np.arange(2))

    assert {some.values.shape[1] for some in states} == {2}
    torch.testing.assert_close(torch.from_numpy(found), expected, atol=1e-5, rtol=1e-5)


def test_a_projection_is_not_larger_than_the_states():
    recipe = load_recipe("qa-cnn", ["encoder.features=6", "pooling.type=maxsim", "pooling.dim=7"])
    with pytest.raises(InputError, match=r"pooling\.dim: 7: expected at most 6, the features of a state"):
        build_ranker(recipe, 20, 5)
