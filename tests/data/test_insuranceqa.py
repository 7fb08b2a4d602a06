"""InsuranceQA: the published question and pool files of V1, and small folders."""

import gzip
import random

import pytest
from imported import DATA, counts_of, needs_data, pools_of

from aptool.data.pools import read_answers
from aptool.data.published import import_insuranceqa
from aptool.data.trec import read_qrels
from aptool.errors import InputError, UsageError

V1 = {
    "vocabulary": "idx_1\twhat\nidx_2\tcovers\nidx_3\tfire\nidx_4\t40%\n",
    "answers.label.token_idx": "1\tidx_3\n2\tidx_4 idx_3\n3\tidx_2\n",
    # The second question has the right answer 2 twice.
    "question.train.token_idx.label": "idx_1 idx_2 idx_3\t1 2\nidx_1\t2 2\n",
    # The pool has candidate 3 twice.
    "question.dev.label.token_idx.pool": "1\tidx_1 idx_3\t3 1 3 2\n",
}


def write_folder(path, files, packed=False):
    path.mkdir()
    for name, text in files.items():
        if packed and name != "vocabulary":
            (path / f"{name}.gz").write_bytes(gzip.compress(text.encode()))
        else:
            (path / name).write_text(text, encoding="utf-8")
    return str(path)


def dropped(collection):
    return collection.manifest["policies"]["duplicate_candidates_dropped"]


@needs_data
def test_published_counts_of_v1(tmp_path):
    # The answers file, with labels 1 to 24981, was not published; this one is random.
    chance = random.Random(0)
    folder = tmp_path / "V1"
    folder.mkdir()
    for name in ("vocabulary", "question.train.token_idx.label", "question.dev.label.token_idx.pool"):
        (folder / name).symlink_to(f"{DATA}/insuranceqa/V1/{name}")
    with (folder / "answers.label.token_idx").open("w", encoding="utf-8") as file:
        for label in range(1, 24982):
            words = " ".join(f"idx_{chance.randint(1, 22352)}" for _ in range(3))
            file.write(f"{label}\t{words}\n")
    collection = import_insuranceqa(tmp_path / "out", str(folder))
    # 12,887 training questions with 18,540 links to answers; 1,000 x 500 = 500,000 dev candidates.
    train, dev = counts_of(collection)["train"], counts_of(collection)["dev"]
    assert train[0] == 12887
    assert train[1] + dropped(collection)["train"] == 18540
    assert dev == (1000, 494985, 1454)
    assert dropped(collection)["dev"] == 500000 - 494985
    assert collection.manifest["policies"]["relevant_missing_from_pool_kept"] == {"train": 0, "dev": 0}
    assert len(read_answers(collection.answers).answer_ids) == 24981
    assert collection.manifest["details"]["splits_not_found"] == ["test1", "test2"]


def test_small_v1(tmp_path):
    """All files but the vocabulary are packed."""
    collection = import_insuranceqa(tmp_path / "out", write_folder(tmp_path / "V1", V1, packed=True))
    assert collection.name == "insuranceqa-v1"
    assert counts_of(collection) == {"train": (2, 3, 3), "dev": (1, 3, 1)}
    assert dropped(collection) == {"train": 1, "dev": 1}
    assert read_answers(collection.answers).texts.to_pylist() == ["fire", "40% fire", "covers"]
    assert pools_of(collection, "dev") == [
        ("dev-1", "what fire", [("3", "covers"), ("1", "fire"), ("2", "40% fire")])
    ]
    # Training questions have no pool; their pools are the relevant answers.
    assert read_qrels(collection.qrels_file("train")).rows() == [
        ("train-1", "1", 1),
        ("train-1", "2", 1),
        ("train-2", "2", 1),
    ]
    assert read_qrels(collection.qrels_file("dev")).rows() == [("dev-1", "1", 1)]


def test_v1_cannot_keep_questions_with_both_labels(tmp_path):
    with pytest.raises(UsageError, match="no non-relevant candidates"):
        import_insuranceqa(tmp_path / "out", write_folder(tmp_path / "V1", V1), questions="both-labels")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("vocabulary", "idx_1\twhat\nidx_1\tcovers\n", "vocabulary: line 2: 'idx_1\\tcovers'"),
        ("vocabulary", "idx_1\twhat\n", "answers.label.token_idx: line 1: 'idx_3': expected an index of"),
        (
            "answers.label.token_idx",
            None,
            "answers.label.token_idx: file not found; expected a file that exists",
        ),
        ("answers.label.token_idx", "1\tidx_3\n1\tidx_3\n", "line 2: column 'label': '1': expected each"),
        (
            "answers.label.token_idx",
            "2\tidx_3\n3\tidx_3\n",
            "train.token_idx.label: line 1: column 'relevant answers': '1': expected a label of the file of",
        ),
        ("question.train.token_idx.label", "idx_1 1\n", "line 1: 1 columns; expected 2"),
        ("question.dev.label.token_idx.pool", "", "question.dev.label.token_idx.pool: 0 questions; "),
    ],
)
def test_errors_name_file_and_line(tmp_path, name, text, message):
    files = {key: value for key, value in {**V1, name: text}.items() if value is not None}
    with pytest.raises(InputError) as error:
        import_insuranceqa(tmp_path / "out", write_folder(tmp_path / "V1", files))
    assert message in str(error.value)


def test_a_folder_of_other_files_is_refused(tmp_path):
    write_folder(tmp_path / "V1", V1)
    for folder in (tmp_path, write_folder(tmp_path / "other", {"vocabulary": "idx_1\ta\n"})):
        with pytest.raises(InputError, match="none of the files of InsuranceQA"):
            import_insuranceqa(tmp_path / "out", str(folder))
