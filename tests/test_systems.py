"""The systems that pools can be scored with: a model and two baselines."""

import numpy as np
import pytest
from tiny import row, write_pools

from aptool.errors import UsageError
from aptool.formats.pools import list_units, read_pools
from aptool.models.checkpoint import load_model
from aptool.scoring.systems import Bm25System, ModelSystem, RandomSystem, pick_device


@pytest.fixture
def pools(tmp_path):
    def read(*rows):
        return read_pools(list_units([write_pools(tmp_path / "x.parquet", list(rows))])[0])

    return read


def test_random_scores_follow_from_seed_and_ids_alone(pools):
    one = pools(row("q1", "where", [("a1", "x"), ("a2", "y")]), row("q2"))
    # Other texts, another order, other neighbours.
    other = pools(row("q9"), row("q1", "who", [("a2", "z"), ("a3", "x"), ("a1", "x")]))

    first, second = RandomSystem(5).score(one), RandomSystem(5).score(other)

    assert [first[0], first[1]] == [second[4], second[2]]
    assert RandomSystem(6).score(one).tolist() != first.tolist()
    assert RandomSystem(6).fingerprint != RandomSystem(5).fingerprint


def test_random_scores_are_even(pools):
    many = pools(*(row(f"q{n}", candidates=[(f"a{k}", "x") for k in range(20)]) for n in range(300)))

    scores = RandomSystem(0).score(many)

    assert scores.dtype == np.float32
    assert len(set(scores.tolist())) > 5900
    # 6,000 draws in ten drawers: chi-square with 9 degrees of freedom.
    counts = np.histogram(scores, bins=10, range=(0, 1))[0]
    assert ((counts - 600) ** 2 / 600).sum() < 9 + 5 * 18**0.5


def test_bm25_by_hand(pools):
    # N = 3 answers of 2, 1 and 3 words, 2 on average. "river" stands in one of them, "the" in two.
    asked = pools(
        row("q1", "the river", [("a1", "the river"), ("a2", "bridge"), ("a3", "the old bridge")]),
        row("q2", "?!", [("a3", "the old bridge")]),
    )
    rare, common = np.log(1 + 2.5 / 1.5), np.log(1 + 1.5 / 2.5)
    norm = {length: 1 + 1.2 * (1 - 0.75 + 0.75 * length / 2) for length in (2, 3)}

    scores = Bm25System(asked.answers.to_pylist()).score(asked)

    expected = [(rare + common) / norm[2], 0, common / norm[3], 0]
    assert scores.tolist() == pytest.approx(expected, abs=1e-6)


def test_bm25_counts_over_all_answers_given(pools):
    asked = pools(row("q1", "river", [("a1", "river bank"), ("a2", "old bridge")]))
    corpus = ["river bank", "old bridge", *(f"river bank {n}" for n in range(5))]

    alone, among = Bm25System(corpus[:2]), Bm25System(corpus)

    assert alone.fingerprint != among.fingerprint
    assert among.score(asked)[0] < alone.score(asked)[0]


def test_a_model_encodes_pools_as_it_was_trained(pools, model_folder):
    system = ModelSystem(load_model(model_folder))
    limit = system.max_answer_tokens
    text = "river " * (limit - 1)
    asked = pools(
        row(
            "q1",
            "where is the river",
            [("a1", text + "kitchen"), ("a2", text + "kitchen engine"), ("a3", "RIVER")],
        ),
        row("q2", "WHERE is the River", [("a3", "river")]),
    )

    texts = system.prepare(asked)
    scores = system.score(texts)

    # What is beyond the limit cannot be seen, and case has no meaning.
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)
    assert scores[2] == pytest.approx(scores[3], abs=1e-6)
    assert system.truncated(texts) == 1
    assert system.name == "ap-cnn"


def test_devices():
    assert pick_device("cpu").type == "cpu"
    assert pick_device("auto").type in ("cpu", "cuda")
    with pytest.raises(UsageError, match=r"--device 'cuda:99': .*: expected auto, cpu or a GPU such as cuda"):
        pick_device("cuda:99")
