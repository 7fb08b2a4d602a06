"""Pools in Parquet: round trips and errors for malformed files."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tiny import row, write_pools

import aptool
from aptool.data import pools as pools_module
from aptool.data.parquet import arrow_schema, write_tables
from aptool.data.pools import PoolRecord, Unit, list_units, read_answers, read_pools, write_answers
from aptool.errors import InputError
from aptool.files import stat


def read(path, answers=None):
    """All pools of a file as (question id, question, [(answer id, text)])."""
    rows = []
    for unit in list_units([path]):
        pools = read_pools(unit, answers)
        pairs = [
            (answer_id, pools.answers[text].as_py())
            for answer_id, text in zip(pools.answer_ids.to_pylist(), pools.pair_answer.tolist(), strict=True)
        ]
        for i, question_id in enumerate(pools.question_ids.to_pylist()):
            begin, end = pools.offsets[i : i + 2]
            assert (pools.pair_question[begin:end] == i).all()
            rows.append((question_id, pools.questions[i].as_py(), pairs[begin:end]))
    return rows


def error_of(path, answers=None):
    with pytest.raises(InputError) as error:
        read(path, answers)
    assert "\n" not in str(error.value)
    return str(error.value).removeprefix(str(path.parent) + "/")


def test_pools_of_another_writer_are_read(tmp_path):
    """Four pairs have three texts: the first and the third pair have the same text."""
    path = write_pools(
        tmp_path / "x.parquet",
        [row("q1", "where?", [("a1", "here"), ("a2", "there")]), row("q2", "", [("a3", "here")])],
        [row("q3", "who?", [("a3", "")])],
    )

    (unit,) = list_units([path])
    assert unit == Unit(str(path), (0, 1), 4, None, stat(path).version)
    assert read_pools(unit).answers.to_pylist() == ["here", "there", ""]
    assert read_pools(unit).pair_answer.tolist() == [0, 1, 0, 2]
    assert read(path) == [
        ("q1", "where?", [("a1", "here"), ("a2", "there")]),
        ("q2", "", [("a3", "here")]),
        ("q3", "who?", [("a3", "")]),
    ]


def sized(path, *pools_of_groups, candidates=2):
    """A file whose row groups have these numbers of pools."""
    rows = iter(range(sum(pools_of_groups)))
    pairs = [(f"a{number}", f"text {number}") for number in range(candidates)]
    return write_pools(
        path, *([row(f"q{next(rows)}", "why?", pairs) for _ in range(n)] for n in pools_of_groups)
    )


@pytest.mark.parametrize(
    ("groups", "limit", "units"),
    [
        ([2, 2, 2], 8, [((0, 1), 8, None), ((2,), 4, None)]),
        ([2, 2, 2], 7, [((0,), 4, None), ((1,), 4, None), ((2,), 4, None)]),
        ([1, 0, 1], 100, [((0, 2), 4, None)]),  # the empty row group is left out
        ([6, 1], 4, [((0,), 4, (0, 2)), ((0,), 4, (2, 4)), ((0,), 4, (4, 6)), ((1,), 2, None)]),
        ([3], 5, [((0,), 6, None)]),  # a little more than the limit is not divided
        ([3], 1, [((0,), 2, (0, 1)), ((0,), 2, (1, 2)), ((0,), 2, (2, 3))]),  # a pool is not divided
    ],
)
def test_units_join_small_row_groups_and_divide_large_ones(tmp_path, monkeypatch, groups, limit, units):
    monkeypatch.setattr(pools_module, "UNIT_PAIRS", limit)

    paths = [sized(tmp_path / f"{name}.parquet", *groups) for name in "ba"]

    found = list_units(paths)

    both = [(str(path), *unit) for path in paths for unit in units]
    assert [(unit.path, unit.row_groups, unit.pairs, unit.rows) for unit in found] == both


@pytest.mark.parametrize(("limit", "batch"), [(1, 1000), (3, 3), (4, 1), (9, 3), (1000, 1)])
def test_units_of_any_size_have_the_pools_of_the_file(tmp_path, monkeypatch, limit, batch):
    path = sized(tmp_path / "x.parquet", 7, 1, 2)
    whole = read(path)
    monkeypatch.setattr(pools_module, "UNIT_PAIRS", limit)
    monkeypatch.setattr(pools_module, "_BATCH_PAIRS", batch)

    assert read(path) == whole
    assert len(whole) == 10


@pytest.mark.parametrize("limit", [2, 1000])
def test_a_faulty_row_of_a_unit_is_named_with_its_row_group(tmp_path, monkeypatch, limit):
    """The unit joins both row groups, or is a row of the second one."""
    monkeypatch.setattr(pools_module, "UNIT_PAIRS", limit)
    write_pools(tmp_path / "x.parquet", [row("q1"), row("q2")], [row("q3"), row("q 4"), row("q5")])
    monkeypatch.chdir(tmp_path)

    message = error_of(tmp_path / "x.parquet")

    assert message.startswith("x.parquet: row group 1: row 1: column 'question_id': 'q 4'")


def test_a_question_in_two_row_groups_of_a_unit_names_both_rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_pools(tmp_path / "x.parquet", [row("q1"), row("q2")], [row("q3"), row("q2")])

    message = error_of(tmp_path / "x.parquet")

    assert message == (
        "x.parquet: row group 1: row 1: column 'question_id': 'q2': expected each question once, "
        "but it is also in row group 0: row 1"
    )


@pytest.mark.parametrize(
    ("limit", "value", "groups"),
    [
        ("ROW_GROUP_CANDIDATES", 5, [3, 3, 1]),  # a row group ends with the pool that reaches 5
        ("ROW_GROUP_BYTES", 16 * 2 + 4 * 2, [1] * 7),  # two candidates of 4 + 16 bytes each
        ("ROW_GROUP_CANDIDATES", 1000, [7]),
    ],
)
def test_row_groups_are_bounded(tmp_path, monkeypatch, limit, value, groups):
    monkeypatch.setattr(pools_module, limit, value)
    path = tmp_path / "x.pools.parquet"

    pools = [PoolRecord(f"q{number}", "where", ["a1", "a2"], ["here", "far!"]) for number in range(7)]
    write_tables(path, arrow_schema("pools"), pools_module.pool_tables(pools))

    footer = pq.read_metadata(path)
    assert [footer.row_group(i).num_rows for i in range(footer.num_row_groups)] == groups
    assert [pool[0] for pool in read(path)] == [f"q{number}" for number in range(7)]


NULLABLE = pa.schema(
    [
        ("question_id", pa.string()),
        ("question", pa.string()),
        ("candidates", pa.list_(pa.struct([("answer_id", pa.string()), ("text", pa.string())]))),
    ]
)
GOOD = row("good")


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        ([], "column 'candidates': []: expected a pool of at least one candidate"),
        ([(None, "x")], "column 'candidates.answer_id': None: expected a value"),
        (
            [("a1", None)],
            "column 'candidates.text': None: expected a text, or an answers file with 'a1'",
        ),
        ([("a1", "x"), ("a\x1c2", "x")], r"column 'candidates.answer_id': 'a\x1c2': expected an id without"),
        (
            [("a1", "x"), ("a2", "y"), ("a1", "x")],
            "column 'candidates.answer_id': 'a1': expected each answer once in a pool",
        ),
    ],
)
def test_invalid_row_is_named(tmp_path, candidates, message):
    wrong = row("q1", candidates=candidates)
    path = write_pools(tmp_path / "x.parquet", [row("first")], [GOOD, wrong], schema=NULLABLE)

    assert error_of(path).startswith(f"x.parquet: row group 1: row 1: {message}")


def test_text_that_is_not_utf8_is_named(tmp_path):
    # Parquet does not guarantee that strings are UTF-8.
    def written(question, answer):
        texts = pa.array([b"fine", question]), pa.array([b"here", answer, b"there"])
        question, answer = (pa.Array.from_buffers(pa.string(), len(a), a.buffers()) for a in texts)
        candidate = pa.StructArray.from_arrays([pa.array(["a1", "a1", "a2"]), answer], ["answer_id", "text"])
        pools = pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), candidate)
        table = pa.table({"question_id": ["q1", "q2"], "question": question, "candidates": pools})
        pq.write_table(table, tmp_path / "x.parquet")
        return tmp_path / "x.parquet"

    said = "expected text in UTF-8"
    assert error_of(written(b"caf\xe9", b"")) == (
        f"x.parquet: row group 0: row 1: column 'question': b'caf\\xe9': {said}"
    )
    assert error_of(written(b"", b"\xff")) == (
        f"x.parquet: row group 0: row 1: column 'candidates.text': b'\\xff': {said}"
    )


def test_answer_without_a_text_is_named(tmp_path):
    write_answers(tmp_path / "answers.parquet", [("a1", "here")])
    path = write_pools(tmp_path / "x.parquet", [GOOD, row("q1", candidates=[("a1", None), ("a9", None)])])

    message = error_of(path, read_answers(tmp_path / "answers.parquet"))

    assert message == (
        "x.parquet: row group 0: row 1: column 'candidates.answer_id': 'a9': "
        "expected an answer of answers.parquet"
    )


def test_missing_column_is_named(tmp_path):
    name = "question"
    schema = pa.schema([field for field in arrow_schema("pools") if field.name != name])
    path = write_pools(tmp_path / "x.parquet", [{key: row()[key] for key in schema.names}], schema=schema)

    have = ", ".join(schema.names)
    assert error_of(path).startswith(f"x.parquet: {have!r}: expected a column {name!r} of type ")


@pytest.mark.parametrize(
    ("name", "kind", "value", "said"),
    [
        ("question_id", pa.float64(), 7.0, "double"),
        ("question", pa.binary(), b"where", "binary"),
        ("candidates", pa.list_(pa.string()), ["a1"], "list<element: string>"),
        (
            "candidates",
            pa.list_(pa.struct([("answer_id", pa.float32()), ("text", pa.string())])),
            [{"answer_id": 1.0, "text": "x"}],
            "list<",
        ),
    ],
)
def test_column_of_another_type_is_named(tmp_path, name, kind, value, said):
    schema = pa.schema(
        [pa.field(field.name, kind) if field.name == name else field for field in arrow_schema("pools")]
    )
    path = write_pools(tmp_path / "x.parquet", [{**row(), name: value}], schema=schema)

    assert error_of(path).startswith(f"x.parquet: column {name!r}: '{said}")
    assert "expected type " in error_of(path)


def test_ids_may_be_whole_numbers(tmp_path):
    kind = pa.uint32()
    answer = pa.struct([("answer_id", kind), ("text", pa.string())])
    columns = [("question_id", kind), ("question", pa.string()), ("candidates", pa.list_(answer))]
    candidates = [{"answer_id": 10, "text": "x"}, {"answer_id": 9, "text": "y"}]
    rows = [{"question_id": 7, "question": "where", "candidates": candidates}]
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(columns)), tmp_path / "x.parquet")

    assert aptool.Pools.load(tmp_path / "x.parquet").to_dict() == {"7": ("where", {"10": "x", "9": "y"})}


def test_files_that_are_not_parquet_are_named(tmp_path):
    (tmp_path / "text.parquet").write_text("q1 Q0 a1 1 0.5 tag\n")
    (tmp_path / "empty.parquet").write_text("")
    complete = write_pools(tmp_path / "complete.parquet", [row("q1")]).read_bytes()
    (tmp_path / "cut.parquet").write_bytes(complete[: len(complete) // 2])

    for name in ("text", "empty", "cut"):
        message = error_of(tmp_path / f"{name}.parquet")
        assert message.startswith(f"{name}.parquet: ")
        assert message.endswith("expected a readable Parquet file")
    assert error_of(tmp_path / "none.parquet") == "none.parquet: file not found; expected a file that exists"
    (tmp_path / "folder").mkdir()
    assert error_of(tmp_path / "folder") == "folder: a folder; expected a file"


def test_damaged_pages_are_named_with_their_row_group(tmp_path):
    path = write_pools(tmp_path / "x.parquet", [row("q1")], [row(f"q{i}") for i in range(2, 200)])
    data = bytearray(path.read_bytes())
    start = pq.read_metadata(path).row_group(1).column(0).dictionary_page_offset
    data[start : start + 60] = b"\xff" * 60
    path.write_bytes(data)

    message = error_of(path)

    assert message.startswith("x.parquet: row group 1: ")
    assert message.endswith("expected a readable Parquet file")


ANSWERS = pa.schema([("answer_id", pa.string()), ("text", pa.string())])


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([("a1", None)], "row 0: column 'text': None: expected a value"),
        (
            [("a1", "x"), ("a2", "y"), ("a1", "z")],
            "row 2: column 'answer_id': 'a1': expected each id once, but it is also in row 0",
        ),
    ],
)
def test_invalid_shared_answers_are_named(tmp_path, answers, message):
    path = tmp_path / "answers.parquet"
    rows = [dict(zip(("answer_id", "text"), answer, strict=True)) for answer in answers]
    pq.write_table(pa.Table.from_pylist(rows, schema=ANSWERS), path)

    with pytest.raises(InputError) as error:
        read_answers(path)

    assert str(error.value) == f"{path}: {message}"


@pytest.mark.parametrize("name", [b"question_id", b"candidates", b"answer_id"])
def test_column_name_that_is_not_utf_8_is_one_line(tmp_path, name):
    path = write_pools(tmp_path / "x.pools.parquet", [row()])
    path.write_bytes(path.read_bytes().replace(name, b"\xff" + name[1:]))

    assert error_of(path).startswith("x.pools.parquet: ")


def test_row_group_with_fewer_rows_than_the_footer_says_is_one_line(tmp_path):
    path = write_pools(tmp_path / "x.pools.parquet", [row(f"q{i}") for i in range(7)])
    number, other = b"\x16\x0e", b"\x16\x12"  # Thrift: the next field, an i64 of 7 or of 9
    before, _, after = path.read_bytes().rpartition(number)  # the rows of the row group follow its columns
    path.write_bytes(before + other + after)

    assert "row group 0: 7 rows, but 9 in the footer" in error_of(path)
