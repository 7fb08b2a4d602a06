"""Models and runs as transformers of PyTerrier, without Java."""

import sys
from types import ModuleType

import pandas as pd
import pytest

import aptool
from aptool.errors import InputError


@pytest.fixture
def transformer(monkeypatch):
    """The function under test, with PyTerrier or with a substitute of its interface."""
    try:
        import pyterrier  # noqa: F401
    except ImportError:
        stand_in = ModuleType("pyterrier")

        class Transformer:
            def __call__(self, inp):
                return self.transform(inp)

        stand_in.Transformer = Transformer
        monkeypatch.setitem(sys.modules, "pyterrier", stand_in)
        monkeypatch.delitem(sys.modules, "aptool.pyterrier", raising=False)
    from aptool.pyterrier import transformer

    yield transformer
    sys.modules.pop("aptool.pyterrier", None)


DOCUMENTS = pd.DataFrame(
    [
        {
            "qid": "2",
            "query": "where is the river with the engine",
            "docno": "d1",
            "text": "the garden",
            "url": "x",
        },
        {
            "qid": "1",
            "query": "where is the doctor",
            "docno": "d1",
            "text": "the doctor near the hill",
            "url": "y",
        },
        {"qid": "1", "query": "where is the doctor", "docno": "d3", "text": "the garden", "url": "z"},
        {"qid": "1", "query": "where is the doctor", "docno": "d2", "text": "the garden", "url": "z"},
    ]
)


def test_a_model_reranks_documents(transformer, model_folder):
    model = aptool.load(model_folder, device="cpu")

    result = transformer(model)(DOCUMENTS)
    from_folder = transformer(model_folder)(DOCUMENTS.assign(score=9.0, rank=7))

    scores = dict(
        zip(
            zip(DOCUMENTS["qid"], DOCUMENTS["docno"], strict=True),
            model.score(list(zip(DOCUMENTS["query"], DOCUMENTS["text"], strict=True))),
            strict=True,
        )
    )
    assert list(result["qid"]) == ["2", "1", "1", "1"]
    assert list(result["rank"]) == [0, 0, 1, 2]
    for row in result.itertuples():
        assert row.score == pytest.approx(scores[row.qid, row.docno], abs=1e-6)
    # Equal texts have equal scores, and the later id comes first, as in trec_eval.
    ranked = list(result[result["qid"] == "1"]["docno"])
    assert ranked.index("d3") == ranked.index("d2") - 1
    assert list(result[result["qid"] == "2"]["url"]) == ["x"]
    assert from_folder[["qid", "docno", "rank"]].equals(result[["qid", "docno", "rank"]])


def test_another_column_may_hold_the_text(transformer, model_folder):
    renamed = DOCUMENTS.rename(columns={"text": "body"})

    result = transformer(model_folder, text_field="body")(renamed)

    assert len(result) == 4
    with pytest.raises(
        InputError, match="'text': expected this column; the frame has qid, query, docno, body"
    ):
        transformer(model_folder)(renamed)
    assert transformer(model_folder)(DOCUMENTS.head(0)).empty


def test_a_run_answers_queries_and_scores_documents(transformer):
    run = aptool.Run({"1": {"d1": 0.5, "d3": 0.75}, "9": {"d1": 1.0}})

    ranked = transformer(run)(pd.DataFrame({"qid": ["1", "2"], "query": ["a", "b"]}))
    reranked = transformer(run)(DOCUMENTS.assign(score=0.0, rank=0))

    assert ranked[["qid", "query", "docno", "score", "rank"]].values.tolist() == [
        ["1", "a", "d3", 0.75, 0],
        ["1", "a", "d1", 0.5, 1],
    ]
    assert reranked[["docno", "score", "rank"]].values.tolist() == [["d3", 0.75, 0], ["d1", 0.5, 1]]


def test_run_survives_a_round_trip_through_pyterrier(transformer):
    run = aptool.Run({"1": {"d1": 0.5, "d2": 0.5, "d3": 0.75}, "2": {"d1": 1.0}})

    result = transformer(run)(pd.DataFrame({"qid": ["1", "2"]}))

    assert aptool.Run(result).to_dict() == run.to_dict()


def test_pipelines_and_experiments_of_pyterrier(transformer, model_folder):
    pt = pytest.importorskip("pyterrier", reason="PyTerrier is not installed")
    if not hasattr(pt, "Experiment"):
        pytest.skip("PyTerrier is not installed")
    topics = DOCUMENTS[["qid", "query"]].drop_duplicates()
    qrels = pd.DataFrame({"qid": ["1", "2"], "docno": ["d1", "d1"], "label": [1, 1]})
    texts = DOCUMENTS.drop_duplicates("docno")[["docno", "text"]]
    run = aptool.Run({"1": {"d1": 0.5, "d3": 0.75, "d2": 0.25}, "2": {"d1": 1.0}})
    first = transformer(run)
    pipeline = (
        first % 2 >> pt.apply.generic(lambda rows: rows.merge(texts, on="docno")) >> transformer(model_folder)
    )

    table = pt.Experiment([first, pipeline], topics, qrels, ["map"], names=["run", "model"], plan="tree")

    # In the run d1 has rank 2 of question 1, and rank 1 of question 2.
    assert table.set_index("name").loc["run", "map"] == 0.75
    assert sorted(pipeline(topics)["docno"]) == ["d1", "d1", "d3"]
    assert not pt.java.started()
