"""Data sets in the layout of the Hugging Face hub, in local folders and behind a fake hub."""

import json

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from aptool.datasets.huggingface import data_files, import_huggingface
from aptool.datasets.import_options import ColumnNames
from aptool.errors import InputError
from aptool.formats.trec import read_qrels

PAIRS = [
    {"query": "who?", "passage": "me", "label": 1, "source": "x"},
    {"query": "who?", "passage": "yes", "label": 0, "source": "x"},
    {"query": "why?", "passage": "so", "label": 1, "source": "y"},
]
NAMES = ColumnNames(question="query", answer="passage")


def parquet(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)


def sizes(collection):
    return {split: counts["candidates"] for split, counts in collection.manifest["splits"].items()}


def test_parquet_shards_by_split(tmp_path):
    root = tmp_path / "mine"
    parquet(root / "data" / "train-00000-of-00002.parquet", PAIRS[:2])
    parquet(root / "data" / "train-00001-of-00002.parquet", PAIRS[2:])
    parquet(root / "data" / "validation-00000-of-00001.parquet", PAIRS)
    (root / "README.md").write_text("# Mine\n")

    collection = import_huggingface(tmp_path / "out", str(root), NAMES, name="mine")

    assert sizes(collection) == {"train": 3, "dev": 3}
    assert read_qrels(collection.qrels("train")).rows() == [
        ("train-Q0", "train-Q0-0", 1),
        ("train-Q0", "train-Q0-1", 0),
        ("train-Q1", "train-Q1-0", 1),
    ]


def test_csv_and_json_lines(aptool, tmp_path):
    root = tmp_path / "mine"
    root.mkdir()
    header = "query,passage,label\n"
    (root / "train.csv").write_text(header + 'who?,"me, too",1\nwho?,yes,0\n')
    (root / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in PAIRS))

    finished = aptool(
        *("data", "import", "hf", root, "--question", "query", "--answer", "passage"),
        *("--output", tmp_path / "out"),
    )

    assert finished.code == 0, finished.err
    assert [line.split()[0] for line in finished.out[1:]] == ["train", "test"]
    assert [line.split()[2] for line in finished.out[1:]] == ["2", "3"]


def test_the_card_declares_the_files_of_a_split(tmp_path):
    root = tmp_path / "mine"
    parquet(root / "en" / "a.parquet", PAIRS)
    parquet(root / "en" / "b.parquet", PAIRS[:1])
    parquet(root / "de" / "a.parquet", PAIRS[:2])
    (root / "README.md").write_text(
        "---\nconfigs:\n- config_name: en\n  data_files:\n  - split: train\n    path: en/a.parquet\n"
        "  - split: heldout\n    path: [en/b.parquet]\n"
        "- config_name: de\n  data_files: de/*.parquet\n---\n# Mine\n"
    )

    english = import_huggingface(
        tmp_path / "en-out", str(root), NAMES, name="mine", splits={"train": "train", "test": "heldout"}
    )
    german = import_huggingface(tmp_path / "de-out", str(root), NAMES, name="mine", config="de")

    assert sizes(english) == {"train": 3, "test": 1}
    assert sizes(german) == {"train": 2}
    with pytest.raises(InputError, match="no config 'fr'; expected one of en, de"):
        data_files(str(root), "fr")
    with pytest.raises(InputError, match="no split 'test'; expected one of train, heldout"):
        import_huggingface(tmp_path / "x", str(root), NAMES, name="mine", splits={"test": "test"})


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("**/*.jsonl", ["data/a.jsonl", "data/old/b.jsonl", "top.jsonl"]),
        ("data/*.jsonl", ["data/a.jsonl"]),
        ("*.jsonl", ["top.jsonl"]),
        ("data/**", ["data/a.jsonl", "data/old/b.jsonl"]),
        ("data/[a-b].jsonl", ["data/a.jsonl"]),
    ],
)
def test_a_pattern_of_a_card_matches_as_a_glob_does(tmp_path, pattern, expected):
    for name in ("top.jsonl", "data/a.jsonl", "data/old/b.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}\n")
    (tmp_path / "README.md").write_text(f"---\nconfigs:\n- data_files: '{pattern}'\n---\n")

    assert data_files(str(tmp_path)).splits == {"train": [f"{tmp_path}/{name}" for name in expected]}


def test_the_error_of_a_pattern_names_the_card(tmp_path):
    (tmp_path / "README.md").write_text("---\nconfigs:\n- data_files: train**.csv\n---\n")

    with pytest.raises(InputError, match=r"README\.md: 'train\*\*\.csv': expected a pattern of file names"):
        data_files(str(tmp_path))


def test_the_error_of_a_card_has_its_line(tmp_path):
    (tmp_path / "README.md").write_text("---\nlanguage: en\n tags: [qa]\n---\n# Mine\n")

    with pytest.raises(InputError, match=r"README\.md: mapping values are not allowed .* at line 3;"):
        data_files(str(tmp_path))


def test_rows_with_lists_of_candidates(tmp_path):
    root = tmp_path / "mine"
    rows = [
        {"question": "who?", "candidates": ["me", "yes"], "relevant": [0], "n": 1},
        {"question": "why?", "candidates": ["so", "no", "now"], "relevant": [2], "n": 2},
    ]
    parquet(root / "test" / "0.parquet", rows)

    collection = import_huggingface(tmp_path / "out", str(root), ColumnNames(), name="mine")

    assert sizes(collection) == {"test": 5}
    assert read_qrels(collection.qrels("test")).filter(relevance=1).rows() == [
        ("test-Q0", "test-Q0-0", 1),
        ("test-Q1", "test-Q1-2", 1),
    ]


@pytest.mark.parametrize("value", [None, 7.5, True])
def test_ids_of_other_types_are_refused(tmp_path, value):
    root = tmp_path / "mine"
    root.mkdir()
    row = {"question": "who?", "answer": "me", "label": 1, "qid": value}
    (root / "train.jsonl").write_text(json.dumps(row) + "\n")

    with pytest.raises(InputError, match=r"row 1: column 'qid': .*: expected a text or a whole number"):
        import_huggingface(tmp_path / "out", str(root), ColumnNames(question_id="qid"), name="mine")


def test_contradictory_positions_and_labels_are_refused(tmp_path):
    root = tmp_path / "mine"
    rows = [{"question": "who?", "candidates": ["me", "yes"], "relevant": [0], "label": [0, 1]}]
    parquet(root / "test" / "0.parquet", rows)

    with pytest.raises(InputError, match=r"column 'label': \[0, 1\]: expected \[1, 0\], as 'relevant' says"):
        import_huggingface(tmp_path / "out", str(root), ColumnNames(), name="mine")


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv"])
def test_the_error_of_a_missing_column_lists_the_columns(tmp_path, kind):
    root = tmp_path / "mine"
    root.mkdir()
    if kind == "parquet":
        parquet(root / "train.parquet", PAIRS)
    elif kind == "jsonl":
        (root / "train.jsonl").write_text(json.dumps(PAIRS[0]) + "\n")
    else:
        (root / "train.csv").write_text("query,passage,label,source\nwho?,me,1,x\n")

    with pytest.raises(
        InputError,
        match=r"column 'answer': not found among 'query', 'passage', 'label', .*; "
        "expected this column, or --answer NAME, or a list 'candidates'",
    ):
        import_huggingface(tmp_path / "out", str(root), ColumnNames(question="query"), name="mine")
    assert not (tmp_path / "out").exists()


def test_the_error_of_a_folder_without_data_lists_its_files(tmp_path):
    (tmp_path / "notes.txt").write_text("x")

    with pytest.raises(InputError, match=r"no data file: notes\.txt; expected files that end in \.parquet"):
        data_files(str(tmp_path))
    with pytest.raises(InputError, match="no data file: nothing"):
        data_files(str(tmp_path / "nowhere"))
    (tmp_path / "train.csv").write_text("a\n1\n")
    with pytest.raises(InputError, match="no config 'x'; expected another configuration, or none"):
        data_files(str(tmp_path), "x")


def test_a_remote_folder(tmp_path):
    memory = fsspec.filesystem("memory")
    memory.pipe("/mine/data/train.jsonl", "".join(json.dumps(row) + "\n" for row in PAIRS).encode())
    try:
        collection = import_huggingface(tmp_path / "out", "memory://mine", NAMES, name="mine")
        memory.pipe("/mine/data/training.jsonl", json.dumps({**PAIRS[0], "label": "x"}).encode())
        with pytest.raises(InputError, match=r"^memory://mine/data: row 4: column 'label': 'x'"):
            import_huggingface(tmp_path / "other", "memory://mine", NAMES, name="mine")
    finally:
        memory.rm("/mine", recursive=True)

    assert sizes(collection) == {"train": 3}
