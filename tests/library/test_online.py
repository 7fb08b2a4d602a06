"""Answers are ranked and scored."""

import numpy as np
import pytest
from tiny import THINGS

from aptool import AptoolError

QUESTION = "where is the river with the window"
ANSWERS = [
    *("the garden near the letter is silver", "the river near the window is silver", "", "?!"),
    *(f"the {first} is near the {second}" for first in THINGS[:6] for second in THINGS[6:10]),
    *("the river near the window is silver", " ".join(THINGS)),
]


def test_a_ranking_has_the_scores_of_the_pairs(model):
    scores = model.score(QUESTION, ANSWERS)

    pairs = [(QUESTION, answer) for answer in ANSWERS]
    np.testing.assert_allclose(scores, model.score(pairs), atol=1e-6)
    ranking = model.rank(QUESTION, ANSWERS)
    assert [index for index, _ in ranking] == np.argsort(-scores, kind="stable").tolist()
    assert [score for _, score in ranking] == scores[[index for index, _ in ranking]].tolist()


def test_top_k_limits_the_ranking(model):
    assert model.rank(QUESTION, ANSWERS, top_k=3) == model.rank(QUESTION, ANSWERS)[:3]
    assert model.rank(QUESTION, ANSWERS[:2], top_k=10) == model.rank(QUESTION, ANSWERS[:2])


def test_nothing_to_rank_is_an_empty_ranking(model):
    assert model.rank(QUESTION, []) == []
    for scores in (model.score([]), model.score(QUESTION, [])):
        assert (scores.shape, scores.dtype) == ((0,), np.float32)


WRONG = [
    (lambda model: model.rank(QUESTION, "text"), "answers: 'text': expected a list of texts"),
    (lambda model: model.rank(QUESTION, ["a", 7]), "answers: item 1: 7: expected text (str)"),
    (lambda model: model.rank(QUESTION, {"a": "b"}), "answers: {'a': 'b'}: expected a list of texts"),
    (lambda model: model.rank(None, ["a"]), "question: None: expected text (str)"),
    (lambda model: model.rank(QUESTION, ANSWERS, top_k=0), "top_k: 0: expected an integer of at least 1"),
    (lambda model: model.rank(QUESTION, ANSWERS, top_k=2.5), "top_k: 2.5: expected an integer of at least 1"),
    (lambda model: model.score([(QUESTION, "a")], ["a"]), "question: "),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_a_wrong_argument_is_named(model, call, message):
    with pytest.raises(AptoolError) as error:
        call(model)

    assert str(error.value).startswith(message)
