"""Answers are ranked and scored."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from tiny import THINGS

from aptool import AptoolError

QUESTION = "where is the river with the window"
ANSWERS = [
    *("the garden near the letter is silver", "the river near the window is silver", "", "?!"),
    *(f"the {first} is near the {second}" for first in THINGS[:6] for second in THINGS[6:10]),
    *("the river near the window is silver", " ".join(THINGS)),
]


def test_a_ranking_has_the_scores_of_the_pairs(model):
    scores = model.score([(QUESTION, answer) for answer in ANSWERS])

    ranking = model.rank(QUESTION, ANSWERS)
    assert [index for index, _ in ranking] == np.argsort(-scores, kind="stable").tolist()
    ranked = [score for _, score in ranking]
    np.testing.assert_allclose(ranked, scores[[index for index, _ in ranking]], atol=1e-6)
    assert model.rank(QUESTION, ANSWERS, top_k=3) == ranking[:3]
    assert model.rank(QUESTION, []) == []
    assert (model.score([]).shape, model.score([]).dtype) == ((0,), np.float32)


@pytest.fixture
def four_cores():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("four_cores")
def test_eight_threads_get_the_scores_of_one_thread(model):
    questions = [f"where is the {thing} near the {ANSWERS[0]}" for thing in THINGS]

    def scores(question):
        return model.score([(question, answer) for answer in ANSWERS]).tolist()

    expected = {question: scores(question) for question in questions}
    start = threading.Barrier(8)

    def work(number):
        start.wait()
        turned = [*questions[number:], *questions[:number]]
        wrong = [question for question in turned if scores(question) != expected[question]]
        return wrong, torch.get_num_threads()

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(work, range(8)))
    with ThreadPoolExecutor(1) as later:
        of_a_new_thread = later.submit(torch.get_num_threads).result()

    assert results == [([], 4)] * 8
    assert (torch.get_num_threads(), of_a_new_thread) == (4, 4)


WRONG = [
    (lambda model: model.rank(QUESTION, "text"), "answers: 'text': expected a list of texts"),
    (lambda model: model.rank(QUESTION, ["a", 7]), "answers: item 1: 7: expected text (str)"),
    (lambda model: model.rank(QUESTION, {"a": "b"}), "answers: {'a': 'b'}: expected a list of texts"),
    (lambda model: model.rank(None, ["a"]), "question: None: expected text (str)"),
    (lambda model: model.rank(QUESTION, ANSWERS, top_k=0), "top_k: 0: expected an integer of at least 1"),
    (lambda model: model.rank(QUESTION, ANSWERS, top_k=2.5), "top_k: 2.5: expected an integer of at least 1"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_a_wrong_argument_is_named(model, call, message):
    with pytest.raises(AptoolError) as error:
        call(model)

    assert str(error.value).startswith(message)
