"""InsuranceQA (Feng et al., 2015): questions of an insurance forum, each with a pool of 500 of all answers.

Version 1 and version 2 are different data: other splits, other answers. Both write words as ``idx_N`` of a
vocabulary file, and both share one set of answers among all pools.

Version 1 samples pools at random, so that some candidates are repeated in a pool; its training questions have
no pool, and get one of their relevant answers only (training samples negatives from all answers). Version 2
takes pools from a search engine, which often misses the relevant answer.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from aptool.datasets.importing import SplitPools, write_collection
from aptool.datasets.lines import open_bytes, read_rows
from aptool.errors import InputError, UsageError
from aptool.formats.collection import CollectionFiles, LabelledPool
from aptool.formats.ids import check_answer_id
from aptool.formats.location import PathOrUrl
from aptool.formats.urls import is_remote

HOME = "github.com/shuzi/insuranceQA"
VOCABULARY = "vocabulary"
V1_ANSWERS = "answers.label.token_idx"
V1_TRAIN = "question.train.token_idx.label"
V1_POOLS = {split: f"question.{split}.label.token_idx.pool" for split in ("dev", "test1", "test2")}
V2_ANSWERS = "InsuranceQA.label2answer.{tokens}.encoded"
V2_POOLS = "InsuranceQA.question.anslabel.{tokens}.{size}.pool.solr.{part}.encoded"
V2_PARTS = {"train": "train", "dev": "valid", "test": "test"}


class Release(NamedTuple):
    """The files of one version of the data.

    Attributes:
        version: 1 or 2.
        answers: the file of answers.
        splits: split -> its file.
        columns: split -> the columns of the question, the relevant answers and, if there is one, the pool.
    """

    version: int
    answers: str
    splits: dict[str, str]
    columns: dict[str, tuple[int, int, int | None]]


def import_insuranceqa(
    out: PathOrUrl,
    folder: str,
    *,
    questions: str = "all",
    pool_size: int = 500,
    tokens: str = "token",
) -> CollectionFiles:
    """Imports version 1 or 2, whichever ``folder`` contains; splits without a file are skipped.

    The manifest names them under ``details.splits_not_found``.

    Args:
        out: the collection's folder.
        folder: V1 or V2 of the published repository, local or a URL; files may be packed (.gz) or not.
        questions: which are kept; not ``both-labels`` for version 1, whose training questions have no
            non-relevant candidates.
        pool_size: version 2: which of the published pool sizes, 100, 500, 1000 or 1500.
        tokens: version 2: ``token`` or ``raw``, its two tokenizations.

    Raises:
        InputError: a file is missing or is not what it should be; the message names it, and the line.
        UsageError: ``questions`` does not fit the version.
    """
    folder = folder.rstrip("/")
    release = find_release(folder, pool_size, tokens)
    if release.version == 1 and questions == "both-labels":
        raise UsageError(
            "--questions both-labels: training questions of InsuranceQA V1 have no non-relevant candidates"
        )
    paths = {split: _find(folder, name) for split, name in release.splits.items()}
    found = {split: path for split, path in paths.items() if path is not None}
    vocabulary = read_vocabulary(_needed(folder, VOCABULARY))
    answers = read_answers(_needed(folder, release.answers), vocabulary)
    sources = {
        split: SplitPools(path, read_pools(path, split, release.columns[split], vocabulary, answers))
        for split, path in found.items()
    }
    details: dict[str, object] = {"version": release.version}
    if release.version == 2:
        details |= {"pool_size": pool_size, "tokens": tokens}
    else:
        details |= {"train_pools": "the relevant answers only"}
    if len(found) < len(paths):
        details["splits_not_found"] = [split for split, path in paths.items() if path is None]
    return write_collection(
        out,
        name=f"insuranceqa-v{release.version}",
        source=f"InsuranceQA V{release.version} (Feng et al. 2015), {HOME}",
        splits=sources,
        questions=questions,
        details=details,
        answers=answers.items(),
    )


def find_release(folder: str, pool_size: int, tokens: str) -> Release:
    """Which version a folder holds, told by its question files.

    Raises:
        InputError: neither or both.
    """
    train_and_pools = {"train": V1_TRAIN, **V1_POOLS}
    first = Release(
        1, V1_ANSWERS, train_and_pools, {"train": (0, 1, None)} | dict.fromkeys(V1_POOLS, (1, 0, 2))
    )
    parts = {
        split: V2_POOLS.format(tokens=tokens, size=pool_size, part=part) for split, part in V2_PARTS.items()
    }
    second = Release(2, V2_ANSWERS.format(tokens=tokens), parts, dict.fromkeys(V2_PARTS, (1, 2, 3)))
    held = [
        release
        for release in (first, second)
        if any(_find(folder, name) for name in (*release.splits.values(), release.answers))
    ]
    if len(held) == 1:
        return held[0]
    if held:
        expected = "files of version 1 or of version 2, each in a folder of its own"
        raise InputError(folder, problem="files of both versions", expected=expected)
    expected = f"the folder V1 (with {V1_TRAIN}, …) or V2 (with {parts['train']}.gz, …) of {HOME}"
    raise InputError(folder, problem="none of the files of InsuranceQA", expected=expected)


def read_vocabulary(path: str) -> dict[str, str]:
    """Reads ``idx_N`` TAB word.

    Raises:
        InputError: a line is not that, or an index stands there twice.
    """
    words: dict[str, str] = {}
    for number, (index, word) in _fields(path, 2, "an index and a word"):
        if not index.strip() or not word.strip() or index in words:
            expected = "an index and its word, each index once"
            raise InputError(path, place=f"line {number}", value=f"{index}\t{word}", expected=expected)
        words[index] = word
    return words


def read_answers(path: str, vocabulary: Mapping[str, str]) -> dict[str, str]:
    """Reads label TAB words, as label -> text.

    Raises:
        InputError: a line is not that, a label stands there twice, or a word is not in the vocabulary.
    """
    texts: dict[str, str] = {}
    for number, (label, words) in _fields(path, 2, "a label and an answer"):
        check_answer_id(path, f"line {number}", label, "label")
        if label in texts:
            raise InputError(
                path, place=f"line {number}", column="label", value=label, expected="each label once"
            )
        texts[label] = _text(path, number, words, vocabulary)
    if not texts:
        raise InputError(path, problem="no line", expected="answers")
    return texts


def read_pools(
    path: str,
    split: str,
    columns: tuple[int, int, int | None],
    vocabulary: Mapping[str, str],
    answers: Mapping[str, str],
) -> Iterator[LabelledPool]:
    """The pools of one split; question ``dev-17`` stands in line 17 of the dev file.

    Raises:
        InputError: a line is not a question, or a word or a label is unknown.
    """
    question_at, relevant_at, pool_at = columns
    width = max(column for column in columns if column is not None) + 1
    found = False
    for number, fields in _fields(path, width, "a question, its relevant answers and its pool"):
        found = True
        question = _text(path, number, fields[question_at], vocabulary)
        relevant = _labels(path, number, fields[relevant_at], "relevant answers", answers)
        pool = relevant if pool_at is None else _labels(path, number, fields[pool_at], "pool", answers)
        if not question:
            raise InputError(path, place=f"line {number}", column="question", value="", expected="a question")
        yield LabelledPool(f"{split}-{number}", question, pool, None, dict.fromkeys(relevant, 1))
    if not found:
        raise InputError(path, problem="no line", expected="questions")


def _fields(path: str, width: int, what: str) -> Iterator[tuple[int, list[str]]]:
    for number, line in read_rows(path):
        fields = line.split("\t")
        if len(fields) != width:
            expected = f"{width}: {what}"
            raise InputError(
                path, place=f"line {number}", problem=f"{len(fields)} columns", expected=expected
            )
        yield number, fields


def _text(path: str, number: int, words: str, vocabulary: Mapping[str, str]) -> str:
    indices = words.split()
    try:
        return " ".join([vocabulary[index] for index in indices])
    except KeyError as error:
        expected = f"an index that stands in {VOCABULARY}"
        raise InputError(path, place=f"line {number}", value=error.args[0], expected=expected) from error


def _labels(path: str, number: int, field: str, column: str, answers: Mapping[str, str]) -> list[str]:
    labels = field.split()
    unknown = next((label for label in labels if label not in answers), None)
    if unknown is not None or not labels:
        value, expected = (unknown, "the label of an answer") if labels else (field, "at least one label")
        raise InputError(path, place=f"line {number}", column=column, value=value, expected=expected)
    return labels


def _needed(folder: str, name: str) -> str:
    path = _find(folder, name)
    if path is None:
        expected = f"this file, or {name}.gz; it comes with {HOME}"
        raise InputError(f"{folder}/{name}", problem="file not found", expected=expected)
    return path


def _find(folder: str, name: str) -> str | None:
    """The path of a file in the folder, packed or not."""
    for path in (f"{folder}/{name}", f"{folder}/{name}.gz"):
        if _exists(path):
            return path
    return None


def _exists(path: str) -> bool:
    if not is_remote(path):
        return Path(path).is_file()
    try:
        with open_bytes(path):
            return True
    except InputError:
        return False
