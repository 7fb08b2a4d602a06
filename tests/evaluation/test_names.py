"""Names of measures are those of ir_measures; other names are refused with a list of the known ones."""

import pytest

from aptool.errors import UsageError
from aptool.evaluation.names import Measure, is_mean, measure_names, parse_measures

# The documentation of ir_measures, and what trec_eval prints for the same measure.
IR_MEASURES = {
    "AP": "map",
    "AP@100": "map_cut_100",
    "RR": "recip_rank",
    "P@1": "P_1",
    "R@100": "recall_100",
    "nDCG": "ndcg",
    "nDCG@10": "ndcg_cut_10",
    "Success@5": "success_5",
    "Rprec": "Rprec",
    "Bpref": "bpref",
    "infAP": "infAP",
    "SetP": "set_P",
    "SetR": "set_recall",
    "SetF": "set_F",
    "SetAP": "set_map",
    "NumQ": "num_q",
    "NumRel": "num_rel",
    "NumRet": "num_ret",
    "NumRelRet": "num_rel_ret",
}


def test_names_of_ir_measures_are_measures_of_trec_eval():
    for name, trec_eval in IR_MEASURES.items():
        printed = name.replace("AP", "MAP", 1) if name.startswith("AP") else "MRR" if name == "RR" else name
        assert parse_measures([name]) == (Measure(printed, trec_eval),)
        assert parse_measures([printed, name.upper(), name.lower()]) == (Measure(printed, trec_eval),)


def test_ir_measures_parses_every_printed_name():
    ir_measures = pytest.importorskip("ir_measures")
    for name in (*IR_MEASURES, "RR@10", "AP(rel=2)@5", "P(rel=3)@1"):
        (printed,) = measure_names([name])
        assert ir_measures.parse_measure(printed) == ir_measures.parse_measure(name)


def test_a_measure_with_two_names_appears_once():
    assert measure_names(["MAP", "AP", "map", "P@1", "Precision@1"]) == ("MAP", "P@1")
    assert measure_names(["RR@010", "MRR@10", "Recall@5"]) == ("MRR@10", "R@5")


def test_levels_and_cutoffs():
    assert parse_measures(["MRR@10", "MRR(rel=2)", "P(rel=2)@5", "ap(REL=3)"]) == (
        Measure("MRR@10", "recip_rank", cutoff=10),
        Measure("MRR(rel=2)", "recip_rank", level=2),
        Measure("P(rel=2)@5", "P_5", level=2),
        Measure("MAP(rel=3)", "map", level=3),
    )


# pytrec_eval would end the process with some of these, and misread others.
@pytest.mark.parametrize(
    "name",
    [
        *("mmr", "recip_rank", "P_1", "", "@10", "(rel=2)", "\u00e9@5"),
        *("P", "P@0", "P@1.5", "R", "Rprec@5", "P@99999999999", "IPrec@0.1"),
        *("AP(rel=0)", "AP()", "AP(k=3)", "AP(rel=99999999999)", "nDCG(rel=2)@10", "RBP(p=.8)", "ERR@10"),
    ],
)
def test_other_names_are_refused(name):
    with pytest.raises(UsageError) as error:
        measure_names(["MAP", name])

    assert str(error.value) == (
        f"unknown measures: {name!r}; expected MAP[@K], MRR[@K], P@K, R@K, nDCG[@K], Success@K, Rprec, "
        "Bpref, infAP, SetP, SetR, SetF, SetAP, NumQ, NumRel, NumRet, NumRelRet, such as "
        "nDCG@10 or MAP(rel=2); ir_measures computes others from the run file"
    )


def test_no_measure_is_refused():
    with pytest.raises(UsageError, match="MAP,MRR,P@1"):
        measure_names([])


def test_counts_are_sums():
    assert [name for name in measure_names(IR_MEASURES) if not is_mean(name)] == [
        "NumQ",
        "NumRel",
        "NumRet",
        "NumRelRet",
    ]
