"""Names of measures: those of papers, trec_eval and ir_measures, and the nearest to an unknown one."""

import math

import pytest

from aptool.errors import UsageError
from aptool.evaluation.evaluation import MeasureValues
from aptool.evaluation.names import (
    FAMILIES,
    Family,
    Measure,
    common_name,
    highest_value,
    is_geometric,
    is_mean,
    is_sum,
    measure_names,
    parse_measures,
)


def test_trec_eval_names_give_common_names():
    assert measure_names(["map", "P_1", "ndcg_cut.10", "map"]) == ("MAP", "P@1", "nDCG@10")
    assert measure_names(["P.5,10", "iprec_at_recall.0.1,0.2"]) == ("P@5", "P@10", "IPrec@0.1", "IPrec@0.2")
    assert parse_measures(["recall_0100"]) == (Measure("R@100", "recall_100", "recall_100"),)
    assert parse_measures(["Rprec_mult_1"])[0].trec_eval == "Rprec_mult_1.00"
    # trec_eval -h -m success: default param: success.1,5,10
    assert measure_names(["success"]) == ("Success@1", "Success@5", "Success@10")
    # trec_eval -h -m P: default param: P.5,10,15,20,30,100,200,500,1000
    assert measure_names(["P"]) == tuple(f"P@{k}" for k in (5, 10, 15, 20, 30, 100, 200, 500, 1000))
    assert set(measure_names(["set"])) > {"SetP", "SetR", "SetF", "NumQ", "NumRel"}
    assert "runid" not in measure_names(["official"])


def test_measure_with_two_names_appears_once():
    assert measure_names(["map", "AP", "Map", "MAP", "P_1", "precision@1"]) == ("MAP", "P@1")


# As the three write it: papers, trec_eval and ir_measures.
THREE_NAMES = [
    ("MAP", "map", "AP"),
    ("MRR", "recip_rank", "RR"),
    ("P@1", "P_1", "P@1"),
    ("R@10", "recall_10", "R@10"),
    ("nDCG", "ndcg", "nDCG"),
    ("nDCG@10", "ndcg_cut_10", "nDCG@10"),
    ("MAP@100", "map_cut_100", "AP@100"),
    ("Success@5", "success_5", "Success@5"),
    ("IPrec@0.1", "iprec_at_recall_0.10", "IPrec@0.1"),
    ("bpref", "bpref", "Bpref"),
    ("SetF", "set_F", "SetF"),
    ("NumRelRet", "num_rel_ret", "NumRelRet"),
    # trec_eval has no such measure, or cannot say the level; ir_measures has no geometric means.
    ("MRR@10", "RR@10", "RR@10"),
    ("RBP(p=0.8)", "RBP(p=0.8)", "RBP(p=0.8)"),
    ("MAP(rel=2)@5", "AP(rel=2)@5", "AP(rel=2)@5"),
    ("GMAP", "gm_map", "GMAP"),
    ("11pt_avg", "11pt_avg", "11pt_avg"),
]


@pytest.mark.parametrize("names", THREE_NAMES)
def test_names_ignore_case(names):
    for name in names:
        for written in (name, name.lower(), name.upper()):
            assert common_name(written) == names[0]


def test_ir_measures_parses_names_of_its_naming():
    ir_measures = pytest.importorskip("ir_measures")
    of_trec_eval_alone = ("11pt_avg", "GMAP")
    for common, _, name in THREE_NAMES:
        if common not in of_trec_eval_alone:
            # It prints defaults in its own way.
            printed = {"NumRelRet": "NumRet(rel=1)", "RBP(p=0.8)": "RBP"}.get(name, name)
            assert str(ir_measures.parse_measure(name)) == printed


def test_every_name_of_a_trec_eval_measure_is_parsed():
    measures = parse_measures(["all_trec"])
    assert len({measure.trec_eval for measure in measures}) == len(measures) > 90
    for measure in measures:
        assert parse_measures([measure.name]) == parse_measures([measure.trec_eval]) == (measure,)


def test_values_are_accessed_by_any_name_and_listed_once():
    means = MeasureValues({"MAP": 0.5, "P@1": 0.25})
    assert means["map"] == means["AP"] == means["MAP"] == 0.5
    assert means["p_1"] == means.get("P_1") == 0.25
    assert list(means) == ["MAP", "P@1"]
    assert "AP" in means
    assert "MRR" not in means
    assert means.get("recip_rank") is None
    with pytest.raises(KeyError, match="'MRR': expected one of MAP, P@1"):
        means["MRR"]


def test_old_values_are_read_under_common_names():
    old = {"map": 0.5, "recip_rank": 0.75, "P_1": 1.0, "loss of something": 2.0}
    new = {"MAP": 0.5, "MRR": 0.75, "P@1": 1.0, "loss of something": 2.0}
    assert dict(MeasureValues.from_any_names(old)) == new


def test_all_unknown_measures_are_listed_together():
    with pytest.raises(UsageError) as error:
        measure_names(["map", "P_0", "recip_rnk", "map_5", "nDGC@10", "xyzzy", "P_1abc"])

    assert str(error.value) == (
        "unknown measures: 'P_0' (did you mean 'P@10'?), 'recip_rnk' (did you mean 'MRR'?), "
        "'map_5' (did you mean 'MAP@5'?), 'nDGC@10' (did you mean 'nDCG@10' or 'Rndcg'?), 'xyzzy', 'P_1abc'"
    )


# The first three end the process inside pytrec_eval, the next are answered as if they were something else.
@pytest.mark.parametrize(
    "name",
    [
        "ndcg_10",
        "P_0.5",
        "ndcg.1=3",
        "P_5_7",
        "bpref_3",
        "P_99999999999",
        "runid",
        "relstring",
        "utility_1,-1",
        "",
    ],
)
def test_names_that_pytrec_eval_would_misread_are_refused(name):
    with pytest.raises(UsageError, match="unknown measures"):
        measure_names([name])


def test_no_measure_is_refused():
    with pytest.raises(UsageError, match="MAP,MRR,P@1"):
        measure_names([])


# The documentation of ir_measures, and what trec_eval prints for the same measure.
IR_MEASURES = {
    "AP": "map",
    "MAP": "map",
    "AP@100": "map_cut_100",
    "RR": "recip_rank",
    "MRR": "recip_rank",
    "P@1": "P_1",
    "Precision@5": "P_5",
    "R@100": "recall_100",
    "Recall@10": "recall_10",
    "nDCG": "ndcg",
    "nDCG@10": "ndcg_cut_10",
    "NDCG@10": "ndcg_cut_10",
    "Success@5": "success_5",
    "IPrec@0.1": "iprec_at_recall_0.10",
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


@pytest.mark.parametrize(("name", "printed"), IR_MEASURES.items())
def test_names_of_ir_measures_are_measures_of_trec_eval(name, printed):
    (measure,) = parse_measures([name])
    assert (measure.trec_eval, measure.level) == (printed, None)


def test_cutoffs_levels_and_parameters():
    names = [
        *("RR@10", "MRR@10", "RR(rel=2)", "P(rel=2)@5"),
        *("Judged@10", "RBP", "RBP(p=.5)", "RBP(p=0.9,rel=3)@7"),
    ]

    assert parse_measures(names) == (
        Measure("MRR@10", "RR", None, cutoff=10),
        Measure("MRR(rel=2)", "recip_rank", "recip_rank", level=2),
        Measure("P(rel=2)@5", "P_5", "P_5", level=2),
        Measure("Judged@10", "Judged", None, cutoff=10),
        Measure("RBP(p=0.8)", "RBP", None, persistence=0.8),
        Measure("RBP(p=0.5)", "RBP", None, persistence=0.5),
        Measure("RBP(p=0.9,rel=3)@7", "RBP", None, cutoff=7, level=3, persistence=0.9),
    )


UNKNOWN = {
    "Sucess@5": "did you mean 'Success@5'?",
    "hit@3": "did you mean 'Success@3'?",
    "Rprec@5": "did you mean 'Rprec'?",
    "P@0": "did you mean 'P@10'?",
    "RR@1.5": "did you mean 'MRR@10'?",
    "R": "did you mean 'R@10'?",
    "IPrec": "did you mean 'IPrec@0.1'?",
    "MMR": "did you mean 'MRR'?",
    "accuracy": "did you mean 'P@1' or 'Success@1'?",
    "Accuracy@5": "did you mean 'Success@5'?",
    "nDCG10": "did you mean 'nDCG@10'?",
    "AP(rel=0)": "AP takes rel of 1 or more",
    "AP(rel=1,rel=2)": "AP takes rel of 1 or more",
    "AP(k=3)": "AP takes rel of 1 or more",
    "AP()": "AP takes rel of 1 or more",
    "nDCG(rel=2)@10": "nDCG takes no parameters",
    "RBP(p=1)": "RBP takes p between 0 and 1 and rel of 1 or more",
    "RBP(p=.0)": "RBP takes p between 0 and 1 and rel of 1 or more",
}


@pytest.mark.parametrize(("name", "near"), UNKNOWN.items())
def test_unknown_name_suggests_near_names(name, near):
    with pytest.raises(UsageError) as error:
        parse_measures(["map", name])

    assert str(error.value) == f"unknown measures: {name!r} ({near})"


@pytest.mark.parametrize(
    "name", ["RR@99999999999", "AP(rel=99999999999)", "@10", "(rel=2)", "RBP(p=.8", "é@5"]
)
def test_names_out_of_range_are_refused(name):
    with pytest.raises(UsageError, match="unknown measures"):
        parse_measures([name])


@pytest.mark.parametrize(
    ("names", "average"),
    [
        (["NumRel", "num_q", "NumRelRet", "num_nonrel_judged_ret"], "sum"),
        (["GMAP", "gm_map", "gm_bpref"], "geometric"),
        (["MAP", "utility", "ERR@10", "RBP", "P@1"], "arithmetic"),
    ],
)
def test_a_measure_declares_how_it_is_averaged(names, average):
    assert {measure.average for measure in parse_measures(names)} == {average}
    assert {is_sum(name) for name in names} == {average == "sum"}
    assert {is_geometric(name) for name in names} == {average == "geometric"}
    assert {is_mean(name) for name in names} == {average == "arithmetic"}


def test_the_name_of_a_measure_does_not_decide_how_it_is_averaged(monkeypatch):
    """A registered family, named like a sum, is a mean unless it says otherwise."""
    monkeypatch.setitem(FAMILIES, "NumberNeeded", Family(None, ranking="RR", highest=math.inf))
    monkeypatch.setitem(FAMILIES, "Total", Family(None, ranking="Judged", average="sum"))

    mean, total = parse_measures(["NumberNeeded", "Total@3"])

    assert (mean.average, mean.highest) == ("arithmetic", math.inf)
    assert (total.average, total.highest) == ("sum", 1.0)


@pytest.mark.parametrize(("name", "highest"), [("MAP", 1), ("nERR@3", 1), ("utility", math.inf)])
def test_the_highest_value_of_a_measure(name, highest):
    assert highest_value(name) == highest
