"""Measures of groups of questions, by hand, and groups from files and frames."""

import polars as pl
import pytest

from aptool.errors import InputError
from aptool.evaluation.groups import groups_of_column, groups_of_mapping, read_groups
from aptool.evaluation.measures import evaluate_frames

# The rank of the relevant answer of q1 to q6: 1, 2, 4, 1, 2, none.
RANKS = {"q1": 1, "q2": 2, "q3": 4, "q4": 1, "q5": 2, "q6": None}
ROWS = [
    (question, "r" if rank == position else f"n{position}", -float(position))
    for question, rank in RANKS.items()
    for position in range(1, 5)
]
RUN = pl.DataFrame(ROWS, schema=["question_id", "answer_id", "score"], orient="row")
QRELS = pl.DataFrame({"question_id": list(RANKS), "answer_id": "r", "relevance": 1})
DOMAINS = {"q1": "law", "q2": "law", "q3": "health", "q4": "health", "q5": "health"}


@pytest.fixture(scope="module")
def evaluation():
    return evaluate_frames(QRELS, RUN, ["MRR", "P@1", "NumRelRet"])


def test_means_of_groups_by_hand(evaluation):
    result = evaluation.grouped(groups_of_mapping("by", DOMAINS))

    assert list(result.groups) == ["health", "law"]
    health, law = result.groups["health"], result.groups["law"]
    assert (health.questions, law.questions, result.ungrouped) == (3, 2, ("q6",))
    assert health.means == pytest.approx({"MRR": (1 / 4 + 1 + 1 / 2) / 3, "P@1": 1 / 3, "NumRelRet": 3})
    assert law.means == pytest.approx({"MRR": 3 / 4, "P@1": 1 / 2, "NumRelRet": 2})
    assert law.means["RR"] == 3 / 4
    # The means over all questions do not change.
    assert result.means["MRR"] == pytest.approx((1 + 1 / 2 + 1 / 4 + 1 + 1 / 2 + 0) / 6)


def test_means_of_groups_weighted_by_size_are_the_mean_of_all(evaluation):
    result = evaluation.grouped(groups_of_mapping("by", {**DOMAINS, "q6": "other"}))

    total = sum(group.questions * group.means["MRR"] for group in result.groups.values())
    assert total / len(RANKS) == pytest.approx(result.means["MRR"])


def test_a_group_of_all_questions_has_the_intervals_of_the_run(evaluation):
    result = evaluation.grouped(groups_of_mapping("by", dict.fromkeys(RANKS, "all")))

    assert result.groups["all"].intervals(0.9) == result.intervals(0.9)
    low, high = result.intervals(0.9)["RR"]
    assert 0 < low < result.means["MRR"] < high < 1
    wide = result.intervals(0.99)["MRR"]
    assert wide.low < low < high < wide.high


def test_groups_under_ten_questions_are_marked():
    questions = [f"q{number}" for number in range(19)]
    qrels = pl.DataFrame({"question_id": questions, "answer_id": "r", "relevance": 1})
    run = pl.DataFrame({"question_id": questions, "answer_id": "r", "score": 1.0})
    groups = {question: "ten" if number < 10 else "nine" for number, question in enumerate(questions)}

    result = evaluate_frames(qrels, run).grouped(groups_of_mapping("by", groups)).groups

    assert (result["ten"].questions, result["ten"].is_small) == (10, False)
    assert (result["nine"].questions, result["nine"].is_small) == (9, True)
    assert "(few)" in evaluate_frames(qrels, run).grouped(groups_of_mapping("by", groups))._repr_html_()


def test_numeric_groups_are_sorted_by_number(evaluation):
    years = {"q1": 2010, "q2": 999, "q3": 2010, "q4": 1e4}

    assert list(evaluation.grouped(groups_of_mapping("by", years)).groups) == ["999", "2010", "10000.0"]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet"])
def test_groups_are_read_from_a_column_of_a_file(tmp_path, evaluation, suffix):
    path = tmp_path / f"groups.{suffix}"
    frame = pl.DataFrame({"qid": [*DOMAINS, "q6"], "note": 'it\'s "5"', "domain": [*DOMAINS.values(), None]})
    if suffix == "parquet":
        frame.write_parquet(path)
    else:
        frame.write_csv(path, separator="\t" if suffix == "tsv" else ",")

    result = evaluation.grouped(read_groups(path, "domain"))

    assert result.groups["law"].means["MRR"] == 3 / 4
    assert result.ungrouped == ("q6",)


def test_pools_parquet_is_a_file_of_groups(tmp_path, evaluation):
    pools = [{"answer_id": "r", "text": "yes"}]
    frame = pl.DataFrame({"question_id": ["q1"], "question": ["?"], "candidates": [pools], "domain": ["law"]})
    frame.write_parquet(tmp_path / "x.pools.parquet")

    assert (
        evaluation.grouped(read_groups(tmp_path / "x.pools.parquet", "domain")).groups["law"].questions == 1
    )
    with pytest.raises(InputError, match=r"column 'candidates': .* expected one value per row"):
        read_groups(tmp_path / "x.pools.parquet", "candidates")
    with pytest.raises(InputError, match="no column 'topic'; expected one of question, candidates, domain"):
        read_groups(tmp_path / "x.pools.parquet", "topic")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": ["q1"], "domain": ["law"]}, "id, domain: expected a column 'question_id'"),
        ({"question_id": [1], "domain": ["law"]}, "column 'question_id': 'Int64': expected text"),
        ({"question_id": ["q1"], "domain": [None]}, "column 'domain': no value"),
        (
            {"question_id": ["q1", "q1"], "domain": ["law", "health"]},
            "question 'q1': column 'domain': 'law and health': expected one group",
        ),
    ],
)
def test_invalid_group_column_is_refused(columns, message):
    with pytest.raises(InputError) as error:
        groups_of_column("x.csv", pl.DataFrame(columns), "domain")

    assert message in str(error.value).replace("'id, domain'", "id, domain")


def test_unreadable_group_files_are_refused(tmp_path):
    (tmp_path / "x.parquet").write_text("no table")
    (tmp_path / "x.xlsx").write_text("")
    for name, expected in (("x.parquet", "expected a table"), ("x.xlsx", "a name ending in .tsv, .csv")):
        with pytest.raises(InputError, match=expected):
            read_groups(tmp_path / name, "domain")
