"""Scores of long candidates from their passages: by hand, and equal to a run over passages cut by hand."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from networks import colbert, cross_encoder, initialized, network_recipe, write_network
from recorded import recorded
from tiny import THINGS, Opened, model_system, row, write_pools

import aptool as library
from aptool.errors import AptoolError, UsageError
from aptool.formats.claim import DRIVER, Claim
from aptool.formats.pools import list_units, read_answers, read_pools, write_answers
from aptool.models.checkpoints import load_any
from aptool.models.model import LoadedModel, load_model
from aptool.scoring import score as scoring
from aptool.scoring.model_system import ModelSystem
from aptool.scoring.parts import parts_folder, plan
from aptool.scoring.pipeline import prepare
from aptool.scoring.score import score_in_memory
from aptool.scoring.systems import RandomScorer, RandomScores
from aptool.text.passages import AGGREGATES, Passages, cut_pools, parse_passages
from aptool.text.tokenizer import WordTokenizer

WORDS, STRIDE = 5, 3
WORD_SYSTEMS = ("ap-cnn", "qa-cnn")
NETWORKS = ("ap-minilm", "maxsim-minilm", "mean-minilm")
CHECKPOINTS = ("cross-encoder", "colbert")


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return write_network(tmp_path_factory.mktemp("network"))


@pytest.fixture(scope="module")
def long_pools(tmp_path_factory):
    """Four row groups of two pools with five candidates of 1 to 23 words, some of them in several pools."""
    texts = [" ".join(THINGS[(7 * a + k) % 20] for k in range(1 + 3 * a)) for a in range(8)]
    rows = [
        row(
            f"q{q}",
            f"where is the {THINGS[q]} near the {THINGS[-q]}",
            [(f"a{(q + k) % 8}", texts[(q + k) % 8]) for k in range(5)],
        )
        for q in range(8)
    ]
    path = tmp_path_factory.mktemp("pools") / "long.pools.parquet"
    return write_pools(path, *(rows[start : start + 2] for start in range(0, 8, 2)))


def cut_by_hand(text):
    """The passages of five words every three words, from the words of a text."""
    words = text.split()
    if len(words) <= WORDS:
        return [text]
    starts = [start for start in range(0, len(words), STRIDE) if start + WORDS < len(words)]
    return [" ".join(words[start : start + WORDS]) for start in [*starts, len(words) - WORDS]]


def loaded(name, request, tmp_path):
    if name in WORD_SYSTEMS:
        return load_model(request.getfixturevalue("model_folder"))
    folder = request.getfixturevalue("network")
    if name in NETWORKS:
        ranker, tokenizer = initialized(name, folder)
        return LoadedModel(
            ranker,
            tokenizer,
            network_recipe(name, folder),
            {"model_type": "aptool", "recipe": {}, "versions": {}},
            name,
        )
    if name == "cross-encoder":
        cross_encoder(folder, tmp_path / name, 1)
    else:
        colbert(folder, tmp_path / name)
    return load_any(tmp_path / name, kind=name)


def scores_of(path, system):
    frame, _ = score_in_memory(list_units([path]), system)
    return frame.sort("question_id", "answer_id")


class Lengths(RandomScorer):
    """The score of a text is the number in it."""

    def score(self, inputs, progress):
        texts = inputs.answers.to_pylist()
        return np.array([float(texts[answer].split()[0]) for answer in inputs.pair_answer], np.float32)


@pytest.mark.parametrize(
    ("text", "words", "stride", "expected"),
    [
        ("a b c d e f g", 3, 2, ["a b c", "c d e", "e f g"]),
        ("a b c d e f g", 3, 3, ["a b c", "d e f", "e f g"]),
        ("a b c d", 3, 3, ["a b c", "b c d"]),
        ("a b c d", 3, 1, ["a b c", "b c d"]),
        (" a  b\nc ", 3, 1, [" a  b\nc "]),
        ("a,  b\n c. d", 2, 1, ["a,  b", "b\n c.", "c. d"]),
        ("", 1, 1, [""]),
        ("漢字かな", 2, 2, ["漢字", "かな"]),
        ("the 漢字 end", 2, 1, ["the 漢", "漢字", "字 end"]),
        ("한국 사람 이다", 2, 1, ["한국 사람", "사람 이다"]),
    ],
)
def test_passages_by_hand(text, words, stride, expected):
    assert Passages(words, stride).cut(text) == expected
    assert Passages(words, stride, "first").cut(text) == expected[:1]


@given(st.text("ab 漢\n", max_size=60), st.integers(1, 6), st.integers(1, 6))
def test_passages_cover_all_words_in_order(text, words, stride):
    passages = Passages(words, min(stride, words))
    spans = passages.spans(text)
    read = {position for begin, end in spans for position in range(begin, end)}

    assert all(position in read or text[position].isspace() for position in range(len(text)))
    assert spans == sorted(spans)
    if len(spans) > 1:
        whole = Passages(words, words)
        assert all(whole.cut(text[begin:end]) == [text[begin:end]] for begin, end in spans)


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [("max", [5, 2, 4]), ("first", [1, 2, 4]), ("mean", [3, 2, 1.5]), ("top2", [4, 2, 1.5])],
)
def test_aggregates_by_hand(aggregate, expected):
    """Passages with scores 1, 5, 3; 2; and 4, -1."""
    scores, counts = np.array([1, 5, 3, 2, 4, -1], dtype=np.float32), np.array([3, 1, 2])

    assert Passages(9, 9, aggregate).aggregated(scores, counts).tolist() == expected


@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("bad", [np.nan, -np.inf, np.inf])
def test_a_score_that_is_not_finite_is_not_hidden(aggregate, bad):
    scores = np.array([1, bad, 0, 7], dtype=np.float32)

    result = Passages(9, 9, aggregate).aggregated(scores, np.array([3, 1]))

    assert np.isnan(result[0])
    assert result[1] == 7


@pytest.mark.parametrize(
    ("aggregate", "expected"), [("max", [9, 4]), ("first", [3, 4]), ("mean", [6, 4]), ("top2", [7.5, 4])]
)
def test_candidates_are_scored_from_their_passages_by_hand(aggregate, expected, tmp_path):
    """The passages "3 a", "6 b" and "9 c" have the scores 3, 6 and 9."""
    path = write_pools(tmp_path / "x.parquet", [row("q", "?", [("a1", "3 a 6 b 9 c"), ("a2", "4 d")])])

    system = RandomScores(passages=Passages(2, 2, aggregate))
    frame = scores_of(path, Opened(Lengths(system)))

    assert frame["score"].to_list() == expected


def test_pairs_of_passages(tmp_path):
    rows = [row("q1", "?", [("x", "a b c"), ("y", "d")]), row("q2", "?", [("y", "d"), ("z", "a b c")])]
    pools = read_pools(list_units([write_pools(tmp_path / "x.parquet", rows)])[0])

    cut, counts = cut_pools(pools, Passages(2, 1))

    assert counts.tolist() == [2, 1, 1, 2]
    assert cut.answers.to_pylist() == ["a b", "b c", "d"]
    assert cut.pair_answer.tolist() == [0, 1, 2, 2, 0, 1]
    assert cut.answer_ids.to_pylist() == ["x", "x", "y", "y", "z", "z"]
    assert (cut.offsets.tolist(), cut.pair_question.tolist()) == ([0, 3, 6], [0, 0, 0, 1, 1, 1])
    assert cut_pools(pools, Passages(3, 1))[0] is pools


@pytest.mark.parametrize("name", [*WORD_SYSTEMS, *NETWORKS, *CHECKPOINTS])
def test_scores_equal_those_of_passages_cut_by_hand(name, long_pools, request, tmp_path):
    model = loaded(name, request, tmp_path)
    pools = pl.read_parquet(long_pools).explode("candidates").unnest("candidates")
    rows = [
        row(
            question_id,
            question,
            [
                (f"{answer}-{k}", text)
                for answer, whole in zip(of_question["answer_id"], of_question["text"], strict=True)
                for k, text in enumerate(cut_by_hand(whole))
            ],
        )
        for (question_id, question), of_question in pools.group_by(
            "question_id", "question", maintain_order=True
        )
    ]
    by_hand = scores_of(write_pools(tmp_path / "cut.parquet", rows), model_system(model))
    candidate = pl.col("answer_id").str.split("-").list
    by_hand = by_hand.select(
        "question_id", "score", answer_id=candidate[0], passage=candidate[1].cast(pl.Int64)
    )
    best = pl.col("score").sort(descending=True)
    expected = by_hand.sort("passage").group_by("question_id", "answer_id").agg(
        passages=pl.len(),
        max=pl.col("score").max(),
        first=pl.col("score").first(),
        mean=pl.col("score").mean(),
        top2=best.head(2).mean(),
    ).sort("question_id", "answer_id")  # fmt: skip
    whole = scores_of(long_pools, model_system(model))

    assert expected["passages"].max() > 3
    for aggregate in AGGREGATES:
        system = model_system(model, passages=Passages(WORDS, STRIDE, aggregate))
        actual = scores_of(long_pools, system)
        assert actual["score"].to_list() == pytest.approx(expected[aggregate].to_list(), abs=1e-6)
        # A candidate of one passage has its score without the option. The last bits depend on the pairs that
        # are scored together, except with attentive pooling.
        short = (expected["passages"] == 1).to_numpy()
        difference = np.abs(actual["score"].to_numpy() - whole["score"].to_numpy())[short].max()
        assert difference <= (0 if name.startswith("ap-") else 1e-6)
        assert actual["score"].to_list() != whole["score"].to_list()


def test_a_shared_passage_is_tokenized_once(tmp_path, model_folder, monkeypatch):
    texts = {f"a{n}": " ".join(f"river{n} word{k}" for k in range(n)) for n in range(1, 20)}
    write_answers(tmp_path / "answers.parquet", texts.items())
    groups = [[row(f"q{g}", "where is it", [(answer, None) for answer in texts])] for g in range(3)]
    units = list_units([write_pools(tmp_path / "x.parquet", *groups)])
    seen = []
    encode = WordTokenizer.encode
    monkeypatch.setattr("aptool.scoring.encoded.BYTES_AT_ONCE", 0)  # only shared texts are cached at once
    monkeypatch.setattr(
        WordTokenizer,
        "encode",
        lambda self, texts, limit=None, role="answer": (
            seen.extend(texts.to_pylist() if role == "answer" else []),
            encode(self, texts, limit, role),
        )[1],
    )
    scorer = model_system(load_model(model_folder), passages=Passages(7, 4)).open()
    shared = read_answers(tmp_path / "answers.parquet")

    keys = [prepare(unit, read_pools(unit, shared), scorer).inputs.cache_keys for unit in units]

    passages = [passage for text in texts.values() for passage in Passages(7, 4).cut(text)]
    assert len(passages) > len(texts)
    assert sorted(seen) == sorted(passages)
    assert [len(of_unit) for of_unit in keys] == [len(passages)] * 3
    assert None not in {key for of_unit in keys for key in of_unit.tolist()}


def test_only_texts_beyond_the_limit_are_truncated(tmp_path, model_folder):
    """The model reads 200 tokens: 200 plain words, but fewer words with hyphens."""
    model = load_model(model_folder)
    path = write_pools(
        tmp_path / "x.parquet", [row("q", "?", [("a", "river " * 450), ("b", "a-b " * 450), ("c", "no")])]
    )
    (unit,) = list_units([path])
    truncated = []
    for passages in (None, Passages(200, 200)):
        scorer = model_system(model, passages=passages).open()
        truncated.append(prepare(unit, read_pools(unit), scorer).truncated)

    # The words a-b have three tokens each, so all three passages of b are truncated.
    assert truncated == [2, 3]


def test_settings_are_in_fingerprint_and_metadata(model_folder):
    model = load_model(model_folder)
    settings = [Passages(20, 10), Passages(20, 11), Passages(21, 10), Passages(20, 10, "mean")]

    whole, *scorers = (model_system(model, passages=passages).open() for passages in (None, *settings))

    assert len({whole.fingerprint, *(scorer.fingerprint for scorer in scorers)}) == 5
    assert scorers[3].description == whole.description | {
        "passages": {"words": 20, "stride": 10, "aggregate": "mean"}
    }
    assert (scorers[0].tag, scorers[0].max_answer_tokens) == (whole.tag, whole.max_answer_tokens)


def test_an_interrupted_run_resumes_only_with_the_same_passages(long_pools, model_folder, tmp_path):
    units, output = list_units([long_pools]), tmp_path / "x.run"
    whole = model_system(load_model(model_folder))
    same, other = Passages(WORDS, STRIDE), Passages(WORDS, STRIDE, "mean")
    runs = {}
    for passages in (None, same, other):
        system = replace(whole, passages=passages)
        scoring.score_files(units, system, tmp_path / f"{passages}.run", tag="x")
        runs[passages] = (tmp_path / f"{passages}.run").read_bytes()

    stopping = replace(whole, passages=same).open()
    before, left = stopping.score, iter(range(2))
    stopping.score = lambda *given: before(*given) if next(left, None) is not None else 1 / 0
    with pytest.raises(ZeroDivisionError):
        scoring.score_files(units, Opened(stopping), output, tag="x")

    resumed = []
    for passages in (None, other, same):
        system = replace(whole, passages=passages)
        copied = tmp_path / f"copy {passages}.run"
        parts_folder(copied).mkdir()
        for part in Path(parts_folder(output)).glob("*.part"):
            (parts_folder(copied) / part.name).write_bytes(part.read_bytes())
        resumed.append(scoring.score_files(units, system, copied, tag="x").resumed)
        assert copied.read_bytes() == runs[passages]
    assert resumed == [0, 0, 2]
    assert len(set(runs.values())) == 3


def test_progress_counts_candidates(long_pools, model_folder, tmp_path):
    system = model_system(load_model(model_folder), tokens_per_batch=16, passages=Passages(5, 1))

    with recorded() as log:
        scoring.score_files(list_units([long_pools]), system, tmp_path / "x.run")

    counts = [update[0] for update in log.updates_of["score"]]
    assert counts == sorted(set(counts))
    assert (counts[0], counts[-1], {update[1] for update in log.updates_of["score"]}) == (0, 40, {40})


def test_a_worker_of_a_cluster_writes_the_lines_of_one_process(long_pools, model_folder, tmp_path):
    pytest.importorskip("ray", reason="the extra `cluster` is not installed")
    from one_node import OneNode

    from aptool.cluster.score import ClusterExecutor
    from aptool.cluster.worker import ScoringJob, Worker, open_scorer

    executor = ClusterExecutor(OneNode())
    passages, units, output = Passages(WORDS, STRIDE), list_units([long_pools]), tmp_path / "x.run"
    local = ModelSystem(str(model_folder), "cpu", passages=passages)
    remote = executor.open(local, units, None)
    parts_folder(output).mkdir()
    claim = Claim(parts_folder(output) / DRIVER, output)
    claim.take()
    job = ScoringJob(remote.system, "cpu", remote.fingerprint, claim.path.parent, claim.token, None)

    parts = plan(units, remote, output, "x")
    outcomes = Worker(job).score(dict(enumerate(parts)))

    assert [outcome.error for outcome in outcomes] == [""] * 4
    assert open_scorer.cache_info().hits > 0  # the model is loaded once per process
    assert local.open(units).fingerprint == remote.fingerprint
    claim.path.unlink()
    resumed = scoring.score_files(units, local, output, tag="x").resumed
    scoring.score_files(units, local, tmp_path / "alone.run", tag="x")
    assert resumed == 4
    assert output.read_bytes() == (tmp_path / "alone.run").read_bytes()
    assert remote.description["passages"] == {"words": WORDS, "stride": STRIDE, "aggregate": "max"}
    with pytest.raises(UsageError, match=r"expected at most \d+ words"):
        executor.open(replace(local, passages=Passages(1 << 20, 1)), units, None)


@pytest.mark.parametrize(
    "passages",
    ["0:5", "5:0", "5", "5:6", ":", "a:b", "-5:3", "5:3:1", "5.0:3", "", " 5:3", "٥:٣", (5, 6), (5,), 5],
)
def test_invalid_passages_are_named(passages):
    with pytest.raises(UsageError, match="expected WORDS:STRIDE, two whole numbers with 1 <= STRIDE"):
        parse_passages(passages)


def test_valid_passages():
    assert parse_passages("150:75") == parse_passages((150, 75), "max") == Passages(150, 75)
    assert parse_passages("5:5", "top2") == Passages(5, 5, "top2")
    assert parse_passages(None) is None
    with pytest.raises(UsageError, match="aggregate 'min': expected one of max, first, mean, top2"):
        parse_passages("5:5", "min")
    with pytest.raises(UsageError, match="--aggregate requires --passages"):
        parse_passages(None, "max")


def test_passages_longer_than_the_limit_are_refused(model_folder):
    with pytest.raises(UsageError, match=r"passages '201:10': expected at most 200 words"):
        model_system(load_model(model_folder), passages=Passages(201, 10)).open()
    model_system(load_model(model_folder), passages=Passages(200, 10)).open()


@pytest.fixture
def model(model_folder):
    return library.load(model_folder, device="cpu")


QUESTION = "where is the river near the window"
LONG = " ".join(THINGS[k % 20] for k in range(23))
ANSWERS = [LONG, "the river near the window is silver", LONG + " end", "no"]


@pytest.mark.parametrize("aggregate", [None, *AGGREGATES])
def test_answers_are_ranked_by_their_passages(model, aggregate):
    cut = Passages(WORDS, STRIDE, aggregate or "max")
    scores = [model.score(QUESTION, cut.cut(answer)) for answer in ANSWERS]
    expected = [float(cut.aggregated(each, np.array([len(each)]))[0]) for each in scores]
    options = {"passages": f"{WORDS}:{STRIDE}", "aggregate": aggregate}

    ranking = dict(model.rank(QUESTION, ANSWERS, **options))

    assert [ranking[row] for row in range(4)] == pytest.approx(expected, abs=1e-6)
    pairs = [(QUESTION, answer) for answer in ANSWERS]
    assert model.score(pairs, **options).tolist() == pytest.approx(expected, abs=1e-6)
    assert model.score(QUESTION, ANSWERS, passages=(WORDS, STRIDE), aggregate=aggregate).tolist() == (
        pytest.approx(expected, abs=1e-6)
    )
    encoded = model.encode(ANSWERS, passages=(WORDS, STRIDE))
    assert model.score(QUESTION, encoded, aggregate=aggregate).tolist() == pytest.approx(expected, abs=1e-6)
    chosen = encoded[[2, 0]]
    assert (len(chosen), chosen.texts) == (2, [ANSWERS[2], ANSWERS[0]])
    assert model.score(QUESTION, chosen, aggregate=aggregate).tolist() == pytest.approx(
        [expected[2], expected[0]], abs=1e-6
    )
    assert model.score(QUESTION, encoded[1:1]).tolist() == []


def test_encoded_answers_are_not_cut_again(model):
    with pytest.raises(AptoolError, match=r"passages: expected None with encoded answers"):
        model.rank(QUESTION, model.encode(ANSWERS), passages="5:3")
    with pytest.raises(AptoolError, match="--aggregate requires --passages"):
        model.rank(QUESTION, model.encode(ANSWERS), aggregate="mean")
    with pytest.raises(AptoolError, match="expected at most 200 words"):
        model.rank(QUESTION, ANSWERS, passages="201:3")
    with pytest.raises(AptoolError, match="expected at most 200 words"):
        model.encode(ANSWERS, passages="201:3")


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_the_best_passage_is_explained(model, aggregate):
    cut = Passages(WORDS, STRIDE, aggregate).cut(LONG)
    scores = [model.explain(QUESTION, passage).score for passage in cut]

    explanation = model.explain(QUESTION, LONG, passages="5:3", aggregate=aggregate, alignment=True)

    best = int(np.argmax(scores))
    assert explanation.best_passage == best
    assert explanation.answer.text == cut[best]
    assert [LONG[begin:end] for begin, end, _ in explanation.passages] == cut
    assert [passage.score for passage in explanation.passages] == pytest.approx(scores, abs=1e-6)
    expected = {
        "max": max(scores),
        "first": scores[0],
        "mean": np.mean(scores),
        "top2": np.mean(sorted(scores)[-2:]),
    }
    assert explanation.score == pytest.approx(expected[aggregate], abs=1e-6)
    assert explanation.alignment.shape[1] == WORDS
    assert model.explain(QUESTION, LONG).passages == ()


def test_runs_of_library_and_commands_are_equal(aptool, model_folder, long_pools, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("test.pools.parquet").write_bytes(long_pools.read_bytes())
    options = ("--model", model_folder, "--passages", "5:3", "--device", "cpu")

    scored = aptool("score", "test.pools.parquet", *options, "--output", "x.run", "--aggregate", "top2")
    library.score("test.pools.parquet", model_folder, "y.run", passages=(5, 3), aggregate="top2")
    run = library.load(model_folder).run(
        library.Pools.load("test.pools.parquet"), passages="5:3", aggregate="top2"
    )
    run.save("z.run")

    assert (scored.code, scored.out[0]) == (0, "x.run: 40 pairs")
    assert Path("x.run").read_bytes() == Path("y.run").read_bytes() == Path("z.run").read_bytes()
    metadata = Path("x.run.ir-metadata.yml").read_text()
    assert "passages:" in metadata
    assert "aggregate: top2" in metadata

    # Stored passages are read, and missing ones are an error.
    encoded = aptool("encode", "test.pools.parquet", *options, "--output", "store")
    texts = pl.read_parquet(long_pools).explode("candidates").unnest("candidates")["text"]
    count = len({passage for text in texts for passage in cut_by_hand(text)})
    assert encoded.out[0].split(", ")[1] == f"{count} passages encoded now"
    stored = aptool(
        "score",
        "test.pools.parquet",
        *options,
        "--encoded",
        "store",
        "--output",
        "w.run",
        "--aggregate",
        "top2",
    )
    assert stored.code == 0
    assert Path("w.run").read_bytes() == Path("x.run").read_bytes()
    missing = aptool("score", "test.pools.parquet", *options[:2], "--encoded", "store", "--output", "v.run")
    assert (missing.code, len(missing.err)) == (1, 1)
    assert "answers of a row group are not in it" in missing.err[0]


MISTAKES = [
    (("score", "x.parquet", "--output", "r", "--passages", "0:5"), "passages '0:5': expected WORDS:STRIDE"),
    (("score", "x.parquet", "--output", "r", "--passages", "5:6"), "passages '5:6': expected WORDS:STRIDE"),
    (
        ("score", "x.parquet", "--output", "r", "--passages", "201:6"),
        "passages '201:6': expected at most 200 words",
    ),
    (("score", "x.parquet", "--output", "r", "--aggregate", "max"), "--aggregate requires --passages"),
    (("encode", "x.parquet", "--passages", "0:5", "--output", "s"), "passages '0:5': expected"),
    (("encode", "x.parquet", "--passages", "999:5", "--output", "s"), "expected at most 200 words"),
    (("explain", "--question", "q", "--answer", "a", "--passages", "0:5"), "passages '0:5': expected"),
    (("explain", "--question", "q", "--answer", "a", "--passages", "999:5"), "expected at most 200 words"),
    (("explain", "--question", "q", "--answer", "a", "--aggregate", "mean"), "requires --passages"),
]


@pytest.mark.parametrize(("arguments", "message"), MISTAKES)
def test_mistakes_are_one_line(arguments, message, aptool, model_folder, long_pools, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("x.parquet").write_bytes(long_pools.read_bytes())

    finished = aptool(*arguments, "--model", model_folder)

    assert (finished.code, len(finished.err)) == (2, 1)
    assert message in finished.err[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.parquet"]


def test_baselines_score_whole_candidates(aptool, long_pools, tmp_path):
    finished = aptool("score", long_pools, "--model", "bm25", "--passages", "5:3", "--output", tmp_path / "x")

    assert (finished.code, len(finished.err)) == (2, 1)
    assert "passages: expected None with bm25, which scores whole candidates" in finished.err[0]


def test_the_best_passage_is_printed(aptool, model_folder):
    arguments = ("explain", "--model", model_folder, "--question", QUESTION, "--answer", LONG)

    shown = aptool(*arguments, "--passages", "5:3")
    document = json.loads("\n".join(aptool(*arguments, "--passages", "5:3", "--json").out))

    lines = [line for line in shown.out if "passage " in line]
    assert len(lines) == len(document["passages"]) == len(Passages(5, 3).cut(LONG))
    assert [number for number, line in enumerate(lines) if line.startswith("best")] == [
        document["best_passage"]
    ]
    best = document["passages"][document["best_passage"]]
    assert document["score"] == best["score"] == max(each["score"] for each in document["passages"])
    assert document["answer"]["text"] == LONG[best["begin"] : best["end"]]
