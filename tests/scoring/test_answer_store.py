"""Stored answers: the encoded bytes of this text and this model, or an error."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from networks import corpus, initialized, write_network
from tiny import OVER_STATES, SYSTEMS, pooled, ranker, tokens

from aptool.config import load_recipe
from aptool.errors import InputError
from aptool.formats.answer_part import AnswerPart, read_part
from aptool.models.build import build_ranker
from aptool.models.ragged import Ragged
from aptool.scoring.answer_store import PRECISIONS, AnswerIndex, AnswerStore
from aptool.scoring.encoded import text_keys
from aptool.scoring.ranker_scorer import RankerScorer
from aptool.scoring.stored_answers import StoredAnswers

# Further systems over word vectors, and systems over a network, which need an extra.
MORE_SYSTEMS = {
    "gesd": ("ap-cnn", "similarity.type=gesd"),
    "one-way": ("ap-cnn", "pooling.type=one_way"),
}
NETWORKS = ("ap-minilm", "maxsim-minilm", "mean-minilm")


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return write_network(tmp_path_factory.mktemp("network"))


def system_of(name, request):
    if name in NETWORKS:
        return initialized(name, request.getfixturevalue("network"))[0]
    if name in SYSTEMS:
        return ranker(name, words=40, dim=12, size=16)
    if name in OVER_STATES:
        return pooled(name, words=40, dim=12, size=16)
    torch.manual_seed(1)
    base, option = MORE_SYSTEMS[name]
    recipe = load_recipe(base, (option, "encoder.features=16", "vectors.dim=12"))
    return build_ranker(recipe, 40, 12).eval()


def new_store(folder, precision="fp32"):
    folder.mkdir(exist_ok=True)
    store = AnswerStore(folder, precision, "f" * 16)
    store.refresh()
    return store


QUESTIONS, ANSWERS = tokens(*corpus(6, 1, 12)), tokens(*corpus(40, 2, 20))
PAIRS = np.repeat(np.arange(6), 40), np.tile(np.arange(40), 6)


def add(store, system, rows):
    """Encode some of the answers into a store."""
    stored, scorer = StoredAnswers(store), RankerScorer(system)
    for batch, encoded in scorer.encode(ANSWERS.take(rows)):
        some = ANSWERS.take(rows[batch])
        stored.put(text_keys(some), some, encoded, scorer.row_multiple)
    stored.flush()


@pytest.mark.parametrize("tokens_per_batch", [64, 1 << 20])
@pytest.mark.parametrize("name", [*SYSTEMS, *OVER_STATES, *MORE_SYSTEMS, *NETWORKS])
def test_stored_answers_change_no_bit_of_a_score(name, tokens_per_batch, request, tmp_path):
    system = system_of(name, request)
    expected = RankerScorer(system, tokens_per_batch=tokens_per_batch).score(QUESTIONS, ANSWERS, *PAIRS)

    # The answers are stored in several parts, in two sessions.
    for rows in (np.arange(0, 14), np.arange(14, 40)):
        add(new_store(tmp_path / "s"), system, rows)
    scorer = RankerScorer(
        system, stored=StoredAnswers(new_store(tmp_path / "s")), tokens_per_batch=tokens_per_batch
    )
    assert scorer.score(QUESTIONS, ANSWERS, *PAIRS).tobytes() == expected.tobytes()


@pytest.mark.parametrize(("precision", "most"), [("fp16", 1e-3), ("int8", 2e-2)])
def test_rounded_answers_score_nearly_alike(precision, most, tmp_path):
    system = ranker("ap-cnn", words=40, dim=12, size=16)
    exact = RankerScorer(system).score(QUESTIONS, ANSWERS, *PAIRS)
    add(new_store(tmp_path / "s", precision), system, np.arange(40))

    read = RankerScorer(system, stored=StoredAnswers(new_store(tmp_path / "s", precision)))

    assert 0 < np.abs(read.score(QUESTIONS, ANSWERS, *PAIRS) - exact).max() < most


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        ("fp32", [[1.0, -2.5, 0.1], [0.0, 0.0, 0.0], [1e6, 1.0, -1e-6]]),
        # 0.1 is 1638 / 16384 in 11 bits; 65504 is the largest number of fp16.
        ("fp16", [[1.0, -2.5, 1638 / 16384], [0.0, 0.0, 0.0], [65504.0, 1.0, -17 * 2.0**-24]]),
        # Steps of 2.5 / 127: 1.0 is 51 of them and 0.1 is 5.
        ("int8", [[51 * 2.5 / 127, -2.5, 5 * 2.5 / 127], [0.0, 0.0, 0.0], [1e6, 0.0, 0.0]]),
    ],
)
def test_numbers_of_each_precision(precision, expected, tmp_path):
    stored = StoredAnswers(new_store(tmp_path / "s", precision))
    text = tokens([3, 4, 5])
    rows = Ragged.of_sizes(torch.tensor([[1.0, -2.5, 0.1], [0.0] * 3, [1e6, 1.0, -1e-6]]), np.array([3]))
    stored.put(text_keys(text), text, rows, 1)
    stored.flush()

    read = StoredAnswers(new_store(tmp_path / "s", precision)).encoded(text, 1, torch.device("cpu"))

    np.testing.assert_allclose(read.values.numpy(), expected, rtol=1e-6, atol=0)


def test_size_of_a_part(tmp_path):
    # 384 numbers: 768 bytes in fp16, and at most 32 more per answer.
    stored = StoredAnswers(new_store(tmp_path / "s", "fp16"))
    texts = tokens(*([number] * 100 for number in range(50)))
    stored.put(text_keys(texts), texts, Ragged.of_sizes(torch.ones(5000, 384), texts.lengths), 1)
    stored.flush()

    (file,) = (tmp_path / "s").iterdir()
    assert file.stat().st_size < 5000 * 768 + 50 * 32 + 1000


@given(
    stored=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12, unique=True),
    queried=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=12),
    cut=st.integers(0, 12),
)
def test_a_lookup_compares_the_complete_key(stored, queried, cut):
    parts = [
        AnswerPart(
            None,
            np.array(keys, dtype=np.uint64).reshape(-1, 2),
            np.array([10 * a + b for a, b in keys], dtype=np.int64),
            np.zeros(len(keys), dtype=np.uint64),
            np.zeros(len(keys), dtype=np.int64),
            8,
        )
        for keys in (stored[:cut], stored[cut:])
    ]
    index = AnswerIndex(parts)

    actual = index.find(np.array(queried, dtype=np.uint64).reshape(-1, 2))

    assert [entry >= 0 for entry in actual] == [key in stored for key in queried]
    for entry, (a, b) in zip(actual, queried, strict=True):
        assert entry < 0 or index._counts[entry] == 10 * a + b


@pytest.mark.parametrize("buffers", [2, 1024])
@pytest.mark.parametrize("multiple", [1, 4])
@pytest.mark.parametrize("gap", [0, 100, 1 << 20])
def test_read_returns_the_rows_of_each_answer(gap, multiple, buffers, monkeypatch, tmp_path):
    from aptool.formats import local_store
    from aptool.scoring import answer_store

    monkeypatch.setattr(answer_store, "_GAP_ON_DISK", gap)
    monkeypatch.setattr(answer_store, "_MOST_BYTES", 4000)
    monkeypatch.setattr(local_store, "_BUFFERS", buffers)
    generator = np.random.default_rng(0)
    store, rows = new_store(tmp_path / "s"), {}
    for _ in range(3):
        counts = generator.integers(1, 9, size=30)
        keys = generator.integers(0, 1 << 60, size=(30, 2)).astype(np.uint64)
        values = generator.integers(0, 256, size=(counts.sum(), 12)).astype(np.uint8)
        store.add(keys, counts, values)
        rows |= zip(map(bytes, keys), np.split(values, np.cumsum(counts)[:-1]), strict=True)
    queried = generator.choice(90, 60)  # with repetitions
    keys = np.frombuffer(b"".join(rows), np.uint64).reshape(-1, 2)[queried]

    actual = store.index.read(store.index.find(keys), multiple)

    ends = np.cumsum(actual.counts)
    assert len(actual.rows) == ends[-1]
    for key, answer_rows in zip(keys, np.split(actual.rows, ends[:-1]), strict=True):
        expected = rows[bytes(key)]
        assert len(answer_rows) == -(-len(expected) // multiple) * multiple
        np.testing.assert_array_equal(answer_rows[: len(expected)], expected)
        np.testing.assert_array_equal(
            answer_rows[len(expected) :], expected[-1:].repeat(len(answer_rows) - len(expected), 0)
        )


def test_any_changed_bit_is_detected(tmp_path):
    store = new_store(tmp_path / "s")
    texts = tokens([1, 2, 3], [4, 5])
    rows = Ragged.of_sizes(torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), texts.lengths)
    stored = StoredAnswers(store)
    stored.put(text_keys(texts), texts, rows, 1)
    stored.flush()
    (file,) = (tmp_path / "s").iterdir()
    whole = file.read_bytes()

    for bit in range(0, 8 * len(whole), 3):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        file.write_bytes(data)
        try:
            again = new_store(tmp_path / "s")
            actual = StoredAnswers(again).encoded(texts, 1, torch.device("cpu"))
        except InputError:
            continue
        # The bit is in white space or in a name of another tool in the header.
        np.testing.assert_array_equal(actual.values.numpy(), rows.values.numpy())


@pytest.mark.parametrize("remaining", [0, 5, 100, -1])
def test_a_truncated_part_is_an_error_and_encoded_again(remaining, tmp_path):
    store = new_store(tmp_path / "s")
    texts = tokens([1, 2, 3], [4, 5])
    stored = StoredAnswers(store)
    stored.put(text_keys(texts), texts, Ragged.of_sizes(torch.ones(5, 3), texts.lengths), 1)
    stored.flush()
    (file,) = (tmp_path / "s").iterdir()
    file.write_bytes(file.read_bytes()[:remaining])

    with pytest.raises(InputError, match=r"truncated|not such a file"):
        new_store(tmp_path / "s")
    with pytest.raises(InputError, match="truncated"):  # also after the store was opened
        StoredAnswers(store).encoded(texts, 1, torch.device("cpu"))
    store = AnswerStore(tmp_path / "s", "fp32", "f" * 16)
    store.refresh(repair=True)
    assert len(store.index) == 0
    assert not file.exists()


def test_a_part_of_another_store_is_refused(tmp_path):
    texts = tokens([1])
    for precision in PRECISIONS[:2]:
        stored = StoredAnswers(new_store(tmp_path / precision, precision))
        stored.put(text_keys(texts), texts, Ragged.of_sizes(torch.ones(1, 4), texts.lengths), 1)
        stored.flush()
    (file,) = (tmp_path / "fp16").iterdir()

    with pytest.raises(InputError, match="another answer store"):
        read_part(file, f"{'f' * 16} fp32")


def test_equal_texts_are_stored_once(tmp_path):
    store = new_store(tmp_path / "s")
    stored = StoredAnswers(store)
    texts = tokens([1, 2], [3], [1, 2], [1], [2])

    rows, keys = stored.new(texts)

    assert rows.tolist() == [0, 1, 3, 4]
    stored.put(text_keys(texts), texts, Ragged.of_sizes(torch.ones(7, 2), texts.lengths), 1)
    stored.flush()
    assert len(store.index) == len(keys) == 4
    assert len(stored.new(texts)[0]) == 0
