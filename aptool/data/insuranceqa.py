"""Importer of InsuranceQA V1 (Feng et al., 2015): questions of an insurance forum with pools of answers.

The files write words as ``idx_N`` of a vocabulary file, and share one set of answers among all pools.
Training questions have no pool and get their relevant answers only, as training samples negatives from all
answers.
"""

from collections.abc import Iterator, Mapping

from aptool.data.collection import Collection
from aptool.data.ids import check_answer_id
from aptool.data.importing import SplitPools, write_collection
from aptool.data.table_files import read_rows
from aptool.data.writing import LabelledPool
from aptool.errors import InputError, UsageError
from aptool.files import packed_or_not
from aptool.paths import PathOrUrl

HOME = "github.com/shuzi/insuranceQA"
VOCABULARY = "vocabulary"
V1_ANSWERS = "answers.label.token_idx"
_TRAIN = "question.train.token_idx.label"
_FILES = {"train": _TRAIN} | {
    split: f"question.{split}.label.token_idx.pool" for split in ("dev", "test1", "test2")
}


def import_insuranceqa(
    out: PathOrUrl, folder: str, *, questions: str = "all", overwrite: bool = False
) -> Collection:
    """Import the folder V1 of the published repository, its files packed (.gz) or not.

    Splits without a file are skipped and listed in the manifest's ``details.splits_not_found``.
    """
    folder = folder.rstrip("/")
    if questions == "both-labels":
        raise UsageError(
            "--questions both-labels: training questions of InsuranceQA have no non-relevant candidates"
        )
    found = {split: packed_or_not(folder, name) for split, name in _FILES.items()}
    if not any(found.values()) and packed_or_not(folder, V1_ANSWERS) is None:
        expected = f"the folder V1 (with {_TRAIN}, …) of {HOME}"
        raise InputError(folder, problem="none of the files of InsuranceQA", expected=expected)
    vocabulary = _read_vocabulary(_required(folder, VOCABULARY))
    answers = _read_answers(_required(folder, V1_ANSWERS), vocabulary)
    sources = {
        split: SplitPools(path, _read_pools(path, split, vocabulary, answers))
        for split, path in found.items()
        if path is not None
    }
    missing = [split for split, path in found.items() if path is None]
    details: dict[str, object] = {"version": 1, "train_pools": "the relevant answers only"}
    if missing:
        details["splits_not_found"] = missing
    write_collection(
        out,
        name="insuranceqa-v1",
        source=f"InsuranceQA V1 (Feng et al. 2015), {HOME}",
        splits=sources,
        questions=questions,
        details=details,
        answers=answers.items(),
        overwrite=overwrite,
    )
    return Collection(out)


def _read_vocabulary(path: str) -> dict[str, str]:
    """Read ``idx_N`` TAB word."""
    words: dict[str, str] = {}
    for number, (index, word) in _read_fields(path, 2, "an index and a word"):
        if not index.strip() or not word.strip() or index in words:
            expected = "an index and its word, each index once"
            raise InputError(path, position=f"line {number}", value=f"{index}\t{word}", expected=expected)
        words[index] = word
    return words


def _read_answers(path: str, vocabulary: Mapping[str, str]) -> dict[str, str]:
    """Read label TAB words, as label -> text."""
    texts: dict[str, str] = {}
    for number, (label, words) in _read_fields(path, 2, "a label and an answer"):
        position = f"line {number}"
        check_answer_id(path, position, label, "label")
        if label in texts:
            raise InputError(path, position=position, column="label", value=label, expected="each label once")
        texts[label] = _text(path, position, words, vocabulary)
    return texts


def _read_pools(
    path: str, split: str, vocabulary: Mapping[str, str], answers: Mapping[str, str]
) -> Iterator[LabelledPool]:
    """Read the pools of one split; question ``dev-17`` is line 17 of the dev file."""
    width, content = 2, "a question and its relevant answers"
    if split != "train":
        width, content = 3, "relevant answers, a question and its pool"
    for number, fields in _read_fields(path, width, content):
        position = f"line {number}"
        words, relevant_labels = fields if split == "train" else (fields[1], fields[0])
        question = _text(path, position, words, vocabulary)
        relevant = _labels(path, position, relevant_labels, "relevant answers", answers)
        pool = relevant if split == "train" else _labels(path, position, fields[2], "pool", answers)
        if not question:
            raise InputError(path, position=position, column="question", value="", expected="a question")
        yield LabelledPool(f"{split}-{number}", question, pool, None, dict.fromkeys(relevant, 1))


def _read_fields(path: str, width: int, content: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in read_rows(path):
        fields = line.split("\t")
        if len(fields) != width:
            problem = f"{len(fields)} columns"
            raise InputError(path, position=f"line {number}", problem=problem, expected=f"{width}: {content}")
        yield number, fields


def _text(path: str, position: str, words: str, vocabulary: Mapping[str, str]) -> str:
    try:
        return " ".join([vocabulary[index] for index in words.split()])
    except KeyError as error:
        expected = f"an index of {VOCABULARY}"
        raise InputError(path, position=position, value=error.args[0], expected=expected) from error


def _labels(path: str, position: str, field: str, column: str, answers: Mapping[str, str]) -> list[str]:
    labels = field.split()
    if not labels:
        raise InputError(path, position=position, column=column, value=field, expected="at least one label")
    for label in labels:
        if label not in answers:
            expected = "a label of the file of answers"
            raise InputError(path, position=position, column=column, value=label, expected=expected)
    return labels


def _required(folder: str, name: str) -> str:
    path = packed_or_not(folder, name)
    if path is None:
        expected = f"this file, or {name}.gz; it comes with {HOME}"
        raise InputError(f"{folder}/{name}", problem="file not found", expected=expected)
    return path
