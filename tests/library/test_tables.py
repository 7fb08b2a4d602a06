"""Conversion of runs, qrels and pools from and to files, dicts, polars and pandas."""

import math

import numpy as np
import pandas as pd
import polars as pl
import pytest

from aptool import AptoolError, Collection, Pools, Qrels, Run, evaluate, score, train

AN_ID = "expected an id without white space or control characters"
A_QUESTION_ID = f"{AN_ID} that does not begin with '#'"
SCORES = {"q1": {"a2": 2.5, "a1": -1.0}, "q2": {"a1": 0.0}}
RELEVANCE = {"q1": {"a1": 1, "a2": 0}, "q2": {"a1": 2}}
POOLS = {
    "q2": ("where?", {"b": "in the garden", "a": "nowhere"}),
    "q1": ("who?", {"a": "nobody", "c": "in the garden"}),
}


def test_runs_survive_a_round_trip(tmp_path):
    run = Run(SCORES, tag="mine")
    run.save(tmp_path / "x.run.gz")
    run.save(tmp_path / "x.run")

    expected = "q1 Q0 a2 1 2.5 mine\nq1 Q0 a1 2 -1.0 mine\nq2 Q0 a1 1 0.0 mine\n"
    assert (tmp_path / "x.run").read_text() == expected
    assert run.frame.schema == {"question_id": pl.String, "answer_id": pl.String, "score": pl.Float64}
    for other in (
        Run(run.to_polars(), "mine"),
        Run(run.to_pandas(), "mine"),
        Run.load(tmp_path / "x.run.gz"),
    ):
        assert other.to_dict() == SCORES
        assert other.tag == "mine"
    assert run.to_polars()["rank"].to_list() == [1, 2, 1]


def test_qrels_survive_a_round_trip(tmp_path):
    qrels = Qrels(RELEVANCE)
    qrels.save(tmp_path / "x.qrels")

    assert (tmp_path / "x.qrels").read_text() == "q1 0 a1 1\nq1 0 a2 0\nq2 0 a1 2\n"
    for other in (
        Qrels(qrels.to_polars()),
        Qrels(qrels.to_pandas()),
        Qrels.load(tmp_path / "x.qrels"),
    ):
        assert other.to_dict() == RELEVANCE


def test_pools_survive_a_round_trip_in_order(tmp_path):
    pools = Pools(POOLS)
    pools.save(tmp_path / "x.pools.parquet")

    for other in (
        Pools(pools.to_polars()),
        Pools(pools.to_pandas()),
        Pools.load(tmp_path / "x.pools.parquet"),
        Pools.load([tmp_path]),
    ):
        assert other.to_dict() == POOLS
        assert list(other.to_dict()) == ["q2", "q1"]
        assert other.frame.equals(pools.frame)


def test_column_names_of_other_tools_are_accepted():
    trec = {"qid": ["q"], "docno": ["a"], "score": [1], "rank": [0]}

    assert Run(pd.DataFrame(trec)).to_dict() == {"q": {"a": 1.0}}
    judged = pl.DataFrame({"query_id": ["q"], "doc_id": ["a"], "relevance": [1], "iteration": ["0"]})
    assert Qrels(judged).to_dict() == {"q": {"a": 1}}
    texts = pl.DataFrame({"qid": ["q"], "query": ["who?"], "docid": ["a"], "text": ["me"]})
    assert Pools(texts.lazy()).to_dict() == {"q": ("who?", {"a": "me"})}


def test_integer_score_that_float64_would_round_is_refused():
    exact, rounded = 1 << 60, (1 << 53) + 1
    ids = {"qid": ["q", "q"], "docno": ["a", "b"]}

    assert Run(pl.DataFrame({**ids, "score": [exact, 1]})).to_dict() == {"q": {"a": exact, "b": 1}}
    for make in (
        lambda: Run(pl.DataFrame({**ids, "score": [exact, rounded]})),
        lambda: Run({"q": {"b": np.int64(rounded)}}),
    ):
        with pytest.raises(
            AptoolError, match=r"'score': .*9007199254740993.*: expected an integer that float64"
        ):
            make()


# Ways in which a frame of polars may come.
FORMS = {
    "polars": lambda frame: frame,
    "lazy": pl.DataFrame.lazy,
    "arrow": pl.DataFrame.to_arrow,
    "stream": lambda frame: frame.to_arrow().to_reader(),
    "rows": pl.DataFrame.to_dicts,
    "iterator": lambda frame: frame.iter_rows(named=True),
    "pandas": lambda frame: pd.DataFrame(frame.to_dict(as_series=False)),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_table_gives_the_same(form, tmp_path):
    """Ids may be integers, and labels booleans, floats or decimals, as in `Collection.from_rows`."""
    make = FORMS[form]
    ids = {"qid": [1, 1, 2], "docno": [7, 8, 7]}

    assert Run(make(pl.DataFrame({**ids, "score": [0.5, 2.0, 1.0]}))).to_dict() == {
        "1": {"8": 2.0, "7": 0.5},
        "2": {"7": 1.0},
    }
    for labels in ([0.0, 1.0, 2.0], ["0", "1", "2.0"], pl.Series([0, 1, 2], dtype=pl.Decimal(9, 2))):
        judged = pl.DataFrame({**ids, "label": labels})
        assert Qrels(make(judged)).to_dict() == {"1": {"7": 0, "8": 1}, "2": {"7": 2}}
    judged = pl.DataFrame({**ids, "label": [False, True, True]})
    assert Qrels(make(judged)).to_dict() == {"1": {"7": 0, "8": 1}, "2": {"7": 1}}
    texts = pl.DataFrame({**ids, "query": ["who?", "who?", "why?"], "text": ["me", "you", "so"]})
    pools = Pools(make(texts))
    assert pools.to_dict() == {"1": ("who?", {"7": "me", "8": "you"}), "2": ("why?", {"7": "so"})}
    rows = texts.with_columns(label=pl.Series([False, True, True]))
    data = Collection.from_rows(
        make(rows),
        tmp_path / "out",
        columns={"question": "query", "answer": "text", "question_id": "qid", "answer_id": "docno"},
    )
    assert data.pools("train").to_dict() == pools.to_dict()
    assert data.qrels("train").to_dict() == Qrels(make(judged)).to_dict()
    assert evaluate(make(judged), make(pl.DataFrame({**ids, "score": [0.5, 2.0, 1.0]}))).means["P@1"] == 1.0


def test_a_frame_in_the_place_of_a_path_is_named_by_its_type(tmp_path):
    frame = pd.DataFrame({"question": ["who?"], "answer": ["me"], "label": [1]})

    for call, message in (
        (lambda: train(frame), "path: a pandas DataFrame: expected .*Collection.from_rows"),
        (lambda: Run.load(frame), "path: a pandas DataFrame: expected a path"),
        (lambda: score(frame, "bm25", tmp_path / "x.run"), "pools: .*'question', 'answer'.*'question_id'"),
    ):
        with pytest.raises(AptoolError, match=message):
            call()


TABLE = (
    "expected a data frame, a list of dicts, or a dict {question id: {answer id: score}}; "
    "Run.load reads files"
)


def run_frame(**columns):
    return pl.DataFrame({"question_id": ["q", "r"], "answer_id": ["a", "a"], "score": [1.0, 2.0]} | columns)


NUMBER = "question 'q', answer 'a': column 'score': {}: expected a finite number"
NESTED = "a dict {question id: (question, {answer id: answer})}"
TWO_TEXTS = pl.DataFrame({"qid": [1, 1], "query": ["a", "b"], "docid": [1, 2], "text": ["x", "y"]})
WRONG = [
    (Run, None, f"None: {TABLE}"),
    (Run, "x", f"'x': {TABLE}"),
    (Run, [], "no row; expected at least one question with a candidate"),
    (Run, {}, "{}: expected at least one entry"),
    (Run, {"q": {}}, "question 'q': {}: expected at least one entry"),
    (Run, {7.0: {"a": 1.0}}, "column 'question_id': 7.0: expected a text or a whole number; convert"),
    (Run, {"q": {"a": math.nan}}, NUMBER.format("nan")),
    (Run, {"q": {"a": "1"}}, NUMBER.format("'1'")),
    (Run, {"#q": {"a": 1.0}}, f"question '#q', answer 'a': column 'question_id': '#q': {A_QUESTION_ID}"),
    (Run, {"q": {"a b": 1.0}}, f"question 'q', answer 'a b': column 'answer_id': 'a b': {AN_ID}"),
    (Run, {"\ud800": {"a": 1.0}}, "'question_id': '\\ud800': expected text that UTF-8 can encode"),
    (Run, run_frame(answer_id=["a b", "c"]), f"row 0: column 'answer_id': 'a b': {AN_ID}"),
    (Run, run_frame().drop("score").lazy(), "['question_id', 'answer_id']: expected a column 'score'"),
    (Run, run_frame(score=[1.0, math.nan]).to_arrow(), "row 1: column 'score': nan: expected a finite"),
    (Run, run_frame(answer_id=["a", None]), "row 1: column 'answer_id': None: expected a text"),
    (Run, run_frame(question_id=["q", "q"]), "row 1: column 'answer_id': 'a': expected each answer of a"),
    *((Qrels, {"q": {"a": value}}, f"{value!r}: expected a whole") for value in (0.5, "high", None, 1 << 64)),
    (Pools, None, f"expected a data frame, a list of dicts, or {NESTED}; Pools.load reads files"),
    (Pools, {"q": "who?"}, f"question 'q': 'who?': expected {NESTED}"),
    (Pools, {"q": (None, {"a": "me"})}, "question 'q', answer 'a': column 'question': None: expected a text"),
    (Pools, {"q": ("who?", {"a": None})}, "question 'q', answer 'a': column 'answer': None: expected a text"),
    (Pools, TWO_TEXTS, "row 1: column 'query': 'b': expected the text of the question in earlier rows"),
]


@pytest.mark.parametrize(("make", "value", "message"), WRONG)
def test_a_wrong_table_is_refused(make, value, message):
    with pytest.raises(AptoolError) as error:
        make(value)

    assert str(error.value).startswith(f"{make.__name__.lower()}: ")
    assert message in str(error.value)


@pytest.mark.parametrize("kind", [Run, Qrels, Pools])
def test_wrong_paths_are_named(kind, tmp_path):
    with pytest.raises(AptoolError, match=r"nowhere: file not found"):
        kind.load(tmp_path / "nowhere")
    for path in (None, 7, "", "a\0b", b"x.run"):
        with pytest.raises(AptoolError, match="expected a"):
            kind.load(path)
