"""Results as HTML in notebooks and as text on a console."""

from html.parser import HTMLParser

import polars as pl

import aptool

QRELS = {"q1": {"a": 1, "b": 0}, "q2": {"c": 2}, "q3": {"d": 1}}
RUN = {"q1": {"b": 2.0, "a": 1.0}, "q2": {"c": 1.0}, "q9": {"x": 1.0}}
EVIL = "<script>alert('1')</script> & \"x\""


class Tags(HTMLParser):
    """The tags of a page, and the texts of its cells."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.rows = set(), []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        assert not any(name.startswith("on") for name, _ in attributes)
        if tag == "tr":
            self.rows.append([])

    def handle_data(self, text):
        if self.rows:
            self.rows[-1].append(text)


def test_an_evaluation_is_a_frame_of_its_groups():
    groups = pl.DataFrame({"question_id": ["q1", "q2"], "group": [EVIL, "law"], "position": [1, 0]})
    result = aptool.evaluate(QRELS, RUN, groups=groups)
    frame, page = result.to_pandas(), Tags(result._repr_html_())

    assert frame.columns.tolist() == ["group", "questions", "MAP", "MRR", "P@1"]
    assert result.to_polars()["group"].to_list() == [None, "law", EVIL]
    assert frame.iloc[:, 1:].to_numpy().tolist() == [[3, 0.5, 0.5, 1 / 3], [1, 1, 1, 1], [1, 0.5, 0.5, 0]]
    assert not page.tags & {"script", "a", "img"}
    assert repr(result) == "Evaluation(MAP 0.5000, MRR 0.5000, P@1 0.3333; 3 questions)"


def test_runs_qrels_and_pools_are_tables(tmp_path):
    pools = aptool.Pools({"q1": ("who?", {"a": EVIL})})
    for result, cell in ((aptool.Run(RUN), "q9"), (aptool.Qrels(QRELS), "q3"), (pools, "who?")):
        page = Tags(result._repr_html_())
        assert "table" in page.tags
        assert not page.tags & {"script", "a", "img"}
        assert cell in result._repr_html_()
    pools.save(tmp_path / "x.pools.parquet")
    assert aptool.Pools.load(tmp_path / "x.pools.parquet")._repr_html_().startswith("Pools(")


def test_comparisons_are_a_frame():
    first = {f"q{number}": {"a": 2.0, "b": 1.0} for number in range(30)}
    second = {f"q{number}": {"a": 1.0, "b": 2.0} for number in range(30)}
    qrels = {f"q{number}": {"a": 0, "b": 1} for number in range(30)}
    result = aptool.compare(first, aptool.Run(second, tag=EVIL), qrels, ["P@1", "MAP"])

    frame, page = result.to_pandas(), Tags(result._repr_html_())

    # The relevant answer is second in all questions, then first: MRR and MAP 0.5 and 1.
    assert frame.columns[:10].tolist() == [
        "system", "measure", "questions", "baseline", "mean", "difference", "low", "high", "p", "p_holm",
    ]  # fmt: skip
    assert frame.iloc[1].tolist()[1:8] == ["MAP", 30, 0.5, 1.0, 0.5, 0.5, 0.5]
    assert frame[["wins", "ties", "losses"]].to_numpy().tolist() == [[30, 0, 0], [30, 0, 0]]
    assert not page.tags & {"script", "a", "img"}
    assert "MAP" in repr(result)
