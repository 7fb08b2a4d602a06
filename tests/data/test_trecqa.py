"""TREC-QA: counts of the published files, and small folders."""

import pytest
from imported import DATA, counts_of, needs_data

from aptool.data.collection import Collection
from aptool.data.published import import_trecqa
from aptool.errors import InputError


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def write_folder(path, rows):
    path.mkdir()
    for index, name in enumerate(("id.txt", "a.toks", "b.toks", "sim.txt")):
        write_lines(path / name, [row[index] for row in rows])
    return str(path)


PAIRS = [
    ("7", "who ?", "me .", "1"),
    ("7", "who ?", "you .", "0"),
    ("8", "who ?", "me .", "0"),
    ("8", "who ?", "us .", "1"),
]


@needs_data
def test_published_counts(tmp_path):
    """The raw questions; `test_stats` has those of the paper."""
    folders = {"train": f"{DATA}/trecqa/train-all", "dev": f"{DATA}/trecqa/raw-dev"}
    collection = import_trecqa(tmp_path / "out", folders)
    assert counts_of(collection) == {"train": (1229, 53417, 6403), "dev": (81, 1148, 222)}
    assert (collection.name, collection.manifest["details"]["variant"]) == ("trecqa-raw", "raw")


def test_questions_with_one_text_and_two_ids_are_two(tmp_path):
    collection = import_trecqa(tmp_path / "out", {"train": write_folder(tmp_path / "in", PAIRS)})
    assert counts_of(collection) == {"train": (2, 4, 2)}


def test_files_of_different_length_are_named_with_their_lengths(tmp_path):
    folder = write_folder(tmp_path / "in", PAIRS)
    write_lines(tmp_path / "in/b.toks", ["me .", "you .", "me ."])
    with pytest.raises(InputError) as error:
        import_trecqa(tmp_path / "out", {"train": folder})
    assert str(error.value) == f"{folder}/b.toks: 3 lines; expected as many as {folder}/id.txt has: 4"


@pytest.mark.parametrize(
    ("rows", "questions", "variant"),
    [
        (PAIRS, "all", "clean"),
        (PAIRS[:3], "all", "raw"),  # the only candidate of question 8 is wrong
        (PAIRS[:3], "both-labels", "clean"),
    ],
)
def test_variant(tmp_path, rows, questions, variant):
    folder = write_folder(tmp_path / "in", rows)
    collection = import_trecqa(tmp_path / "out", {"dev": folder}, questions=questions)
    details = collection.manifest["details"]
    assert (details["variant"], details["variant_decided"]) == (variant, "found from the labels")


def test_a_train_split_alone_has_no_variant(tmp_path):
    # Question 8 has a wrong answer only, but training questions are the same in raw and clean TREC-QA.
    collection = import_trecqa(tmp_path / "out", {"train": write_folder(tmp_path / "in", PAIRS[:3])})
    assert collection.manifest["details"]["variant"] is None
    assert collection.name == "trecqa"


def test_a_folder_with_the_published_names_needs_no_splits(aptool, tmp_path):
    for name in ("train-all", "train", "clean-dev"):
        (tmp_path / "in").mkdir(exist_ok=True)
        write_folder(tmp_path / "in" / name, PAIRS)
    finished = aptool("data", "import", "trecqa", tmp_path / "in", "--output", tmp_path / "out")
    assert finished.code == 0, finished.err
    assert list(Collection(tmp_path / "out").splits) == ["train", "dev"]
    refused = aptool("data", "import", "trecqa", tmp_path / "in" / "train", "--output", tmp_path / "other")
    assert refused.code == 1
    expected = "train-all or train, or in `aptool data import` SPLIT=PATH for other names"
    assert refused.err == [f"aptool: {tmp_path / 'in' / 'train'}: no split 'train'; expected {expected}"]
