"""Runs and qrels in the formats of ir_measures and trectools."""

import pytest

import aptool

RUN = aptool.Run({"q1": {"a": 0.5, "b": 0.5, "c": 0.25}, "q2": {"c": -1.5}}, tag="mine")
QRELS = aptool.Qrels({"q1": {"a": 1, "b": 0}, "q2": {"c": 2}, "q3": {"d": 1}})


def test_ir_measures_computes_the_same_values():
    ir_measures = pytest.importorskip("ir_measures")
    names = ["AP", "RR", "P@1", "nDCG@10"]

    result = ir_measures.calc_aggregate(
        [ir_measures.parse_measure(name) for name in names], QRELS.to_dict(), RUN.to_dict()
    )

    means = aptool.evaluate(QRELS, RUN, names).means
    assert {str(name): value for name, value in result.items()} == pytest.approx(
        dict(zip(names, means.values(), strict=True))
    )
    # With equal scores, b is before a by its id; q3 counts as 0: (1/2 + 1 + 0) / 3.
    assert means["MRR"] == pytest.approx(0.5)


def test_files_survive_a_round_trip_through_ir_measures(tmp_path):
    ir_measures = pytest.importorskip("ir_measures")
    RUN.save(tmp_path / "a.run")
    QRELS.save(tmp_path / "a.qrels")

    run = aptool.Run(ir_measures.read_trec_run(str(tmp_path / "a.run")))
    qrels = aptool.Qrels(ir_measures.read_trec_qrels(str(tmp_path / "a.qrels")))

    assert run.to_dict() == RUN.to_dict()
    assert qrels.to_dict() == QRELS.to_dict()
