"""Conversion of runs, qrels and pools from and to files, dicts, polars and pandas."""

import math

import numpy as np
import pandas as pd
import polars as pl
import pytest

from aptool import AptoolError, Collection, Pools, Qrels, Run, evaluate, score, train

AN_ID = "expected an id without white space or control characters"
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


def test_numbers_of_numpy_and_mixed_columns_are_accepted():
    assert Run({"q": {"a": np.float32(0.5), "b": np.int64(2)}}).to_dict() == {"q": {"b": 2.0, "a": 0.5}}
    assert Qrels({"q": {"a": np.int32(1)}}).to_dict() == {"q": {"a": 1}}
    scores = pd.Series([1, 2.5], dtype=object)
    run = Run(pd.DataFrame({"qid": ["q", "q"], "docno": ["a", "b"], "score": scores}))
    assert run.to_dict() == {"q": {"b": 2.5, "a": 1.0}}


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


def run_frame(**columns):
    return pl.DataFrame({"question_id": ["q", "r"], "answer_id": ["a", "a"], "score": [1.0, 2.0]} | columns)


TABLE = (
    "expected a data frame, a list of dicts, or a dict {question id: {answer id: score}}; "
    "Run.load reads files"
)

RUNS = [
    (None, f"run: None: {TABLE}"),
    ([], "run: no row; expected at least one question with a candidate"),
    ({"q": {}}, "run: question 'q': {}: expected at least one entry"),
    (
        {7.0: {"a": 1.0}},
        "run: question 7.0, answer 'a': column 'question_id': 7.0: expected a text or a whole number; "
        "convert the column to integers or texts, such as 7",
    ),
    ({"q": {"a": math.nan}}, "run: question 'q', answer 'a': column 'score': nan: expected a finite number"),
    ({"q": {"a b": 1.0}}, f"run: question 'q', answer 'a b': column 'answer_id': 'a b': {AN_ID}"),
    (
        {"\ud800": {"a": 1.0}},
        "run: question '\\ud800', answer 'a': column 'question_id': '\\ud800': expected text that UTF-8 can "
        "encode",
    ),
    (run_frame(answer_id=["a b", "c"]), f"run: row 0: column 'answer_id': 'a b': {AN_ID}"),
    (run_frame().drop("score"), "run: ['question_id', 'answer_id']: expected a column 'score'"),
    (run_frame(score=[1.0, math.nan]), "run: row 1: column 'score': nan: expected a finite number"),
    (
        run_frame(answer_id=["a", None]),
        "run: row 1: column 'answer_id': None: expected a text or a whole number",
    ),
    (
        run_frame(question_id=["q", "q"]),
        "run: row 1: column 'answer_id': 'a': expected each answer of a question once",
    ),
]


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


NESTED = "a dict {question id: (question, {answer id: answer})}"
POOL_COLUMNS = {"question_id": ["q", "q"], "question": ["who?", "why?"], "answer_id": ["a", "b"]}
POOL_DICTS = [
    (
        pl.DataFrame({**POOL_COLUMNS, "answer": ["x", "y"]}),
        "pools: row 1: column 'question': 'why?': expected the text of the question in earlier rows",
    ),
    ({}, "pools: {}: expected at least one entry"),
    ({"q": "who?"}, f"pools: question 'q': 'who?': expected {NESTED}"),
    (
        {"q": ("who?", {"a": None})},
        "pools: question 'q', answer 'a': column 'answer': None: expected a text",
    ),
]


RELEVANCES = [
    (
        {"q": {"a": value}},
        f"qrels: question 'q', answer 'a': column 'relevance': {value!r}: expected a whole number",
    )
    for value in (0.5, None, 1 << 64)
]


@pytest.mark.parametrize(
    ("make", "value", "message"),
    [
        (make, value, message)
        for make, cases in ((Run, RUNS), (Qrels, RELEVANCES), (Pools, POOL_DICTS))
        for value, message in cases
    ],
)
def test_a_wrong_table_is_refused(make, value, message):
    with pytest.raises(AptoolError) as error:
        make(value)

    assert str(error.value) == message


def test_pools_do_not_overwrite_the_file_that_they_are_read_from(tmp_path):
    Pools(POOLS).save(tmp_path / "x.pools.parquet")

    with pytest.raises(AptoolError, match=r"x\.pools\.parquet"):
        Pools.load(tmp_path / "x.pools.parquet").save(tmp_path / "x.pools.parquet")
