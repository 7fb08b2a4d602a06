"""The systems that the paper compares with: each learns, and has the scores of its definition."""

import numpy as np
import pytest
import torch
from published import PUBLISHED, published_ranker, published_recipe, with_words
from tiny import recipe, tokens

from aptool.models.build import build_ranker
from aptool.models.model import load_model
from aptool.models.pooling import SIMILARITIES
from aptool.models.ragged import Ragged
from aptool.scoring.ranker_scorer import RankerScorer
from aptool.training.fit import fit

# The reciprocal ranks 1 to 1/6 of six candidates in random order: a mean of 49/20 / 6.
RANDOM_MRR = 49 / 120


@pytest.mark.parametrize("system", PUBLISHED)
def test_every_system_learns(system, collection, tmp_path):
    result = fit(collection, published_recipe(system), tmp_path / "model", seed=1)

    assert result.dev["MRR"] > RANDOM_MRR + 0.2
    loaded = load_model(tmp_path / "model")
    assert loaded.recipe.preset == system


def texts(count, seed):
    generator = np.random.default_rng(seed)
    sizes = generator.integers(1, 9, size=count)
    return with_words(tokens(*(generator.integers(1, 20, size=size).tolist() for size in sizes)))


@pytest.mark.parametrize("system", PUBLISHED)
def test_the_scorer_gives_the_scores_of_the_definition(system):
    equal_to_the_definition(published_ranker(system))


@pytest.mark.parametrize("system", ["ap-cnn", "qa-bilstm"])
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_every_pooling_of_vectors_takes_every_similarity(system, similarity):
    torch.manual_seed(1)
    equal_to_the_definition(build_ranker(recipe(system, f"similarity.type={similarity}"), 20, 6).eval())


@torch.inference_mode()
def equal_to_the_definition(ranker):
    """Compare the scorer, and the score matrix of training, with the scores of single pairs."""
    questions, answers = texts(5, 1), texts(7, 2)
    pair_question, pair_answer = np.repeat(np.arange(5), 7), np.tile(np.arange(7), 5)

    alone = []
    for q, a in zip(pair_question, pair_answer, strict=True):
        pair = questions.take(np.array([q])), answers.take(np.array([a]))
        features = ranker.features_of(*pair)(np.array([0]), np.array([0]))
        alone.append(ranker(*map(Ragged.of, pair), features).item())
    states = [ranker.encode(Ragged.of(side)) for side in (questions, answers)]
    features = ranker.features_of(questions, answers)(pair_question, pair_answer)
    together = ranker.score_matrix(*states, features).reshape(-1)

    for size in (4, 1 << 20):
        scores = RankerScorer(ranker, tokens_per_batch=size).score(
            questions, answers, pair_question, pair_answer
        )
        np.testing.assert_allclose(scores, alone, atol=1e-5, rtol=0)
    np.testing.assert_allclose(together.numpy(), alone, atol=1e-5, rtol=0)
    assert np.ptp(alone) > 1e-4  # scores differ between answers
