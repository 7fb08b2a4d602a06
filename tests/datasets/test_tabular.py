"""Import of a user's own tables and JSON: the collection, and the errors of wrong files."""

import json

import pytest
from imported import pools_of

from aptool.datasets.import_options import ColumnNames, ImportPolicies
from aptool.datasets.rows import import_rows
from aptool.errors import InputError
from aptool.formats.collection import CollectionFiles
from aptool.formats.trec import read_qrels


def write(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")
    return str(path)


def import_tsv(tmp_path, path, **layout):
    names, policies = ColumnNames(**layout), ImportPolicies(empty="refuse")
    return import_rows(tmp_path / "out", {"train": path}, names, policies, name="mine", kind="tsv")


def import_jsonl(tmp_path, path, **layout):
    names = ColumnNames(**{"answer": "text", **layout})
    policies = ImportPolicies(empty="refuse")
    return import_rows(tmp_path / "out", {"train": path}, names, policies, name="mine", kind="jsonl")


def test_questions_without_ids_are_identified_by_their_text(tmp_path):
    path = write(tmp_path / "a.tsv", "label\tquestion\tanswer", "1\twho?\tme", "0\twhy?\tyes", "0\twho?\tyes")
    collection = import_tsv(tmp_path, path)
    assert pools_of(collection) == [
        ("train-Q0", "who?", [("train-Q0-0", "me"), ("train-Q0-1", "yes")]),
        ("train-Q1", "why?", [("train-Q1-0", "yes")]),
    ]
    assert read_qrels(collection.qrels("train")).rows() == [
        ("train-Q0", "train-Q0-0", 1),
        ("train-Q0", "train-Q0-1", 0),
        ("train-Q1", "train-Q1-0", 0),
    ]


def test_derived_ids_of_two_splits_differ(tmp_path):
    rows = ("question\tanswer\tlabel", "who?\tme\t1", "who?\tyou\t0")
    paths = {split: write(tmp_path / f"{split}.tsv", *rows) for split in ("dev", "test")}
    collection = import_rows(tmp_path / "out", paths, ColumnNames(), name="mine", kind="tsv")

    dev, test = (read_qrels(collection.qrels(split)).rows() for split in ("dev", "test"))
    assert dev == [("dev-Q0", "dev-Q0-0", 1), ("dev-Q0", "dev-Q0-1", 0)]
    assert test == [("test-Q0", "test-Q0-0", 1), ("test-Q0", "test-Q0-1", 0)]


def test_columns_by_name_with_ids_and_grades(tmp_path):
    path = write(
        tmp_path / "a.tsv", "n\tq\tqid\ta\taid\tgrade", "x\twho?\t7\tme\td1\t2", "y\twho?\t8\tme\td1\t-1"
    )
    collection = import_tsv(
        tmp_path, path, question="q", question_id="qid", answer="a", answer_id="aid", label="grade"
    )
    assert [pool[0] for pool in pools_of(collection)] == ["7", "8"]
    assert read_qrels(collection.qrels("train"))["relevance"].to_list() == [2, -1]
    assert collection.manifest["splits"]["train"]["positives"] == 1


def test_csv_by_its_name(tmp_path):
    # Two records on three lines; "" is a quotation mark, and the comma and the line break are text.
    path = write(tmp_path / "a.csv", "question,answer,label", '"who, me?","I said\n""you""",1', "why?,no,0")
    assert pools_of(import_tsv(tmp_path, path)) == [
        ("train-Q0", "who, me?", [("train-Q0-0", 'I said\n"you"')]),
        ("train-Q1", "why?", [("train-Q1-0", "no")]),
    ]


def test_quotation_marks_in_a_table_with_tabs_are_text_by_default(tmp_path):
    path = write(tmp_path / "a.tsv", "question\tanswer\tlabel", '"who?"\t"me\t1')
    assert pools_of(import_tsv(tmp_path, path)) == [("train-Q0", '"who?"', [("train-Q0-0", '"me')])]
    quoted = write(tmp_path / "b.tsv", "question\tanswer\tlabel", '"who?"\t"me"\t1')
    assert pools_of(import_tsv(tmp_path, quoted, quotes="csv")) == [
        ("train-Q0", "who?", [("train-Q0-0", "me")])
    ]


def test_a_text_in_quotation_marks_may_be_long(tmp_path):
    long = "words, " * 50_000  # the default limit of the csv module is 128 KiB
    path = write(tmp_path / "a.csv", "question,answer,label", f'who?,"{long}",1')
    assert pools_of(import_tsv(tmp_path, path)) == [("train-Q0", "who?", [("train-Q0-0", long)])]


def test_the_same_row_twice_is_dropped_and_counted(tmp_path):
    path = write(tmp_path / "a.tsv", "question\tanswer\tlabel", "who?\tme\t1", "who?\tme\t1", "who?\tyou\t0")
    collection = import_tsv(tmp_path, path)
    assert collection.manifest["policies"]["duplicate_candidates_dropped"] == {"train": 1}
    assert collection.manifest["details"]["read"]["train"] == {"questions": 1, "candidates": 3}
    assert collection.manifest["splits"]["train"]["candidates"] == 2


@pytest.mark.parametrize(
    ("lines", "layout", "message"),
    [
        (
            ["question\tanswers\tlabel", "who?\tme\t1"],
            {},
            "line 1: column 'answer': not found among 'question', 'answers', 'label'; expected this column, "
            "or --answer NAME; did you mean 'answers'?",
        ),
        (
            ["question,answer,label", "who?,me,1"],
            {"delimiter": "\t"},
            "column 'question': not found among 'question,answer,label'",
        ),
        (
            ["Question\tanswer\tlabel"],
            {},
            "column 'question': not found among 'Question', 'answer', 'label'; expected this column",
        ),
        (
            ["question\tanswer\tanswer\tlabel"],
            {},
            "line 1: column 'answer': expected each column's name once",
        ),
        ([], {}, "no line; expected a header line"),
        (["question\tanswer\tlabel"], {}, "no row; expected at least one question"),
        (["question\tanswer\tlabel", "who?\tme"], {}, "line 2: 2 columns; expected 3 as in the header"),
        (
            ["question\tanswer\tlabel", "who?\tme\tyes"],
            {},
            "line 2: column 'label': 'yes': expected a whole number",
        ),
        (["question\tanswer\tlabel", "who?\tme\t0.9"], {}, "line 2: column 'label': '0.9'"),
        (["question\tanswer\tlabel", "who?\tme\t"], {}, "line 2: column 'label': ''"),
        (["question\tanswer\tlabel", "who?\t \t1"], {}, "line 2: column 'answer': ' ': expected a text"),
        (["question\tanswer\tlabel", "\tme\t1"], {}, "line 2: column 'question': '': expected a text"),
        (
            ["question\tanswer\tlabel", "who?\tme\t1", "why?\tme\t1", "who?\tme\t0"],
            {},
            "line 4: column 'label': 0: expected the label 1 that candidate 'train-Q0-0' of this "
            "question has in line 2",
        ),
        (["question\tanswer\tlabel", "who?\tme\t1", "", "why?\tme\t1"], {}, "line 3: '': expected a row"),
        (["id\tquestion\tanswer\tlabel", "a b\twho?\tme\t1"], {"question_id": "id"}, "column 'id': 'a b'"),
        (["id\tquestion\tanswer\tlabel", "#1\twho?\tme\t1"], {"question_id": "id"}, "not begin with '#'"),
        (
            ["id\tquestion\tanswer\tlabel", "1\twho?\tme\t1", "1\twhy?\tme\t1"],
            {"question_id": "id"},
            "line 3: column 'question': 'why?': expected the text that question '1' has in line 2",
        ),
    ],
)
def test_wrong_tables_are_refused(tmp_path, lines, layout, message):
    path = write(tmp_path / "a.tsv", *lines)
    with pytest.raises(InputError) as error:
        import_tsv(tmp_path, path, **layout)
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        # The unclosed quotation mark would make one field of all following lines.
        (["question,answer,label", 'who?,"me,1', "why?,no,0"], "line 2: unexpected end of data; "),
        (["question,answer,label", 'who?,"me"s,1'], "line 2: ',' expected after"),
        (["question,answer,label", "who?,me,1", "", "why?,no,0"], "line 3: '': expected a row"),
        (["question,answer,label", '"a\nb",me,1', "why?,no,x"], "line 4: column 'label': 'x'"),
    ],
)
def test_wrong_csv_files_are_refused(tmp_path, lines, message):
    path = write(tmp_path / "a.csv", *lines)
    with pytest.raises(InputError) as error:
        import_tsv(tmp_path, path)
    assert message in str(error.value)


def test_json_lines_with_lists_of_candidates(tmp_path):
    path = write(
        tmp_path / "a.jsonl",
        '{"question": "who?", "candidates": [{"text": "me", "label": 1}, {"text": "you", "label": false}]}',
        "",
        '{"question": "why?", "more": [], "candidates": [{"label": 0, "text": "no", "from": "x"}]}',
    )
    collection = import_jsonl(tmp_path, path)
    assert pools_of(collection) == [
        ("train-Q0", "who?", [("train-Q0-0", "me"), ("train-Q0-1", "you")]),
        ("train-Q1", "why?", [("train-Q1-0", "no")]),
    ]
    assert read_qrels(collection.qrels("train"))["relevance"].to_list() == [1, 0, 0]


def test_jsonl_with_ids_under_other_names(tmp_path):
    pool = {"id": 12, "q": "who?", "pool": [{"a": "me", "n": "x", "ok": 1}, {"a": "me", "n": "y", "ok": 0}]}
    path = write(tmp_path / "a.jsonl", json.dumps(pool))
    names = {"question": "q", "answer": "a", "label": "ok", "candidates": "pool"}
    collection = import_jsonl(tmp_path, path, **names, question_id="id", answer_id="n")
    assert pools_of(collection) == [("12", "who?", [("x", "me"), ("y", "me")])]


GOOD = '{"question": "who?", "candidates": [{"text": "me", "label": 1}]}'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: Expecting property name enclosed in double quotes at character 2; "),
        ("[1]", "line 2: [1]: expected a JSON object"),
        (GOOD + GOOD, "line 2: Extra data"),
        (GOOD.replace("who?", "\\ud800"), "line 2: '\\ud800', which UTF-8 cannot express"),
        (GOOD.replace("who?", "\\u0000"), "column 'question': '\\x00': expected a text without NUL"),
        (GOOD.replace('"who?"', "7"), "line 2: column 'question': 7: expected a text"),
        (
            GOOD.replace("question", "Question"),
            "column 'question': not found among 'Question', 'candidates'; expected this column",
        ),
        (
            GOOD.replace('"text"', '"texts"'),
            "line 2, candidate 1: column 'text': not found among 'texts', 'label'; expected",
        ),
        (GOOD.replace("1}", "0.5}"), "line 2, candidate 1: column 'label': '0.5': expected a whole number"),
        (GOOD.replace("1}", "NaN}"), "line 2: NaN is not JSON; "),
        (GOOD.replace("1}", "null}"), "column 'label': 'null'"),
        (GOOD.replace("1}", '1, "label": 0}'), "line 2: an object with the same key twice; "),
        (GOOD.replace('[{"text": "me", "label": 1}]', "[]"), "'candidates': []: expected a list of at least"),
        (
            GOOD.replace('[{"text": "me", "label": 1}]', '["me"]'),
            "keys 'question', 'candidates'; expected",
        ),
        ("[" * 100_000, "line 2: "),
        ('{"question": ' + "9" * 5000 + "}", "line 2: "),
    ],
)
def test_wrong_json_lines_are_refused(tmp_path, line, message):
    path = write(tmp_path / "a.jsonl", GOOD, line)
    with pytest.raises(InputError) as error:
        import_jsonl(tmp_path, path)
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_table_without_a_header_line(aptool, tmp_path):
    path = write(tmp_path / "a.csv", 'who?,"me, you",1', "who?,yes,0", "why?,yes,1")

    finished = aptool(
        *("data", "import", "tsv", f"train={path}", "--columns", "question,answer,label"),
        *("--output", tmp_path / "out"),
    )

    assert finished.code == 0, finished.err
    assert pools_of(CollectionFiles(tmp_path / "out")) == [
        ("train-Q0", "who?", [("train-Q0-0", "me, you"), ("train-Q0-1", "yes")]),
        ("train-Q1", "why?", [("train-Q1-0", "yes")]),
    ]
    with pytest.raises(InputError, match=r"a\.csv: --columns: column 'label': not found among"):
        import_tsv(tmp_path, path, header=("question", "answer", "relevance"))
    with pytest.raises(InputError, match="line 1: 3 columns; expected 2"):
        import_tsv(tmp_path, path, header=("question", "answer"), label="answer")


def test_a_json_array_is_read_as_lines_are(tmp_path):
    pools = [
        {"question": "who?", "candidates": [{"text": "me", "label": 1}, {"text": "yes", "label": 0}]},
        {"question": "why?", "candidates": [{"text": "yes", "label": True}]},
    ]
    lines = import_jsonl(tmp_path, write(tmp_path / "a.jsonl", *map(json.dumps, pools)))
    expected = pools_of(lines), read_qrels(lines.qrels("train")).rows()
    for text in (json.dumps(pools, indent=2), f"\ufeff {json.dumps(pools)}\n\n"):
        array = import_jsonl(tmp_path, write(tmp_path / "a.json", text))
        assert (pools_of(array), read_qrels(array.qrels("train")).rows()) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[{"question": "q"}, {"question": "q"}]',
            r"item 1: column 'text': not found among 'question'; .* --answer NAME, or a list 'candidates'",
        ),
        (
            '[{"question": "q", "candidates": ["a"], "relevant": []} 3]',
            r"Expecting ',' delimiter at .*expected an array of JSON objects",
        ),
        ('[{"question": "q", "candidates": ["a"], "relevant": []}, 3]', "item 2: 3: expected a JSON object"),
        (
            '[{"question": "q", "candidates": ["a"], "relevant": []}',
            r"Expecting ',' delimiter at .*expected an array of JSON objects",
        ),
        (
            '[{"question": "q", "candidates": ["a"], "relevant": [1]}]',
            r"item 1: column 'relevant': \[1\]: expected",
        ),
        ('[{"question": "q", "candidates": ["a"], "relevant": [true]}]', "a list of positions from 0 to 0"),
        (
            '[{"question": "q", "candidates": ["a"], "label": [1, 0]}]',
            "a list of 1 labels, one per candidate",
        ),
        (
            '[{"question": "q", "candidates": ["a"]}]',
            r"expected 'relevant' \(positions.*or 'label' \(one label per candidate\), or --label NAME",
        ),
        ('[{"question": "q", "candidates": ["a", 1], "relevant": []}]', "candidate 2: 1: expected a text"),
        ("[]", r"no row; expected at least one question"),
        ('[{"question": "q", "candidates": ["a"], "label": [NaN]}]', "NaN is not JSON"),
    ],
)
def test_errors_in_an_array_name_the_item(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        import_jsonl(tmp_path, write(tmp_path / "a.json", text))


def test_candidates_as_plain_texts(tmp_path):
    by_position = '{"question": "who?", "candidates": ["me", "you", "yes"], "relevant": [2, 0]}'
    by_label = '{"question": "who?", "candidates": ["me", "you", "yes"], "label": [1, 0, 1]}'
    for line in (by_position, by_label):
        collection = import_jsonl(tmp_path, write(tmp_path / "a.jsonl", line))

        assert pools_of(collection) == [
            ("train-Q0", "who?", [("train-Q0-0", "me"), ("train-Q0-1", "you"), ("train-Q0-2", "yes")])
        ]
        assert read_qrels(collection.qrels("train"))["relevance"].to_list() == [1, 0, 1]


@pytest.mark.parametrize(("resolution", "labels"), [("max", [2, 0]), ("min", [0, 0])])
def test_contradictory_labels_are_resolved_and_counted(aptool, tmp_path, resolution, labels):
    rows = ("who?\tme\t0", "who?\tyes\t0", "who?\tme\t2", "who?\tme\t1", "who?\tyes\t0")
    path = write(tmp_path / "a.tsv", "question\tanswer\tlabel", *rows)
    command = ("data", "import", "tsv", f"train={path}", "--output", tmp_path / "out")

    refused = aptool(*command)
    resolved = aptool(*command, "--conflicts", resolution)

    assert refused.code == 1
    assert "line 4: column 'label': 2: expected the label 0 that candidate 'train-Q0-0'" in refused.err[-1]
    assert resolved.code == 0
    assert f"train: contradictory labels {resolution} kept: 1" in resolved.err
    collection = CollectionFiles(tmp_path / "out")
    assert read_qrels(collection.qrels("train"))["relevance"].to_list() == labels
    assert collection.manifest["policies"][f"contradictory_labels_{resolution}_kept"] == {"train": 1}
