"""Options of an import: empty candidates, labels in words, JSON layouts, separators, headers."""

import json

import pytest
from imported import labels_of

from aptool.formats.collection import CollectionFiles


@pytest.fixture
def run(aptool, tmp_path):
    """Imports one file as the split train."""

    def run(kind, text, *options, suffix=None):
        path = tmp_path / f"a.{suffix or kind}"
        path.write_text(text)
        return aptool("data", "import", kind, f"train={path}", "--output", tmp_path / "out", *options)

    return run


def refusal(finished):
    assert finished.code in (1, 2), finished.out
    assert len(finished.err) == 1
    return finished.err[0]


EMPTY = "question,answer,label\nWho?,Me,1\nWho?, ,0\nWhy?,,1\n"


def test_dropped_empty_candidates_are_counted_and_so_are_their_questions(run, tmp_path):
    finished = run("csv", EMPTY)

    assert finished.code == 0, finished.err
    assert labels_of(tmp_path / "out", "train") == {"Who?": {"Me": 1}}
    assert "train: empty candidates dropped: 2" in finished.err
    manifest = CollectionFiles(tmp_path / "out").manifest
    assert manifest["policies"]["empty_candidates_dropped"] == {"train": 2}
    assert manifest["policies"]["questions_without_candidates_dropped"] == {"train": 1}
    assert manifest["details"]["read"] == {"train": {"questions": 2, "candidates": 3}}


def test_empty_candidates_are_kept_on_request(run, tmp_path):
    assert run("csv", EMPTY, "--empty", "keep").code == 0
    assert labels_of(tmp_path / "out", "train") == {"Who?": {"Me": 1, " ": 0}, "Why?": {"": 1}}


@pytest.mark.parametrize(
    ("kind", "text", "location"),
    [
        ("csv", EMPTY, "line 3: column 'answer': ' '"),
        ("jsonl", '{"question": "q", "candidates": []}', "line 1: column 'candidates': []"),
        ("jsonl", '{"question": "q", "candidates": ["a", ""], "relevant": [0]}', "line 1, candidate 2"),
    ],
)
def test_refused_empty_candidates_name_the_options(run, kind, text, location):
    message = refusal(run(kind, text, "--empty", "refuse"))
    assert location in message
    assert "--empty drop" in message
    assert "--empty keep" in message


WORDS = "question,answer,label\nWho?,Me,Good\nWho?,You,Bad\nWhy?,No,Bad\nWhy?,Yes,Fair\n"


def test_labels_in_words_are_listed_in_the_error(run):
    message = refusal(run("csv", WORDS))
    assert "line 2: column 'label': 'Good': expected a whole number" in message
    assert "'Bad', 'Fair', 'Good'" in message
    assert "--relevant" in message


def test_numbers_may_be_named_as_relevant_labels(run, tmp_path):
    text = "question,answer,label\nWho?,Me,3\nWho?,You,1\nWho?,They,2\n"
    assert run("csv", text, "--relevant", "2,3").code == 0
    assert labels_of(tmp_path / "out", "train") == {"Who?": {"Me": 1, "You": 0, "They": 1}}


def test_a_relevant_label_that_does_not_occur_is_an_error(run, tmp_path):
    message = refusal(run("csv", WORDS, "--relevant", "Good,fair"))
    assert "'fair'" in message
    assert "'Bad', 'Fair', 'Good'" in message
    assert not (tmp_path / "out").exists()


def test_a_column_of_texts_is_no_column_of_labels(run):
    rows = "".join(f"Who?,Number {number},1\n" for number in range(200))
    message = refusal(run("csv", f"question,answer,n\n{rows}", "--label", "answer", "--relevant", "Number 1"))
    assert "column 'answer': more than 100 distinct labels" in message


def test_labels_in_words_in_json(run, tmp_path):
    pools = (
        {"question": "Who?", "candidates": ["Me", "You"], "label": ["Good", "Bad"]},
        {"question": "Why?", "candidates": [{"text": "No", "label": "Fair"}]},
    )
    text = "\n".join(map(json.dumps, pools))
    assert "'Bad', 'Fair', 'Good'" in refusal(run("jsonl", text))
    assert run("jsonl", text, "--relevant", "Good").code == 0
    assert labels_of(tmp_path / "out", "train") == {"Who?": {"Me": 1, "You": 0}, "Why?": {"No": 0}}


def test_positions_are_in_a_column_of_another_name(run, tmp_path):
    text = '{"question": "Who?", "candidates": ["Me", "You"], "gold": [1]}'
    assert "--positions" in refusal(run("jsonl", text))
    assert run("jsonl", text, "--positions", "gold").code == 0
    assert labels_of(tmp_path / "out", "train") == {"Who?": {"Me": 0, "You": 1}}


PAIR = {"question": "Who?", "answer": "Me", "label": 1}


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (json.dumps(PAIR), ()),
        (json.dumps(PAIR, indent=2), ()),
        (json.dumps([PAIR], indent=2), ()),
        (json.dumps({"data": {"items": [PAIR]}}), ("--field", "data.items")),
        (json.dumps({"data": [{"items": [PAIR]}]}, indent=1), ("--field", "data.items")),
        (
            json.dumps({"fields": {"title": "Who?", "reply": {"body": "Me", "ok": 1}}}),
            ("--question=fields.title", "--answer=fields.reply.body", "--label=fields.reply.ok"),
        ),
        (
            json.dumps({"fields": {"title": "Who?", "replies": [{"body": {"plain": "Me"}, "ok": True}]}}),
            (
                *("--question=fields.title", "--candidates=fields.replies"),
                *("--answer=body.plain", "--label=ok"),
            ),
        ),
        (json.dumps({"full.name": "Who?", "answer": "Me", "label": 1}), ("--question=full.name",)),
    ],
)
def test_layouts_of_json_give_the_same_pools(run, tmp_path, text, options):
    finished = run("json", text, *options)
    assert finished.code == 0, finished.err
    assert labels_of(tmp_path / "out", "train") == {"Who?": {"Me": 1}}


@pytest.mark.parametrize("unanswered", [None, {"replies": None}, {"replies": []}])
def test_a_null_on_the_path_of_the_candidates_is_a_ticket_without_an_answer(run, tmp_path, unanswered):
    answered = {"title": "Who?", "thread": {"replies": [{"text": "Me", "label": 1}]}}
    text = json.dumps([answered, {"title": "Why?", "thread": unanswered}])
    options = ("--question=title", "--candidates=thread.replies")

    finished = run("json", text, *options)

    assert finished.code == 0, finished.err
    assert labels_of(tmp_path / "out", "train") == {"Who?": {"Me": 1}}
    assert "train: questions without candidates dropped: 1" in finished.err
    assert "thread.replies" in refusal(run("json", text, *options, "--empty", "refuse"))


def test_a_table_without_a_split_is_refused_with_the_option_that_splits_it(aptool, tmp_path):
    (tmp_path / "a.csv").write_text("question,answer\nWho?,Me\n")
    message = refusal(aptool("data", "import", "csv", tmp_path / "a.csv", "--output", tmp_path / "out"))
    assert message.endswith("a.csv, or --split-ratio 80:10:10 to split one table")


def test_a_second_document_is_refused_with_its_line(run):
    text = json.dumps(PAIR, indent=2)
    assert "Extra data at line 6; expected one JSON document" in refusal(run("json", f"{text}\n{text}\n"))


def test_the_error_of_a_wrong_field_lists_the_lists_of_the_document(run):
    text = json.dumps({"faq": {"entries": [PAIR], "authors": [{"name": "A"}]}})
    message = refusal(run("json", text, "--field", "faq.items"))
    assert "no key 'items'" in message
    assert "--field faq.entries" in message


@pytest.mark.parametrize(("kind", "other"), [("csv", "json"), ("jsonl", "csv")])
def test_the_importer_of_another_format_is_named(run, kind, other):
    text = {"csv": json.dumps(PAIR), "jsonl": WORDS}[kind]
    assert f"`aptool data import {other}`" in refusal(run(kind, text))


@pytest.mark.parametrize(
    ("kind", "suffix", "mark", "options"),
    [
        ("csv", "csv", ",", ()),
        ("csv", "txt", ",", ()),
        ("csv", "tsv", "\t", ()),
        ("tsv", "csv", ",", ()),
        ("tsv", "txt", "\t", ()),
        ("csv", "csv", ";", ("--delimiter", ";")),
    ],
)
def test_csv_and_tsv_are_one_importer(run, tmp_path, kind, suffix, mark, options):
    text = "question,answer,label\nWho?,Me,1\n".replace(",", mark)
    assert run(kind, text, *options, suffix=suffix).code == 0
    assert labels_of(tmp_path / "out", "train") == {"Who?": {"Me": 1}}


def test_a_header_with_other_names_is_not_a_row(run):
    message = refusal(run("csv", "query,passage,rel\nWho?,Me,1\nWho?,You,0\n"))
    assert "column 'question': not found among 'query', 'passage', 'rel'; expected" in message
    assert "--columns" not in message


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        (("1,Who is it today?,A long story to tell", "0,Who is it today?,None"), "label,question,answer"),
        (("7,Who?,d1,It is me,1", "7,Who?,d2,It is you,0"), "column1,question,column3,answer,label"),
        (
            ("Who?,It is me,Good", "Who?,It is you,Bad", "Why?,So,Bad", "Why?,No,Good"),
            "question,answer,label",
        ),
    ],
)
def test_columns_are_guessed_from_the_first_rows(run, rows, names):
    message = refusal(run("csv", "\n".join(rows)))
    assert message.endswith(f"expected --columns {names}")
