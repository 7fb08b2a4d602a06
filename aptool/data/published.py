"""Importers of the published data sets: WikiQA, TREC-QA and InsuranceQA V1.

WikiQA (Yang, Yih and Meek, 2015): sentences of a Wikipedia page that may answer a question. Two layouts are
read: Microsoft's ``WikiQA-train.tsv``, whose quotation marks are part of the text, and the Parquet files of
``microsoft/wiki_qa``, which have no sentence ids.

TREC-QA (Wang, Smith and Mitamura, 2007): sentences retrieved for questions of TREC 8 to 13. A split is a
folder with one line per pair in ``a.toks`` (question), ``b.toks`` (answer), ``id.txt`` and ``sim.txt``
(label). Raw TREC-QA has dev and test questions whose candidates are all relevant or all non-relevant; clean
TREC-QA has none. Scores on the two are not comparable, so the manifest records which one the labels show.

InsuranceQA V1 (Feng et al., 2015): questions of an insurance forum with pools of answers. The files write
words as ``idx_N`` of a vocabulary file, and share one set of answers among all pools. Training questions have
no pool and get their relevant answers only, as training samples negatives from all answers.
"""

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from aptool.data.collection import Collection
from aptool.data.frames import RawTable, check_id
from aptool.data.table import pairs_of, pools_of
from aptool.data.table_files import read_rows, read_table, table_files
from aptool.data.writing import LabelledPool, SplitPools, write_collection
from aptool.errors import InputError, UsageError
from aptool.files import packed_or_not
from aptool.paths import Location, PathOrUrl

# The names of the splits in a folder, in order of precedence.
WIKIQA_SPLITS = {split: (f"WikiQA-{split}.tsv",) for split in ("train", "dev", "test")}
TRECQA_SPLITS = {"train": ("train-all", "train"), "dev": ("clean-dev", "dev"), "test": ("clean-test", "test")}

_TSV = {
    "question_id": "QuestionID",
    "question": "Question",
    "answer_id": "SentenceID",
    "answer": "Sentence",
    "relevance": "Label",
}
_HUB = {"question_id": "question_id", "question": "question", "answer": "answer", "relevance": "label"}
_TRECQA = {"question_id": "id.txt", "question": "a.toks", "answer": "b.toks", "relevance": "sim.txt"}

_HOME = "github.com/shuzi/insuranceQA"
_VOCABULARY = "vocabulary"
V1_ANSWERS = "answers.label.token_idx"
_V1_SPLITS = {
    "train": "question.train.token_idx.label",
    **{split: f"question.{split}.label.token_idx.pool" for split in ("dev", "test1", "test2")},
}


def splits_in(folder: Location, names: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The paths of the splits of a published data set in a folder, from their possible names."""
    splits: dict[str, str] = {}
    for split, choices in names.items():
        paths = [folder / name for name in choices]
        path = next((path for path in paths if path.exists()), None)
        if path is not None:
            splits[split] = str(path)
        elif split != "test":
            expected = f"{' or '.join(choices)}, or in `aptool data import` SPLIT=PATH for other names"
            raise InputError(folder, problem=f"no split {split!r}", expected=expected)
    return splits


def import_wikiqa(
    out: PathOrUrl, splits: Mapping[str, str], *, questions: str = "all", overwrite: bool = False
) -> Collection:
    """Import WikiQA, each split from a TSV or Parquet file, a glob, or a folder.

    There are 2,118 train, 296 dev and 633 test questions; the paper's are ``answerable`` (873, 126, 243).
    """
    sources = {split: SplitPools(_wikiqa_pools(path), path) for split, path in splits.items()}
    write_collection(
        out,
        sources,
        name="wikiqa",
        source="WikiQA (Microsoft Research), www.microsoft.com/download/details.aspx?id=52419",
        questions=questions,
        overwrite=overwrite,
    )
    return Collection(out)


def _wikiqa_pools(path: str) -> Iterator[LabelledPool]:
    files = table_files(path)
    names = _HUB if files[0].endswith(".parquet") else _TSV
    pairs = pairs_of([read_table(file, names.values()) for file in files], names)
    yield from pools_of(path, pairs, names, graded=False)


def import_trecqa(
    out: PathOrUrl, splits: Mapping[str, str], *, questions: str = "all", overwrite: bool = False
) -> Collection:
    """Import TREC-QA, each split from its folder.

    The paper's questions are ``both-labels`` (1,162 train, 65 dev, 68 test).
    """
    # Read before anything is written: the manifest's variant depends on the labels. It is a few megabytes.
    sources = {split: SplitPools(list(_trecqa_pools(path)), path) for split, path in splits.items()}
    variant, decided = None, "open: there is only a train split"
    if any(split != "train" for split in sources):
        variant, decided = "raw" if _is_raw(sources, questions) else "clean", "found from the labels"
    write_collection(
        out,
        sources,
        name=f"trecqa-{variant}" if variant else "trecqa",
        source="TREC-QA (Wang et al. 2007), as in jacana-qa-naacl2013 (Yao et al. 2013)",
        questions=questions,
        details={"variant": variant, "variant_decided": decided},
        overwrite=overwrite,
    )
    return Collection(out)


def _is_raw(sources: Mapping[str, SplitPools], questions: str) -> bool:
    """Whether all candidates of some dev or test pool that is written have the same label."""
    if questions == "both-labels":
        return False
    one_sided = ({True}, {False}) if questions == "all" else ({True},)
    pools = (pool for split, content in sources.items() if split != "train" for pool in content.pools)
    return any({value > 0 for value in pool.relevance.values()} in one_sided for pool in pools)


def _trecqa_pools(path: str) -> Iterator[LabelledPool]:
    """Read the pools of one split in the order of the files."""
    folder = path.rstrip("/")
    columns = {name: dict(read_rows(f"{folder}/{name}")) for name in _TRECQA.values()}
    numbers = list(columns["id.txt"])
    for name, lines in columns.items():
        if len(lines) != len(numbers):
            expected = f"as many as {folder}/id.txt has: {len(numbers)}"
            raise InputError(f"{folder}/{name}", problem=f"{len(lines)} lines", expected=expected)
    texts = {name: pl.Series(list(lines.values()), dtype=pl.String) for name, lines in columns.items()}
    texts["id.txt"] = texts["id.txt"].str.strip_chars()
    table = RawTable(folder, texts, lambda row: f"line {numbers[row]}")
    yield from pools_of(path, pairs_of([table], _TRECQA), _TRECQA, graded=False)


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
    found = {split: packed_or_not(folder, name) for split, name in _V1_SPLITS.items()}
    if not any(found.values()) and packed_or_not(folder, V1_ANSWERS) is None:
        expected = f"the folder V1 (with {_V1_SPLITS['train']}, …) of {_HOME}"
        raise InputError(folder, problem="none of the files of InsuranceQA", expected=expected)
    words_file, answers_file = (
        packed_or_not(folder, name) or f"{folder}/{name}" for name in (_VOCABULARY, V1_ANSWERS)
    )
    vocabulary = _read_vocabulary(words_file)
    answers = _read_answers(answers_file, vocabulary)
    sources = {
        split: SplitPools(_insuranceqa_pools(path, split, vocabulary, answers), path)
        for split, path in found.items()
        if path is not None
    }
    missing = [split for split, path in found.items() if path is None]
    details: dict[str, object] = {"version": 1, "train_pools": "the relevant answers only"}
    if missing:
        details["splits_not_found"] = missing
    write_collection(
        out,
        sources,
        name="insuranceqa-v1",
        source=f"InsuranceQA V1 (Feng et al. 2015), {_HOME}",
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
        check_id(path, position, "label", label)
        if label in texts:
            raise InputError(path, position=position, column="label", value=label, expected="each label once")
        texts[label] = _text(path, position, words, vocabulary)
    return texts


def _insuranceqa_pools(
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
        expected = f"an index of {_VOCABULARY}"
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
