"""The systems that pools can be scored with: a model and two baselines."""

import itertools

import numpy as np
import pytest
import torch
from tiny import model_system, row, write_pools

from aptool.data.pools import list_units, read_answers, read_pools, write_answers
from aptool.models.model import load_model
from aptool.scoring.model_system import ModelScorer, ModelSystem, pick_precision, same_rankings
from aptool.scoring.ranker_scorer import RankerScorer
from aptool.scoring.systems import Bm25, RandomScores, baseline
from aptool.text.bm25 import WordCounts
from aptool.text.tokenizer import WordTokenizer


@pytest.fixture
def pools(tmp_path):
    def read(*rows):
        return read_pools(list_units([write_pools(tmp_path / "x.parquet", list(rows))])[0])

    return read


def test_random_scores_depend_only_on_seed_and_ids(pools):
    pools_once = pools(row("q1", "where", [("a1", "x"), ("a2", "y")]), row("q2"))
    # Other texts, another order, other neighbours.
    other = pools(row("q9"), row("q1", "who", [("a2", "z"), ("a3", "x"), ("a1", "x")]))

    first, second = RandomScores(5).open().score(pools_once), RandomScores(5).open().score(other)

    assert [first[0], first[1]] == [second[4], second[2]]
    assert RandomScores(6).open().score(pools_once).tolist() != first.tolist()
    assert RandomScores(6).open().fingerprint != RandomScores(5).open().fingerprint


def test_baselines_by_name():
    assert (baseline("bm25"), baseline("random", seed=3)) == (Bm25(), RandomScores(3))


def test_everything_that_changes_scores_is_in_the_fingerprint(model_folder):
    model = load_model(model_folder)
    every = itertools.product(
        (model, model._replace(fingerprint="another")), ("cpu", "cuda"), ("fp32", "bf16"), (None, 512)
    )

    systems = [
        ModelScorer(ModelSystem("m", tokens_per_batch=tokens), model, device, precision)
        for model, device, precision, tokens in every
    ]

    assert len({system.fingerprint for system in systems}) == 16


def bm25(corpus):
    return Bm25(counts=WordCounts.of(corpus)).open()


def test_bm25_by_hand(pools):
    # N = 3 answers of 2, 1 and 3 words, 2 on average. "river" is in one of them, "the" in two.
    read = pools(
        row("q1", "the river", [("a1", "the river"), ("a2", "bridge"), ("a3", "the old bridge")]),
        row("q2", "?!", [("a3", "the old bridge")]),
    )
    rare, common = np.log(1 + 2.5 / 1.5), np.log(1 + 1.5 / 2.5)
    norm = {length: 1 + 1.2 * (1 - 0.75 + 0.75 * length / 2) for length in (2, 3)}

    scores = bm25(read.answers.to_pylist()).score(read)

    expected = [(rare + common) / norm[2], 0, common / norm[3], 0]
    assert scores.tolist() == pytest.approx(expected, abs=1e-6)


def test_a_model_tokenizes_pools_as_it_was_trained(pools, model_folder):
    system = model_system(load_model(model_folder)).open()
    limit = system.max_answer_tokens
    text = "river " * (limit - 1)
    read = pools(
        row(
            "q1",
            "where is the river",
            [("a1", text + "kitchen"), ("a2", text + "kitchen engine"), ("a3", "RIVER")],
        ),
        row("q2", "WHERE is the River", [("a3", "river")]),
    )

    work = system.prepare(read)
    scores = work.score()

    # What is beyond the limit cannot be seen, and case has no meaning.
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)
    assert scores[2] == pytest.approx(scores[3], abs=1e-6)
    assert work.truncated == 1
    assert system.tag == "ap-cnn"


def test_shared_answers_are_tokenized_and_encoded_once_and_score_alike(tmp_path, model_folder, monkeypatch):
    monkeypatch.setattr("aptool.data.pools.UNIT_PAIRS", 151)  # a unit per pool
    texts = {f"a{n}": "river " * n + "kitchen engine" for n in range(1, 260)}
    write_answers(tmp_path / "answers.parquet", texts.items())
    shared = read_answers(tmp_path / "answers.parquet")
    pools = [[f"a{n}" for n in range(first, first + 150)] for first in (1, 60, 110)]
    for name, has_texts in (("shared", False), ("own", True)):
        groups = []
        for i, pool in enumerate(pools):
            candidates = [(answer, texts[answer] if has_texts else None) for answer in pool]
            groups.append([row(f"q{i}", "where is it", [*candidates, ("x", "river")])])
        write_pools(tmp_path / f"{name}.parquet", *groups)
    monkeypatch.setattr("aptool.models.encoders.MAX_TABLE_BYTES", 0)  # states of a table are not cached
    together, alone = (model_system(load_model(model_folder)).open() for _ in range(2))
    seen, encoded = [], []
    encode, encode_answers = WordTokenizer.encode, RankerScorer._encode_answers
    monkeypatch.setattr(
        RankerScorer,
        "_encode_answers",
        lambda self, batch: encoded.extend(batch.lengths) or encode_answers(self, batch),
    )
    monkeypatch.setattr(
        WordTokenizer,
        "encode",
        lambda self, texts, limit=None, role="answer": seen.extend(texts) or encode(self, texts, limit),
    )

    for shared_unit, unit in zip(
        list_units([tmp_path / "shared.parquet"]), list_units([tmp_path / "own.parquet"]), strict=True
    ):
        shared_work = together.prepare(read_pools(shared_unit, shared))
        scores = shared_work.score()
        answers_seen, answers_encoded = len(seen), len(encoded)
        work = alone.prepare(read_pools(unit))
        np.testing.assert_allclose(scores, work.score(), atol=1e-6)
        del seen[answers_seen:], encoded[answers_encoded:]
        assert shared_work.truncated == work.truncated

    # 259 shared texts, and in each of three units a question and an answer of its own.
    assert (len(seen), len(encoded)) == (259 + 3 + 3, 259 + 3)


def test_another_answers_file_with_the_same_rows_has_other_scores(tmp_path, model_folder):
    system = model_system(load_model(model_folder)).open()
    path = write_pools(
        tmp_path / "x.parquet", [row("q1", "where is the river", [("a1", None), ("a2", None)])]
    )
    (unit,) = list_units([path])
    scores = []
    for name, texts in (("one", ["river", "kitchen"]), ("two", ["kitchen", "river"])):
        write_answers(tmp_path / f"{name}.parquet", zip(["a1", "a2"], texts, strict=True))
        pools = read_pools(unit, read_answers(tmp_path / f"{name}.parquet"))
        scores.append(system.prepare(pools).score())

    assert scores[0].tolist() == scores[1][::-1].tolist()
    assert scores[0][0] != scores[0][1]


def test_bf16_is_used_only_if_no_ranking_changes(pools, model_folder):
    model = load_model(model_folder)
    device = torch.device("cpu")
    # Texts far apart, and texts whose scores differ by less than eight bits tell.
    far = pools(row("q1", "where is the river", [("a1", "the river is winter"), ("a2", "engine")]))
    near = pools(
        row("q1", "where is the river", [(f"a{n}", "the river " * 20 + "near " * n) for n in range(60)])
    )

    assert same_rankings(model, device, far)
    assert not same_rankings(model, device, near)
    assert pick_precision("auto", model, device, ()) == "fp32"
    assert pick_precision("bf16", model, device, ()) == "bf16"
