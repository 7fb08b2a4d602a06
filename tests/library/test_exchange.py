"""Runs and qrels in the formats of ir_measures, ranx and trectools."""

import json

import pandas as pd
import polars as pl
import pytest

import aptool
from aptool.errors import AptoolError

RUN = aptool.Run({"q1": {"a": 0.5, "b": 0.5, "c": 0.25}, "q2": {"c": -1.5}}, tag="mine")
QRELS = aptool.Qrels({"q1": {"a": 1, "b": 0}, "q2": {"c": 2}, "q3": {"d": 1}})


def test_ir_measures_computes_the_same_values():
    ir_measures = pytest.importorskip("ir_measures")
    names = ["AP", "RR", "P@1", "nDCG@10"]

    result = ir_measures.calc_aggregate(
        [ir_measures.parse_measure(name) for name in names],
        aptool.to_ir_measures(QRELS),
        aptool.to_ir_measures(RUN),
    )

    means = aptool.evaluate(QRELS, RUN, names).means
    assert {str(name): value for name, value in result.items()} == pytest.approx({n: means[n] for n in names})
    # With equal scores, b is before a by its id; q3 counts as 0: (1/2 + 1 + 0) / 3.
    assert means["RR"] == pytest.approx(0.5)


def test_run_survives_a_round_trip_through_ir_measures():
    pytest.importorskip("ir_measures")

    run = aptool.Run(iter(aptool.to_ir_measures(RUN)), tag="mine")

    assert run.to_dict() == RUN.to_dict()
    assert aptool.Qrels(aptool.to_ir_measures(QRELS)).to_dict() == QRELS.to_dict()


def test_files_of_ranx_are_written_and_read(tmp_path):
    aptool.save_ranx(RUN, tmp_path / "run.json")
    aptool.save_ranx(QRELS, tmp_path / "qrels.json")
    aptool.save_ranx(RUN, tmp_path / "run.parquet")

    # The layout that ranx documents: query -> document -> score, or columns q_id, doc_id, score.
    assert json.loads((tmp_path / "run.json").read_text())["q1"] == {"b": 0.5, "a": 0.5, "c": 0.25}
    assert json.loads((tmp_path / "qrels.json").read_text())["q2"] == {"c": 2}
    assert pl.read_parquet(tmp_path / "run.parquet").columns == ["q_id", "doc_id", "score"]
    for name in ("run.json", "run.parquet"):
        assert aptool.load_ranx(tmp_path / name).to_dict() == RUN.to_dict()
    # ranx reads scores from Parquet files, not relevance.
    with pytest.raises(AptoolError, match=r"qrels\.parquet: 'Qrels': expected a Run"):
        aptool.save_ranx(QRELS, tmp_path / "qrels.parquet")
    with pytest.raises(AptoolError, match=r"content: .*expected a Run or Qrels"):
        aptool.save_ranx({"q": {"a": 1.0}}, tmp_path / "run.json")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "{", "expected a run file of ranx"),
        ("a.json", '{"q": {"a": "high"}}', "question 'q', answer 'a'"),
        ("a.parquet", "x", "expected a run file of ranx"),
    ],
)
def test_invalid_files_of_ranx_are_refused(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(AptoolError, match=message):
        aptool.load_ranx(tmp_path / name)
    with pytest.raises(AptoolError, match=r"a name that ends in \.json or \.parquet"):
        aptool.save_ranx(RUN, tmp_path / "a.lz4")


def test_trectools_reads_the_run_file(tmp_path):
    RUN.save(tmp_path / "a.run")

    # The call of trectools: whitespace between six columns.
    names = ["query", "q0", "docid", "rank", "score", "system"]
    frame = pd.read_csv(tmp_path / "a.run", sep=r"\s+", names=names)

    assert frame[["query", "docid", "rank", "score", "system"]].values.tolist()[0] == [
        "q1",
        "b",
        1,
        0.5,
        "mine",
    ]
