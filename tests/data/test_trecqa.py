"""TREC-QA: counts of the published files, and small files of both layouts."""

import pytest
from imported import DATA, counts_of, jacana_block, labels_of, needs_data

from aptool.data.collection import Collection
from aptool.data.trec import read_qrels
from aptool.data.trecqa import import_trecqa, read_pools
from aptool.errors import InputError


def question(question_id, text, *candidates):
    lines = [f"<QApairs id='{question_id}'>", *jacana_block("question", text)]
    for kind, answer in candidates:
        lines += jacana_block(kind, answer)
    return [*lines, "</QApairs>"]


# A bare & and an unclosed < in the text: no XML parser reads this.
JACANA = [
    *question("1", "Who founded Farrar & Straus ?", ("positive", "Roger Straus <did"), ("negative", "AT&T")),
    *question("2", "When ?", ("negative", "Never .")),
    *question("2.5", "Where ?"),
]


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
@pytest.mark.parametrize(
    ("dev", "questions", "expected", "variant"),
    [
        ("raw-dev", "all", {"train": (1229, 53417, 6403), "dev": (81, 1148, 222)}, "raw"),
        ("clean-dev", "all", {"train": (1229, 53417, 6403), "dev": (65, 1117, 205)}, "clean"),
        # Table 1 of the paper: 1,162 and 65 questions.
        ("clean-dev", "both-labels", {"train": (1162, 53313, 6299), "dev": (65, 1117, 205)}, "clean"),
        ("raw-dev", "both-labels", {"train": (1162, 53313, 6299), "dev": (65, 1117, 205)}, "clean"),
    ],
)
def test_published_counts(tmp_path, dev, questions, expected, variant):
    folders = {"train": f"{DATA}/trecqa/train-all", "dev": f"{DATA}/trecqa/{dev}"}
    collection = import_trecqa(tmp_path / "out", folders, questions=questions)
    assert counts_of(collection) == expected
    assert collection.manifest["details"]["variant"] == variant
    assert collection.name == f"trecqa-{variant}"


@needs_data
def test_published_counts_of_jacana(tmp_path):
    files = {split: f"{DATA}/trecqa/{split}.xml" for split in ("train", "dev")}
    # 94 and 82 questions; one question per split has no candidate.
    collection = import_trecqa(tmp_path / "all", files)
    assert counts_of(collection) == {"train": (93, 4718, 348), "dev": (81, 1148, 222)}
    read = {split: counts["questions"] for split, counts in collection.manifest["details"]["read"].items()}
    assert read == {"train": 94, "dev": 82}
    assert collection.manifest["policies"]["questions_without_candidates_dropped"] == {"train": 1, "dev": 1}
    both = import_trecqa(tmp_path / "both", files, questions="both-labels")
    assert counts_of(both)["train"][0] == 78
    assert counts_of(both)["dev"] == (65, 1117, 205)


def test_jacana_is_read_by_lines(tmp_path):
    collection = import_trecqa(tmp_path / "out", {"dev": write_lines(tmp_path / "dev.xml", JACANA)})
    assert counts_of(collection) == {"dev": (2, 3, 1)}
    assert read_qrels(collection.qrels_file("dev")).rows() == [
        ("1", "1-0", 1),
        ("1", "1-1", 0),
        ("2", "2-0", 0),
    ]
    (pool, _) = list(read_pools(str(tmp_path / "dev.xml")))[:2]
    assert pool.question == "Who founded Farrar & Straus ?"
    assert pool.texts == ["Roger Straus <did", "AT&T"]


def test_questions_with_one_text_and_two_ids_are_two(tmp_path):
    collection = import_trecqa(tmp_path / "out", {"train": write_folder(tmp_path / "in", PAIRS)})
    assert counts_of(collection) == {"train": (2, 4, 2)}


def test_blank_line_and_missing_newline_at_the_end(tmp_path):
    folder = write_folder(tmp_path / "in", PAIRS)
    (tmp_path / "in/b.toks").write_text("me .\nyou .\nme .\nus .\n\n", encoding="utf-8")
    (tmp_path / "in/sim.txt").write_text("1\n0\n0\n1", encoding="utf-8")
    assert counts_of(import_trecqa(tmp_path / "out", {"train": folder})) == {"train": (2, 4, 2)}


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
        (PAIRS[:3], "answerable", "clean"),
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


def without(*indices):
    return [line for index, line in enumerate(JACANA) if index not in indices]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (without(0), "line 1: '<question>': expected <QApairs"),
        (without(1), "line 2: 'Who\\tfounded"),
        # Without the tokens of the first answer, its parts of speech must not become the answer.
        (without(9), "line 14: 'x': expected 3 fields between tabs, as line 10 has"),
        (without(18), "line 18: 4 lines; expected lines of tokens"),
        # Without its closing tag, the question would contain the following element.
        (without(7), "expected </question> for the element that begins in line 2"),
        (JACANA[:-1], "expected </QApairs> for the element that begins in line"),
        ([*JACANA, *question("1", "Again ?")], "'1': expected each question once; line 1"),
        (["<QApairs id='1'>", "</QApairs>"], "line 1"),
        ([], "no question; expected <QApairs"),
    ],
)
def test_wrong_jacana_files_are_refused(tmp_path, lines, message):
    path = write_lines(tmp_path / "dev.xml", lines)
    with pytest.raises(InputError) as error:
        import_trecqa(tmp_path / "out", {"dev": path})
    assert str(error.value).startswith(path)
    assert message in str(error.value)


def test_lines_with_an_id_each_are_grouped_by_their_questions(aptool, tmp_path):
    """As in castorini's copy of WikiQA, whose ids are those of candidates."""
    pairs = [("Q1-0", "why ?", "so .", 1), ("Q1-1", "why ?", "no .", 0), ("Q2-0", "who ?", "me .", 1)]
    folder = tmp_path / "dev"
    folder.mkdir()
    for name, column in (("id.txt", 0), ("a.toks", 1), ("b.toks", 2), ("sim.txt", 3)):
        (folder / name).write_text("".join(f"{pair[column]}\n" for pair in pairs))
    finished = aptool("data", "import", "trecqa", f"dev={folder}", "--output", tmp_path / "out")
    assert finished.code == 0, finished.err
    message = "each of 3 lines has another id; grouped into 2 questions by text"
    assert f"{folder}: warning: {message}" in finished.err
    assert labels_of(tmp_path / "out", "dev") == {"why ?": {"so .": 1, "no .": 0}, "who ?": {"me .": 1}}


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
