"""Results as tables in notebooks and as text on a console."""

import polars as pl

import aptool

QRELS = {"q1": {"a": 1, "b": 0}, "q2": {"c": 2}, "q3": {"d": 1}}
RUN = {"q1": {"b": 2.0, "a": 1.0}, "q2": {"c": 1.0}, "q9": {"x": 1.0}}


def test_an_evaluation_is_a_frame_of_its_groups():
    groups = pl.DataFrame({"question_id": ["q1", "q2"], "group": ["art", "law"], "position": [1, 0]})
    result = aptool.evaluate(QRELS, RUN, groups=groups)

    frame = result.to_pandas()
    assert frame.columns.tolist() == ["group", "questions", "MAP", "MRR", "P@1"]
    assert result.to_polars()["group"].to_list() == [None, "law", "art"]
    assert frame.iloc[:, 1:].to_numpy().tolist() == [[3, 0.5, 0.5, 1 / 3], [1, 1, 1, 1], [1, 0.5, 0.5, 0]]
    assert repr(result) == "Evaluation(MAP 0.5000, MRR 0.5000, P@1 0.3333; 3 questions)"


def test_results_are_tables_in_notebooks(tmp_path):
    pools = aptool.Pools({"q1": ("who?", {"a": "<script>"})})
    compared = aptool.compare(RUN, aptool.Run(RUN, tag="other"), QRELS)
    cells = ((aptool.Run(RUN), "q9"), (aptool.Qrels(QRELS), "q3"), (pools, "who?"), (compared, "other"))
    for result, cell in cells:
        page = result._repr_html_()
        assert "<table" in page
        assert "<script>" not in page
        assert cell in page
    pools.save(tmp_path / "x.pools.parquet")
    assert aptool.Pools.load(tmp_path / "x.pools.parquet")._repr_html_().startswith("Pools(")
