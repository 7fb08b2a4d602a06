"""Importer of InsuranceQA (Feng et al., 2015): questions of an insurance forum with pools of answers.

Version 1 and version 2 are different data, with other splits and other answers. Both write words as ``idx_N``
of a vocabulary file, and share one set of answers among all pools. Training questions of version 1 have no
pool and get their relevant answers only, as training samples negatives from all answers.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from aptool.data.collection import Collection
from aptool.data.ids import check_answer_id
from aptool.data.importing import (
    CANDIDATES_WITHOUT_TEXT,
    RELEVANT_WITHOUT_TEXT,
    SplitPools,
    write_collection,
)
from aptool.data.text_files import read_rows
from aptool.data.writing import LabelledPool
from aptool.errors import InputError, UsageError
from aptool.paths import PathOrUrl, location

HOME = "github.com/shuzi/insuranceQA"
VOCABULARY = "vocabulary"
V1_ANSWERS = "answers.label.token_idx"
V1_TRAIN = "question.train.token_idx.label"
V1_POOLS = {split: f"question.{split}.label.token_idx.pool" for split in ("dev", "test1", "test2")}
V2_ANSWERS = "InsuranceQA.label2answer.token.encoded"
V2_POOLS = "InsuranceQA.question.anslabel.token.{size}.pool.solr.{part}.encoded"
V2_PARTS = {"train": "train", "dev": "valid", "test": "test"}


class Release(NamedTuple):
    """The files of one version of the data."""

    version: int  # 1 or 2
    answers: str  # the file of answers
    splits: dict[str, str]  # split -> its file
    # The columns of the question, the relevant answers and the pool, if there is one, by split.
    columns: dict[str, tuple[int, int, int | None]]


def import_insuranceqa(
    out: PathOrUrl,
    folder: str,
    *,
    questions: str = "all",
    pool_size: int = 500,
    overwrite: bool = False,
) -> Collection:
    """Import the version that ``folder`` contains: V1 or V2 of the published repository, packed (.gz) or not.

    Splits without a file are skipped and listed in the manifest's ``details.splits_not_found``. Version 2 has
    pools of 100, 500, 1000 or 1500 candidates.
    """
    folder = folder.rstrip("/")
    release = _release(folder, pool_size)
    if release.version == 1 and questions == "both-labels":
        raise UsageError(
            "--questions both-labels: training questions of InsuranceQA V1 have no non-relevant candidates"
        )
    vocabulary = _read_vocabulary(_required(folder, VOCABULARY))
    answers = _read_answers(_required(folder, release.answers), vocabulary)
    sources: dict[str, SplitPools] = {}
    missing = []
    for split, name in release.splits.items():
        path = _find(folder, name)
        if path is None:
            missing.append(split)
        else:
            counts: dict[str, int] = {}
            pools = _read_pools(path, split, release.columns[split], vocabulary, answers, counts)
            sources[split] = SplitPools(path, pools, counts=counts)
    details: dict[str, object] = {"version": release.version}
    if release.version == 2:
        details |= {"pool_size": pool_size, "tokens": "token"}
    else:
        details |= {"train_pools": "the relevant answers only"}
    if missing:
        details["splits_not_found"] = missing
    write_collection(
        out,
        name=f"insuranceqa-v{release.version}",
        source=f"InsuranceQA V{release.version} (Feng et al. 2015), {HOME}",
        splits=sources,
        questions=questions,
        details=details,
        answers=answers.items(),
        overwrite=overwrite,
    )
    return Collection(out)


def _release(folder: str, pool_size: int) -> Release:
    """Detect the version from the names of the files."""
    v1_columns: dict[str, tuple[int, int, int | None]]
    v1_columns = {"train": (0, 1, None)} | dict.fromkeys(V1_POOLS, (1, 0, 2))
    v1 = Release(1, V1_ANSWERS, {"train": V1_TRAIN, **V1_POOLS}, v1_columns)
    v2_splits = {split: V2_POOLS.format(size=pool_size, part=part) for split, part in V2_PARTS.items()}
    v2 = Release(2, V2_ANSWERS, v2_splits, dict.fromkeys(V2_PARTS, (1, 2, 3)))
    releases = [
        release
        for release in (v1, v2)
        if any(_find(folder, name) for name in (*release.splits.values(), release.answers))
    ]
    if len(releases) == 2:
        expected = "files of version 1 or of version 2, each in a separate folder"
        raise InputError(folder, problem="files of both versions", expected=expected)
    if not releases:
        expected = f"the folder V1 (with {V1_TRAIN}, …) or V2 (with {v2_splits['train']}.gz, …) of {HOME}"
        raise InputError(folder, problem="none of the files of InsuranceQA", expected=expected)
    return releases[0]


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
    if not texts:
        raise InputError(path, problem="no line", expected="answers")
    return texts


def _read_pools(
    path: str,
    split: str,
    columns: tuple[int, int, int | None],
    vocabulary: Mapping[str, str],
    answers: Mapping[str, str],
    counts: dict[str, int],
) -> Iterator[LabelledPool]:
    """Read the pools of one split; question ``dev-17`` is line 17 of the dev file.

    Labels that the file of answers lacks are dropped and counted, as a part of the data may be all there is.
    """
    question_column, relevant_column, pool_column = columns
    width = max(column for column in columns if column is not None) + 1
    counts |= {CANDIDATES_WITHOUT_TEXT: 0, RELEVANT_WITHOUT_TEXT: 0}
    number = relevant_answers = 0
    for number, fields in _read_fields(path, width, "a question, its relevant answers and its pool"):
        position = f"line {number}"
        question = _text(path, position, fields[question_column], vocabulary)
        relevant = _labels(path, position, fields[relevant_column], "relevant answers")
        pool = relevant if pool_column is None else _labels(path, position, fields[pool_column], "pool")
        counts[CANDIDATES_WITHOUT_TEXT] += sum(label not in answers for label in pool)
        counts[RELEVANT_WITHOUT_TEXT] += sum(label not in answers for label in relevant)
        pool = [label for label in pool if label in answers]
        relevant = [label for label in relevant if label in answers]
        relevant_answers += len(relevant)
        if not question:
            raise InputError(path, position=position, column="question", value="", expected="a question")
        yield LabelledPool(f"{split}-{number}", question, pool, None, dict.fromkeys(relevant, 1))
    if number == 0:
        raise InputError(path, problem="no line", expected="questions")
    if not relevant_answers:
        problem = "none is a label of the file of answers"
        raise InputError(path, column="relevant answers", problem=problem, expected="labels of that file")


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


def _labels(path: str, position: str, field: str, column: str) -> list[str]:
    labels = field.split()
    if not labels:
        raise InputError(path, position=position, column=column, value=field, expected="at least one label")
    return labels


def _required(folder: str, name: str) -> str:
    path = _find(folder, name)
    if path is None:
        expected = f"this file, or {name}.gz; it comes with {HOME}"
        raise InputError(f"{folder}/{name}", problem="file not found", expected=expected)
    return path


def _find(folder: str, name: str) -> str | None:
    """The path of a file in the folder, packed or not; None if there is none."""
    paths = (f"{folder}/{name}", f"{folder}/{name}.gz")
    return next((path for path in paths if location(path).is_file()), None)
