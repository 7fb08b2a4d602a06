"""Conversion of runs, qrels and pools from and to files, dicts, polars and pandas."""

import math

import numpy as np
import pandas as pd
import polars as pl
import pytest

from aptool import AptoolError, Pools, Qrels, Run

AN_ID = "expected an id without white space or control characters"
A_QUESTION_ID = f"{AN_ID} that does not begin with '#'"
SCORES = {"q1": {"a2": 2.5, "a1": -1.0}, "q2": {"a1": 0.0}}
RELEVANCE = {"q1": {"a1": 1, "a2": 0}, "q2": {"a1": 2}}
POOLS = {
    "q2": ("where?", {"b": "in the garden", "a": "nowhere"}),
    "q1": ("who?", {"a": "nobody", "c": "in the garden"}),
}


def test_runs_survive_a_round_trip(tmp_path):
    run = Run.from_dict(SCORES, tag="mine")
    run.save(tmp_path / "x.run.gz")

    assert run.frame.schema == {"question_id": pl.String, "answer_id": pl.String, "score": pl.Float64}
    for other in (
        Run.from_polars(run.to_polars(), "mine"),
        Run.from_pandas(run.to_pandas(), "mine"),
        Run.load(tmp_path / "x.run.gz"),
    ):
        assert other.to_dict() == SCORES
        assert other.tag == "mine"
    assert run.to_polars()["rank"].to_list() == [1, 2, 1]


def test_run_file_has_the_trec_format(tmp_path):
    Run.from_dict(SCORES).save(tmp_path / "x.run", tag="mine")

    expected = "q1 Q0 a2 1 2.5 mine\nq1 Q0 a1 2 -1.0 mine\nq2 Q0 a1 1 0.0 mine\n"
    assert (tmp_path / "x.run").read_text() == expected


def test_qrels_survive_a_round_trip(tmp_path):
    qrels = Qrels.from_dict(RELEVANCE)
    qrels.save(tmp_path / "x.qrels")

    assert (tmp_path / "x.qrels").read_text() == "q1 0 a1 1\nq1 0 a2 0\nq2 0 a1 2\n"
    for other in (
        Qrels.from_polars(qrels.to_polars()),
        Qrels.from_pandas(qrels.to_pandas()),
        Qrels.load(tmp_path / "x.qrels"),
    ):
        assert other.to_dict() == RELEVANCE


def test_pools_survive_a_round_trip_in_order(tmp_path):
    pools = Pools.from_dict(POOLS)
    pools.save(tmp_path / "x.pools.parquet")

    for other in (
        Pools.from_polars(pools.to_polars()),
        Pools.from_pandas(pools.to_pandas()),
        Pools.load(tmp_path / "x.pools.parquet"),
        Pools.load([tmp_path]),
    ):
        assert other.to_dict() == POOLS
        assert list(other.to_dict()) == ["q2", "q1"]
        assert other.frame.equals(pools.frame)


def test_column_names_of_other_tools_are_accepted():
    trec = {"qid": ["q"], "docno": ["a"], "score": [1], "rank": [0]}

    assert Run.from_pandas(pd.DataFrame(trec)).to_dict() == {"q": {"a": 1.0}}
    judged = pl.DataFrame({"query_id": ["q"], "doc_id": ["a"], "relevance": [1], "iteration": ["0"]})
    assert Qrels.from_polars(judged).to_dict() == {"q": {"a": 1}}
    texts = pl.DataFrame({"qid": ["q"], "query": ["who?"], "docid": ["a"], "text": ["me"]})
    assert Pools.from_polars(texts.lazy()).to_dict() == {"q": ("who?", {"a": "me"})}


def test_numpy_numbers_are_accepted():
    assert Run.from_dict({"q": {"a": np.float32(0.5), "b": np.int64(2)}}).to_dict() == {
        "q": {"b": 2.0, "a": 0.5}
    }
    assert Qrels.from_dict({"q": {"a": np.int32(1)}}).to_dict() == {"q": {"a": 1}}


def test_integer_score_that_float64_would_round_is_refused():
    exact, rounded = 1 << 60, (1 << 53) + 1
    ids = {"qid": ["q", "q"], "docno": ["a", "b"]}

    assert Run.from_polars(pl.DataFrame({**ids, "score": [exact, 1]})).to_dict() == {
        "q": {"a": exact, "b": 1}
    }
    for make in (
        lambda: Run.from_polars(pl.DataFrame({**ids, "score": [exact, rounded]})),
        lambda: Run.from_pandas(pd.DataFrame({**ids, "score": [exact, rounded]})),
        lambda: Run.from_dict({"q": {"a": exact, "b": rounded}}),
        lambda: Run.from_dict({"q": {"b": np.int64(rounded)}}),
    ):
        with pytest.raises(
            AptoolError, match=r"'score': .*9007199254740993.*: expected an integer that float64"
        ):
            make()


def test_a_column_of_python_numbers_may_mix_integers_and_fractions():
    scores = pd.Series([1, 2.5], dtype=object)
    run = Run.from_pandas(pd.DataFrame({"qid": ["q", "q"], "docno": ["a", "b"], "score": scores}))

    assert run.to_dict() == {"q": {"b": 2.5, "a": 1.0}}


def test_error_of_a_lazy_frame_is_one_line(tmp_path):
    with pytest.raises(AptoolError, match=r"run: .*; expected a frame that polars reads"):
        Run.from_polars(pl.scan_csv(tmp_path / "nowhere.csv"))


def test_run_has_the_order_of_trec_eval():
    # Equal scores: the larger answer id is first.
    assert list(Run.from_dict({"q": {"a": 1.0, "b": 1.0, "Z": 2.0}}).to_dict()["q"]) == ["Z", "b", "a"]


def run_frame(**columns):
    return pl.DataFrame({"question_id": ["q", "r"], "answer_id": ["a", "a"], "score": [1.0, 2.0]} | columns)


DICTS = [
    (None, "run: None: expected a dict {question id: {answer id: score}}"),
    ([], "run: []: expected a dict {question id: {answer id: score}}"),
    ({}, "run: {}: expected at least one entry"),
    ({"q": {}}, "run: question 'q': {}: expected at least one entry"),
    ({"q": None}, "run: question 'q': None: expected a dict {question id: {answer id: score}}"),
    ({7: {"a": 1.0}}, "run: column 'question_id': 7: expected text (str)"),
    ({"q": {7: 1.0}}, "run: question 'q': column 'answer_id': 7: expected text (str)"),
    ({"q": {"a": math.nan}}, "run: question 'q', answer 'a': column 'score': nan: expected a finite number"),
    (
        {"q": {"a": -math.inf}},
        "run: question 'q', answer 'a': column 'score': -inf: expected a finite number",
    ),
    ({"q": {"a": "1"}}, "run: question 'q', answer 'a': column 'score': '1': expected a finite number"),
    ({"q": {"a": True}}, "run: question 'q', answer 'a': column 'score': True: expected a finite number"),
    ({"q": {"a": None}}, "run: question 'q', answer 'a': column 'score': None: expected a finite number"),
    ({"#q": {"a": 1.0}}, f"run: column 'question_id': '#q': {A_QUESTION_ID}"),
    ({"q": {"a b": 1.0}}, f"run: question 'q': column 'answer_id': 'a b': {AN_ID}"),
    ({"q": {"": 1.0}}, f"run: question 'q': column 'answer_id': '': {AN_ID}"),
    ({"\ud800": {"a": 1.0}}, f"run: column 'question_id': '\\ud800': {A_QUESTION_ID}"),
]


@pytest.mark.parametrize(("scores", "message"), DICTS)
def test_invalid_dict_of_a_run_is_refused(scores, message):
    with pytest.raises(AptoolError) as error:
        Run.from_dict(scores)

    assert str(error.value) == message


FRAMES = [
    (run_frame(question_id=["q", "#"]), f"run: row 1: column 'question_id': '#': {A_QUESTION_ID}"),
    (run_frame(answer_id=["a b", "c"]), f"run: row 0: column 'answer_id': 'a b': {AN_ID}"),
    ("x", "run: 'str': expected a polars DataFrame"),
    (
        run_frame().drop("score"),
        "run: ['question_id', 'answer_id']: expected a column 'score'",
    ),
    (run_frame(question_id=[7, 8]), "run: column 'question_id': 'Int64': expected text (String)"),
    (run_frame(score=["1", "2"]), "run: column 'score': 'String': expected numbers"),
    (run_frame(score=[1.0, math.nan]), "run: row 1: column 'score': nan: expected a finite number"),
    (run_frame(score=[1.0, None]), "run: row 1: column 'score': None: expected a value"),
    (run_frame(answer_id=["a", None]), "run: row 1: column 'answer_id': None: expected a value"),
    (
        run_frame(question_id=["q", "q"]),
        "run: row 1: column 'answer_id': 'a': expected each answer of a question once",
    ),
    (run_frame().clear(), "run: no row; expected at least one question with a candidate"),
]


@pytest.mark.parametrize(("frame", "message"), FRAMES)
def test_invalid_frame_of_a_run_is_refused(frame, message):
    for build in (Run, Run.from_polars):
        with pytest.raises(AptoolError) as error:
            build(frame)
        assert str(error.value) == message


PANDAS = [
    (run_frame(), "run: 'DataFrame': expected a pandas DataFrame"),
    (run_frame(question_id=[7, 8]).to_pandas(), "run: column 'question_id': 'Int64': expected text (String)"),
    (
        pd.DataFrame({"qid": ["q", 7], "docno": ["a", "b"], "score": [1.0, 2.0]}),
        "run: row 1: column 'qid': 7: expected a value of type str",
    ),
    (
        pd.DataFrame({"qid": ["q", "r"], "docno": ["a", "b"], "score": [1.0, math.nan]}),
        "run: row 1: column 'score': nan: expected a finite number",
    ),
    (
        pd.DataFrame([["q", "a", "b", 1.0]], columns=["qid", "docno", "docno", "score"]),
        "run: two columns 'docno'; expected one of each name",
    ),
    (run_frame().clear().to_pandas(), "run: no row; expected at least one question with a candidate"),
]


@pytest.mark.parametrize(("frame", "message"), PANDAS)
def test_invalid_pandas_frame_of_a_run_is_refused(frame, message):
    with pytest.raises(AptoolError) as error:
        Run.from_pandas(frame)

    assert str(error.value) == message


@pytest.mark.parametrize("relevance", [0.5, "1", None, True, 1 << 64])
def test_relevance_is_an_integer(relevance):
    with pytest.raises(AptoolError) as error:
        Qrels.from_dict({"q": {"a": relevance}})

    assert str(error.value) == (
        f"qrels: question 'q', answer 'a': column 'relevance': {relevance!r}: expected an integer of 64 bits"
    )


POOL_DICTS = [
    (None, "pools: None: expected a dict {question id: (question, {answer id: answer})}"),
    ({}, "pools: {}: expected a dict {question id: (question, {answer id: answer})}"),
    (
        {"q": "who?"},
        "pools: question 'q': 'who?': expected a dict {question id: (question, {answer id: answer})}",
    ),
    ({"q": ("who?", {})}, "pools: question 'q': {}: expected a dict {answer id: answer}"),
    ({"q": ("who?", ["me"])}, "pools: question 'q': ['me']: expected a dict {answer id: answer}"),
    ({"q": (None, {"a": "me"})}, "pools: question 'q': None: expected text (str)"),
    ({"q": ("who?", {"a": None})}, "pools: question 'q', answer 'a': None: expected text (str)"),
    ({"q": ("who?", {"a": b"me"})}, "pools: question 'q', answer 'a': b'me': expected text (str)"),
    ({1: ("who?", {"a": "me"})}, "pools: column 'question_id': 1: expected text (str)"),
    ({"q": ("who?", {1: "me"})}, "pools: question 'q': column 'answer_id': 1: expected text (str)"),
    (
        {"q": ("who?", {"a b": "me"})},
        f"pools: question 'q': column 'answer_id': 'a b': {AN_ID}",
    ),
]


@pytest.mark.parametrize(("pools", "message"), POOL_DICTS)
def test_invalid_dict_of_pools_is_refused(pools, message):
    with pytest.raises(AptoolError) as error:
        Pools.from_dict(pools)

    assert str(error.value) == message


def test_a_question_has_one_text():
    frame = pl.DataFrame(
        {
            "question_id": ["q", "q"],
            "question": ["who?", "why?"],
            "answer_id": ["a", "b"],
            "answer": ["x", "y"],
        }
    )

    with pytest.raises(AptoolError) as error:
        Pools(frame)

    assert str(error.value) == (
        "pools: row 1: column 'question': 'why?': expected the text of question 'q' in earlier rows"
    )


@pytest.mark.parametrize("kind", [Run, Qrels, Pools])
@pytest.mark.parametrize("path", [None, 7, "", "a\0b", b"x.run"])
def test_invalid_paths_are_refused(kind, path):
    with pytest.raises(AptoolError, match="expected a"):
        kind.load(path)


@pytest.mark.parametrize("kind", [Run, Qrels, Pools])
def test_missing_file_is_named(kind, tmp_path):
    with pytest.raises(AptoolError, match=r"nowhere: file not found"):
        kind.load(tmp_path / "nowhere")


def test_a_tag_is_one_word(tmp_path):
    run = Run.from_dict(SCORES)

    for tag in ("two words", "", 7):
        with pytest.raises(AptoolError, match="tag"):
            run.save(tmp_path / "x.run", tag=tag)
    assert not (tmp_path / "x.run").exists()


def test_pools_do_not_overwrite_the_file_that_they_are_read_from(tmp_path):
    Pools.from_dict(POOLS).save(tmp_path / "x.pools.parquet")

    with pytest.raises(AptoolError, match=r"x\.pools\.parquet"):
        Pools.load(tmp_path / "x.pools.parquet").save(tmp_path / "x.pools.parquet")
