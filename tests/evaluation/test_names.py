"""Names of measures: trec_eval's, those of ir_measures, and the nearest to an unknown one."""

import pytest

from aptool.errors import UsageError
from aptool.evaluation.names import Measure, measure_names, measure_title, parse_measures


def test_measures_have_trec_evals_names():
    assert measure_names(["map", "P_1", "ndcg_cut.10", "map"]) == ("map", "P_1", "ndcg_cut.10")
    assert measure_names(["P.5,10", "iprec_at_recall.0.1,0.2"]) == (
        *("P_5", "P_10"),
        *("iprec_at_recall_0.10", "iprec_at_recall_0.20"),
    )
    assert parse_measures(["recall_0100"]) == (Measure("recall_0100", "recall_100", "recall_100"),)
    assert parse_measures(["Rprec_mult_1"])[0].trec_eval == "Rprec_mult_1.00"
    # trec_eval -h -m success: default param: success.1,5,10
    assert measure_names(["success"]) == ("success_1", "success_5", "success_10")
    # trec_eval -h -m P: default param: P.5,10,15,20,30,100,200,500,1000
    assert measure_names(["P"]) == tuple(f"P_{k}" for k in (5, 10, 15, 20, 30, 100, 200, 500, 1000))
    assert set(measure_names(["set"])) > {"set_P", "set_recall", "set_F", "num_q", "num_rel"}
    assert "runid" not in measure_names(["official"])


def test_titles_are_those_of_papers():
    assert [measure_title(name) for name in ("map", "recip_rank", "P_1", "ndcg_cut_10")] == [
        "MAP",
        "MRR",
        "P@1",
        "ndcg_cut_10",
    ]


def test_all_bad_measures_are_named_together():
    with pytest.raises(UsageError) as error:
        measure_names(
            ["mrr", "map", "ndcg@10", "P_0", "precision@3", "recip_rnk", "map_5", "xyzzy", "P_1abc"]
        )

    assert str(error.value) == (
        "unknown measures: 'mrr' (did you mean 'recip_rank'?), "
        "'ndcg@10' (did you mean 'nDCG@10'?), 'P_0', 'precision@3' (did you mean 'P@3'?), "
        "'recip_rnk' (did you mean 'recip_rank'?), "
        "'map_5' (did you mean 'map_cut_5'?), 'xyzzy', 'P_1abc'"
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
    with pytest.raises(UsageError, match="map,recip_rank,P_1"):
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
    assert parse_measures([name]) == (Measure(name, printed, printed),)


def test_cutoffs_levels_and_parameters():
    names = [
        *("RR@10", "MRR@10", "RR(rel=2)", "P(rel=2)@5"),
        *("Judged@10", "RBP", "RBP(p=.5)", "RBP(p=0.9,rel=3)@7"),
    ]

    assert parse_measures(names) == (
        Measure("RR@10", "RR", None, cutoff=10),
        Measure("MRR@10", "RR", None, cutoff=10),
        Measure("RR(rel=2)", "recip_rank", "recip_rank", level=2),
        Measure("P(rel=2)@5", "P_5", "P_5", level=2),
        Measure("Judged@10", "Judged", None, cutoff=10),
        Measure("RBP", "RBP", None, persistence=0.8),
        Measure("RBP(p=.5)", "RBP", None, persistence=0.5),
        Measure("RBP(p=0.9,rel=3)@7", "RBP", None, cutoff=7, level=3, persistence=0.9),
    )


UNKNOWN = {
    "nDGC@10": "did you mean 'nDCG@10'?",
    "ndcg@10": "did you mean 'nDCG@10'?",
    "mrr@10": "did you mean 'MRR@10'?",
    "Sucess@5": "did you mean 'Success@5'?",
    "Rprec@5": "did you mean 'Rprec'?",
    "P@0": "did you mean 'P@10'?",
    "RR@1.5": "did you mean 'RR@10'?",
    "R": "did you mean 'R@10'?",
    "AP(rel=0)": "AP takes rel of 1 or more",
    "AP(rel=1,rel=2)": "AP takes rel of 1 or more",
    "AP(k=3)": "AP takes rel of 1 or more",
    "AP()": "AP takes rel of 1 or more",
    "nDCG(rel=2)@10": "nDCG takes no parameters",
    "RBP(p=1)": "RBP takes p between 0 and 1 and rel of 1 or more",
    "RBP(p=.0)": "RBP takes p between 0 and 1 and rel of 1 or more",
}


@pytest.mark.parametrize(("name", "near"), UNKNOWN.items())
def test_an_unknown_name_is_answered_with_what_is_near(name, near):
    with pytest.raises(UsageError) as error:
        parse_measures(["map", name])

    assert str(error.value) == f"unknown measures: {name!r} ({near})"


@pytest.mark.parametrize(
    "name", ["RR@99999999999", "AP(rel=99999999999)", "@10", "(rel=2)", "RBP(p=.8", "é@5"]
)
def test_names_out_of_range_are_refused(name):
    with pytest.raises(UsageError, match="unknown measures"):
        parse_measures([name])
