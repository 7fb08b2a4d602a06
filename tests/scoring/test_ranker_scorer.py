"""The scorer, which encodes each text once, against the definition, which scores pair by pair."""

from functools import cache
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_gpu import SimulatedGpu
from tiny import OVER_STATES, SYSTEMS, pooled, ranker, tokens

from aptool.errors import AptoolError
from aptool.models.encoders import CnnEncoder, Encoder
from aptool.models.ragged import Ragged
from aptool.scoring import kernels
from aptool.scoring.kernels import AttentiveKernel
from aptool.scoring.ranker_scorer import RankerScorer, blocks_of, even_window
from aptool.text.tokenizer import WordTokenizer

WORDS = [f"w{n}" for n in range(12)]
LIMIT = 15
TOKENIZER = WordTokenizer.from_words(WORDS)
system_of = cache(lambda name: ranker(name, words=len(TOKENIZER), dim=6, size=8))

# Ordinary texts, one word, no word at all, words that are not known, punctuation, and as long as texts get.
texts = st.one_of(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join),
    st.sampled_from([*WORDS[:3], "", "   ", "zebra", "zebra w1 unicorn", "?!", "w1"]),
    st.lists(st.sampled_from(WORDS), min_size=LIMIT, max_size=2 * LIMIT).map(" ".join),
)


@st.composite
def batches(draw):
    questions = draw(st.lists(texts, min_size=1, max_size=6))
    answers = draw(st.lists(texts, min_size=1, max_size=8))
    pair = st.tuples(st.integers(0, len(questions) - 1), st.integers(0, len(answers) - 1))
    return questions, answers, np.array(draw(st.lists(pair, min_size=1, max_size=25)))


@torch.inference_mode()
def defined(system, questions, answers, pairs):
    """Return the scores of the definition, which pads the texts of all pairs."""
    return system(Ragged.of(questions.take(pairs[:, 0])), Ragged.of(answers.take(pairs[:, 1]))).numpy()


@pytest.mark.parametrize("name", SYSTEMS)
@settings(max_examples=40)
@given(
    batch=batches(),
    tokens=st.sampled_from([1, 20, 1 << 20]),
    shared=st.sampled_from([0, 2, 10**6]),
    block=st.sampled_from([1, 3, 1024]),
    sharpness=st.sampled_from([1.0, 2.0, 5.0]),
)
def test_equal_to_the_definition_on_any_texts(name, batch, tokens, shared, block, sharpness):
    questions, answers, pairs = batch
    questions, answers = TOKENIZER.encode(questions, LIMIT), TOKENIZER.encode(answers, LIMIT)
    system = system_of(name)
    system.pooling.sharpness = sharpness
    arguments = questions, answers, pairs[:, 0], pairs[:, 1]
    blocks = {"SHARED": shared, "PAIRS_PER_BLOCK": block, "ROWS_OF_QUESTIONS": block}
    with mock.patch.multiple(kernels, multiplies_bf16=lambda: True, **blocks):
        scores = RankerScorer(system, tokens_per_batch=tokens).score(*arguments)
        rounded = RankerScorer(system, precision="bf16", tokens_per_batch=tokens).score(*arguments)
    expected = defined(system, questions, answers, pairs)
    with torch.inference_mode():  # all pairs, as training compares them
        every = system.score_matrix(*(system.encode(Ragged.of(side)) for side in (questions, answers)))
    np.testing.assert_allclose(every.numpy()[pairs[:, 0], pairs[:, 1]], expected, atol=1e-5, rtol=0)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, expected, atol=1e-5, rtol=0)
    np.testing.assert_allclose(rounded, expected, atol=2e-2, rtol=0)
    above = expected[:, None] - expected > 1e-6
    assert (scores[:, None] > scores)[above].all()  # the same ranking


@pytest.mark.parametrize("pooling", OVER_STATES)
@settings(max_examples=15, deadline=None)
@given(
    batch=batches(),
    elements=st.sampled_from([1, 200, 1 << 20]),
    tokens=st.sampled_from([20, 1 << 20]),
    sharpness=st.sampled_from([1.0, 2.0, 5.0]),
)
def test_scores_of_a_gpu_are_equal_to_the_definition(pooling, batch, elements, tokens, sharpness):
    questions, answers, pairs = batch
    questions, answers = TOKENIZER.encode(questions, LIMIT), TOKENIZER.encode(answers, LIMIT)
    system = pooled(pooling, words=len(TOKENIZER), dim=6, size=8)
    system.pooling.sharpness = sharpness
    expected = defined(system, questions, answers, pairs)
    with SimulatedGpu(), mock.patch.object(kernels, "ELEMENTS", elements):
        scorer = RankerScorer(system.to("cuda"), device="cuda", tokens_per_batch=tokens)
        scores = scorer.score(questions, answers, pairs[:, 0], pairs[:, 1])

    np.testing.assert_allclose(scores, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_contents_of_the_cache_change_no_bit(name):
    # Ten calls over shifting halves of the answers, with room for all of them, for some, and for none.
    system = ranker(name, words=300, dim=50, size=64)
    questions, answers = corpus(6, 60)
    generator = np.random.default_rng(2)
    calls = [generator.choice(60, 30, replace=False) for _ in range(10)]
    results = []
    for capacity in (1 << 24, 1 << 17, 0):
        scorer = RankerScorer(system, tokens_per_batch=128, cache_bytes=capacity)
        results.append(
            b"".join(
                scorer.score(questions, answers.take(rows), *all_pairs(6, 30), cache_keys=rows).tobytes()
                for rows in calls
            )
        )

    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize(("name", "encoded_again"), [("ap-cnn", 30), ("qa-cnn", 0), ("ap-bilstm", 0)])
def test_states_of_a_table_are_looked_up_again_and_other_answers_are_cached(name, encoded_again, monkeypatch):
    questions, answers = corpus(2, 30)
    scorer = RankerScorer(ranker(name, words=300, dim=12, size=16), cache_bytes=1 << 24)
    scorer.score(questions, answers, *all_pairs(2, 30), cache_keys=np.arange(30))
    encoded = []
    encode = scorer._encode_answers
    monkeypatch.setattr(scorer, "_encode_answers", lambda some: (encoded.append(len(some)), encode(some))[1])

    scorer.score(questions, answers, *all_pairs(2, 30), cache_keys=np.arange(30))

    assert sum(encoded) == encoded_again


def corpus(questions, answers, seed=0, longest=40):
    generator = np.random.default_rng(seed)
    made = [
        [generator.integers(1, 300, size=generator.integers(1, longest)).tolist() for _ in range(count)]
        for count in (questions, answers)
    ]
    return tokens(*made[0]), tokens(*made[1])


def all_pairs(questions, answers):
    return np.repeat(np.arange(questions), answers), np.tile(np.arange(answers), questions)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", SYSTEMS)
def test_scores_do_not_depend_on_the_number_of_threads(name, threads):
    system = ranker(name, words=300, dim=50, size=64)
    questions, answers = corpus(8, 40)
    pair_question, pair_answer = all_pairs(8, 40)
    scores = []
    for number in (1, 2):
        threads(number)
        scores.append(RankerScorer(system).score(questions, answers, pair_question, pair_answer))
        assert torch.get_num_threads() == number

    assert scores[0].tobytes() == scores[1].tobytes()


def encoded(system, measure, monkeypatch):
    """A list that gets the measure of each batch that the encoder of a system encodes."""
    values = []
    forward = type(system.encoder).forward
    monkeypatch.setattr(CnnEncoder, "inference_encoder", Encoder.inference_encoder)
    monkeypatch.setattr(
        type(system.encoder),
        "forward",
        lambda encoder, batch: values.append(measure(batch)) or forward(encoder, batch),
    )
    return values


def test_each_text_is_encoded_once(monkeypatch):
    system = ranker("ap-cnn", words=300, dim=12, size=16)
    seen = encoded(system, lambda batch: len(batch.offsets) - 1, monkeypatch)
    questions, answers = corpus(7, 50)

    # Every answer but the last, with every question.
    pair_question, pair_answer = all_pairs(7, 49)
    RankerScorer(system, tokens_per_batch=100).score(questions, answers, pair_question, pair_answer)

    assert sum(seen) == 7 + 49


def test_no_pair_has_no_score():
    questions, answers = corpus(2, 3)
    none = np.empty(0, dtype=np.int64)

    assert RankerScorer(ranker("ap-cnn", words=300)).score(questions, answers, none, none).tolist() == []


def test_no_more_states_at_one_time_than_the_budget(monkeypatch):
    system = ranker("ap-cnn", words=300, dim=12, size=16)
    sizes = encoded(system, lambda batch: len(batch.values), monkeypatch)
    questions, answers = corpus(3, 200)

    RankerScorer(system, tokens_per_batch=100).score(questions, answers, *all_pairs(3, 200))

    # A hundred states of 16 numbers of 4 bytes, and what the last text of a batch has beyond that.
    assert max(sizes) < 100 + 40


@pytest.mark.parametrize(
    "message",
    ["CUDA out of memory. Tried", "CUDA error: out of memory", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED"],
)
def test_a_full_device_is_one_line_from_the_first_allocation(message, monkeypatch):
    system = ranker("ap-cnn", words=300, dim=12, size=16)
    questions, answers = corpus(4, 10)
    pairs = all_pairs(4, 10)
    error = torch.OutOfMemoryError if message.startswith("CUDA out") else RuntimeError

    def full(*given, **named):
        raise error(message)

    with monkeypatch.context() as patch:
        patch.setattr(type(system), "inference_encoder", full)
        with pytest.raises(AptoolError, match=r"^out of memory in preparing the model; exp"):
            RankerScorer(system)
    scorer = RankerScorer(system)
    with monkeypatch.context() as patch:
        patch.setattr(AttentiveKernel, "prepare_questions", full)
        with pytest.raises(AptoolError, match=r"^out of memory in scoring; expected fewer"):
            scorer.score(questions, answers, *pairs)


def test_other_errors_are_not_taken_for_a_lack_of_memory(monkeypatch):
    def wrong(self, questions, answers, pairs):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(AttentiveKernel, "score_pairs", wrong)
    questions, answers = corpus(2, 3)
    with pytest.raises(RuntimeError, match="shapes"):
        RankerScorer(ranker("ap-cnn", words=300)).score(questions, answers, *all_pairs(2, 3))


@pytest.mark.parametrize(("total", "windows"), [(100, 1), (101, 2), (400, 4), (801, 8), (80_000, 8)])
def test_windows_on_a_cpu_are_of_equal_size(total, windows):
    # Two threads finish at the same time; a small last window would leave one of them without work.
    lengths = np.ones(total, dtype=np.int64)
    sizes = [len(block) for block in blocks_of(lengths, even_window(lengths, 100))]
    assert len(sizes) == windows
    assert max(sizes) - min(sizes) < windows
