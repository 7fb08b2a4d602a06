"""Answers are ranked and scored, by several threads and by copies of a model."""

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import forked
import numpy as np
import pytest
import torch
from networks import REASON, colbert, cross_encoder, write_network
from tiny import THINGS

import aptool as library
from aptool import AptoolError

QUESTION = "where is the river with the window"
ANSWERS = [
    *("the garden near the letter is silver", "the river near the window is silver", "", "?!"),
    *(f"the {first} is near the {second}" for first in THINGS[:6] for second in THINGS[6:10]),
    *("the river near the window is silver", " ".join(THINGS)),
]


def from_hub(folder, kind):
    """A tiny model in the layout of another library."""
    pytest.importorskip("transformers", reason=REASON)
    network = write_network(folder / "bert")
    if kind == "cross-encoder":
        cross_encoder(network, folder / kind, 1)
    elif kind == "colbert":
        colbert(network, folder / kind)
    elif kind == "static":
        static = pytest.importorskip("model2vec", reason="the extra distill is not installed")
        from networks import piece_tokenizer

        tokenizer = piece_tokenizer()
        values = np.random.default_rng(0).normal(size=(tokenizer.get_vocab_size(), 8)).astype(np.float32)
        static.StaticModel(values, tokenizer).save_pretrained(folder / kind)
    return library.load(network if kind == "sentence-transformers" else folder / kind, device="cpu")


@pytest.fixture(params=["aptool", "sentence-transformers", "cross-encoder", "colbert", "static"])
def any_model(request, tmp_path, model):
    return model if request.param == "aptool" else from_hub(tmp_path / "hub", request.param)


def test_a_ranking_has_the_scores_of_the_pairs(any_model):
    scores = any_model.score(QUESTION, ANSWERS)

    pairs = [(QUESTION, answer) for answer in ANSWERS]
    np.testing.assert_allclose(scores, any_model.score(pairs), atol=1e-6)
    ranking = any_model.rank(QUESTION, ANSWERS)
    assert [index for index, _ in ranking] == np.argsort(-scores, kind="stable").tolist()
    assert [score for _, score in ranking] == scores[[index for index, _ in ranking]].tolist()


def test_top_k_limits_the_ranking(model):
    assert model.rank(QUESTION, ANSWERS, top_k=3) == model.rank(QUESTION, ANSWERS)[:3]
    assert model.rank(QUESTION, ANSWERS[:2], top_k=10) == model.rank(QUESTION, ANSWERS[:2])


def test_nothing_to_rank_is_an_empty_ranking(any_model):
    assert any_model.rank(QUESTION, []) == []
    for scores in (any_model.score([]), any_model.score(QUESTION, [])):
        assert (scores.shape, scores.dtype) == ((0,), np.float32)


WRONG = [
    (lambda model: model.rank(QUESTION, "text"), "answers: 'text': expected a list of texts"),
    (lambda model: model.rank(QUESTION, ["a", 7]), "answers: item 1: 7: expected text (str)"),
    (lambda model: model.rank(QUESTION, ANSWERS, top_k=0), "top_k: 0: expected an integer of at least 1"),
    (lambda model: model.rank(QUESTION, ANSWERS, top_k=2.5), "top_k: 2.5: expected an integer of at least 1"),
    (lambda model: model.score([(QUESTION, "a")], ["a"]), "question: "),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_a_wrong_argument_is_named(model, call, message):
    with pytest.raises(AptoolError) as error:
        call(model)

    assert str(error.value).startswith(message)


def test_copies_score_the_same_without_the_folder(any_model, tmp_path):
    expected = any_model.score(QUESTION, ANSWERS)
    saved = pickle.dumps(any_model)
    folder = any_model.folder
    folder.rename(folder.with_name("elsewhere"))

    for other in (copy.copy(any_model), copy.deepcopy(any_model), pickle.loads(saved)):
        assert other.score(QUESTION, ANSWERS).tolist() == expected.tolist()
    weights = [id(weight) for weight in any_model._loaded.ranker.parameters()]
    copied = [id(weight) for weight in copy.deepcopy(any_model)._loaded.ranker.parameters()]
    assert not set(weights) & set(copied)


def score_pickled(path, question, answers):
    return pickle.loads(path.read_bytes()).score(question, answers).tolist()


def test_a_pickled_network_scores_in_a_new_process(tmp_path):
    model = from_hub(tmp_path / "hub", "sentence-transformers")
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(model))

    ended = forked.run(tmp_path / "process", score_pickled, tmp_path / "model.pkl", QUESTION, ANSWERS[:2])

    assert ended.out == str(model.score(QUESTION, ANSWERS[:2]).tolist()), ended.err


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
        return model.score(question, ANSWERS).tolist()

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
