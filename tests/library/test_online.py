"""Encoded answers are ranked and scored, by several threads and by copies of a model."""

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


def test_encoded_answers_have_the_scores_and_the_ranking_of_their_texts(any_model):
    encoded = any_model.encode(ANSWERS)

    scores = any_model.score(QUESTION, encoded)

    pairs = [(QUESTION, answer) for answer in ANSWERS]
    np.testing.assert_allclose(scores, any_model.score(pairs), atol=1e-6)
    np.testing.assert_allclose(scores, any_model.score(QUESTION, ANSWERS), atol=1e-6)
    ranking = any_model.rank(QUESTION, encoded)
    assert [index for index, _ in ranking] == np.argsort(-scores, kind="stable").tolist()
    assert [score for _, score in ranking] == scores[[index for index, _ in ranking]].tolist()


def test_a_selection_of_encoded_answers_is_scored_alone(model):
    encoded = model.encode(ANSWERS)
    every = model.score(QUESTION, encoded)
    mask = np.arange(len(ANSWERS)) % 2 == 0

    for rows in (slice(3, 7), [5, 0, 5], np.array([-1, 2]), mask, slice(None, None, -1)):
        some = encoded[rows]

        assert some.texts == np.array(ANSWERS, dtype=object)[rows].tolist()
        np.testing.assert_allclose(model.score(QUESTION, some), every[rows], atol=1e-6)
    assert encoded[4].texts == ANSWERS[4:5]
    assert encoded[2:9][1:3].texts == ANSWERS[3:5]


def test_equal_texts_are_encoded_once(model):
    assert model.encode(["the river"] * 50).nbytes == model.encode(["the river"]).nbytes
    assert len(model.encode(["the river"] * 50)) == 50


def test_truncated_answers_are_counted_once_per_text(model, caplog):
    model.encode([*ANSWERS, "river " * 1000, "river " * 1000, "hill " * 1000])

    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert f"2 of {len(set(ANSWERS)) + 2} distinct texts truncated" in caplog.text


def test_top_k_limits_the_ranking(model):
    encoded = model.encode(ANSWERS)

    assert model.rank(QUESTION, encoded, top_k=3) == model.rank(QUESTION, encoded)[:3]
    assert model.rank(QUESTION, ANSWERS[:2], top_k=10) == model.rank(QUESTION, ANSWERS[:2])


def test_nothing_to_rank_is_an_empty_ranking(any_model):
    model = any_model
    assert model.rank(QUESTION, []) == []
    assert model.rank(QUESTION, model.encode([])) == []
    assert model.rank(QUESTION, model.encode(ANSWERS)[:0]) == []
    for scores in (model.score([]), model.score(QUESTION, []), model.score(QUESTION, model.encode([]))):
        assert (scores.shape, scores.dtype) == ((0,), np.float32)


def test_answers_of_another_model_are_refused(model, tmp_path):
    second = from_hub(tmp_path / "hub", "sentence-transformers")

    with pytest.raises(AptoolError) as error:
        model.rank(QUESTION, second.encode(ANSWERS))

    assert str(error.value).startswith("answers: encoded by bert, fingerprint ")
    assert "expected answers encoded by ap-cnn, fingerprint " in str(error.value)
    assert "\n" not in str(error.value)


WRONG = [
    (lambda model: model.encode("text"), "texts: 'text': expected a list of texts"),
    (lambda model: model.encode(["a", 7]), "texts: item 1: 7: expected text (str)"),
    (lambda model: model.rank(QUESTION, ANSWERS, top_k=0), "top_k: 0: expected an integer of at least 1"),
    (lambda model: model.rank(QUESTION, ANSWERS, top_k=2.5), "top_k: 2.5: expected an integer of at least 1"),
    (lambda model: model.score([(QUESTION, "a")], ["a"]), "question: "),
    (lambda model: model.encode(ANSWERS)[[0.5]], "rows: [0.5]: expected a row, a list of rows or a slice"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_a_wrong_argument_is_named(model, call, message):
    with pytest.raises(AptoolError) as error:
        call(model)

    assert str(error.value).startswith(message)


def test_a_row_out_of_range_is_an_index_error(model):
    with pytest.raises(IndexError):
        model.encode(ANSWERS)[len(ANSWERS)]


def test_copies_score_the_same_without_the_folder(any_model, tmp_path):
    expected = any_model.score(QUESTION, ANSWERS)
    saved = pickle.dumps(any_model)
    encoded = pickle.dumps(any_model.encode(ANSWERS))
    folder = any_model.folder
    folder.rename(folder.with_name("elsewhere"))

    for other in (copy.copy(any_model), copy.deepcopy(any_model), pickle.loads(saved)):
        assert other.score(QUESTION, ANSWERS).tolist() == expected.tolist()
        np.testing.assert_allclose(other.score(QUESTION, pickle.loads(encoded)), expected, atol=1e-6)
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
    encoded = model.encode(ANSWERS * 40)

    def scores(question):
        return model.score(question, encoded).tolist(), model.score(question, ANSWERS).tolist()

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
