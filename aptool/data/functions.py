"""The built-in collection: code search as re-ranking, over the Python packages installed here.

A question is the first sentence of a function's docstring. Its relevant answer is the words of that
function's source, and its pool has the answers of the split that BM25 ranks best. No package is imported and
nothing is downloaded. The same package versions give the same bytes on every machine.
"""

import hashlib
import logging
import platform
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from aptool.data import near_copies
from aptool.data.source_code import (
    Function,
    SourceFile,
    find_sources,
    installed_packages,
    read_functions,
    without_garbage_collection,
)
from aptool.data.writing import CollectionWriter, LabelledPool, check_collection_output
from aptool.errors import AptoolError, UsageError
from aptool.paths import PathOrUrl
from aptool.text.bm25 import BM25

logger = logging.getLogger(__name__)

NAME = "functions"
POOL_SIZE = 100
SMALLEST_LIMIT = 100

# Share of the files per split. A file's split depends on its name alone, so it is the same with any --limit
# and with other versions of the packages.
SHARES = {"train": 0.91, "dev": 0.03, "test": 0.06}

# Answers are compared as sets of runs of three words, questions as sets of words.
ANSWER_RUN = 3
NEAR_ANSWER = 0.4
NEAR_QUESTION = 0.6

# With a limit, functions to read per selected function; the selection is a sample, for variety.
_READ_PER_SELECTED = 4
_QUESTION_WORD = re.compile(r"[a-z0-9]+")
_ARTICLES = {"a", "an", "the", "this", "that", "its"}

Splits = dict[str, list[Function]]
Dropped = dict[str, Counter[str]]  # split -> reason -> functions


def import_functions(
    out: PathOrUrl,
    limit: int | None = None,
    *,
    sources: Iterable[SourceFile] | None = None,
    overwrite: bool = False,
) -> None:
    """Write the collection ``functions``.

    A limit on the functions, at least ``SMALLEST_LIMIT``, gives a fixed sample with the splits' proportions.
    Without ``sources``, the standard library and the installed packages are read.
    """
    if limit is not None and limit < SMALLEST_LIMIT:
        raise UsageError(f"limit {limit}: expected at least {SMALLEST_LIMIT}")
    check_collection_output(out, NAME, overwrite=overwrite)
    versions: dict[str, str] = {}
    if sources is None:
        versions = installed_packages()
        sources = find_sources(versions)
    splits, dropped = _read(sources, limit)
    splits = _without_same_answer(splits, dropped)
    splits = _without_same_question(splits, dropped)
    splits = _without_near_copies(splits, dropped)
    for split, functions in splits.items():
        if len(functions) < 2:
            raise AptoolError(f"{out}: split {split!r}: {len(functions)} functions left, expected at least 2")
    sizes = ", ".join(f"{split} {len(functions):,}" for split, functions in splits.items())
    logger.info(f"kept {sum(map(len, splits.values())):,} functions ({sizes}); pooling them by BM25")
    packages = Counter(function.package for functions in splits.values() for function in functions)
    details: dict[str, object] = {
        "python": platform.python_version(),
        "packages": dict(sorted(versions.items())),
        "functions_per_package": dict(sorted(packages.items())),
        "pool_size": POOL_SIZE,
        "limit": limit,
    }
    with CollectionWriter(
        out,
        name=NAME,
        source="documented functions of the Python standard library and of installed packages",
        details=details,
        overwrite=overwrite,
    ) as writer:
        for split, reasons in dropped.items():
            for reason, rows in sorted(reasons.items()):
                writer.count(reason, split, rows)
        answers = [function.answer for functions in splits.values() for function in functions]
        writer.add_answers(sorted((_answer_id(answer), answer) for answer in answers))
        for split, functions in splits.items():
            writer.add_split(split, _pools(functions))


def split_of(file: str) -> str:
    """Choose the split of a source file by a hash of its name."""
    position = _hash(file) / 2**64
    for split, share in SHARES.items():
        if position < share:
            return split
        position -= share
    return next(iter(SHARES))


def _read(sources: Iterable[SourceFile], limit: int | None) -> tuple[Splits, Dropped]:
    files: dict[str, list[SourceFile]] = {split: [] for split in SHARES}
    for source in sorted(sources, key=lambda source: (_hash(source.name), source.name)):
        files[split_of(source.name)].append(source)
    dropped: Dropped = defaultdict(Counter)
    splits: Splits = {}
    files_read = functions_read = 0
    logger.info(f"reading the functions of {sum(map(len, files.values())):,} Python files")
    with without_garbage_collection():
        for split, share in SHARES.items():
            size = None if limit is None else round(share * limit)
            functions: list[Function] = []
            for source in files[split]:
                if size is not None and len(functions) >= _READ_PER_SELECTED * size:
                    break
                functions += read_functions(source, dropped[split])
                files_read += 1
                if files_read % 1000 == 0:
                    total = functions_read + len(functions)
                    logger.info(f"read {files_read:,} files, {total:,} functions")
            functions_read += len(functions)
            functions.sort(key=lambda function: (_hash(function.name), function.name))
            splits[split] = functions[:size]
            dropped[split]["functions_beyond_limit_dropped"] += len(functions) - len(splits[split])
    return splits, dropped


def _without_same_answer(splits: Splits, dropped: Dropped) -> Splits:
    """Keep the first function of each answer text; later splits take precedence, so that test loses none."""
    seen: set[str] = set()
    repeated: set[str] = set()
    for split in reversed(list(splits)):
        for function in splits[split]:
            if function.answer in seen:
                dropped[split]["answers_repeated_dropped"] += 1
                repeated.add(function.name)
            seen.add(function.answer)
    return _without(splits, repeated)


def _without_same_question(splits: Splits, dropped: Dropped) -> Splits:
    """Keep the first function of each question if its other functions are near copies; else drop all.

    Near copies are versions, overloads and synchronous twins. Functions that differ are several answers.
    """
    groups: dict[tuple[str, ...], list[tuple[str, Function]]] = defaultdict(list)
    for split in reversed(list(splits)):
        for function in splits[split]:
            groups[tuple(_question_words(function.question))].append((split, function))
    removed: set[str] = set()
    for group in groups.values():
        answers = near_copies.encode([function.answer.split() for _, function in group], ANSWER_RUN)
        is_one_answer = all(near_copies.jaccard(answers[0], other) >= NEAR_ANSWER for other in answers[1:])
        reason = "near_copies_of_same_question_dropped" if is_one_answer else "questions_repeated_dropped"
        for split, function in group[1:] if is_one_answer else group:
            dropped[split][reason] += 1
            removed.add(function.name)
    return _without(splits, removed)


def _without_near_copies(splits: Splits, dropped: Dropped) -> Splits:
    """Drop functions whose question or answer is a near copy of one in a later split."""
    functions = [function for split in splits.values() for function in split]
    order = list(splits)
    rank = [number for number, split in enumerate(order) for _ in splits[split]]
    answers = near_copies.encode([function.answer.split() for function in functions], ANSWER_RUN)
    questions = near_copies.encode([_question_words(function.question) for function in functions], 1)
    held_out = [row for row, number in enumerate(rank) if number > 0]
    removed: set[int] = set()
    for sets, threshold in ((answers, NEAR_ANSWER), (questions, NEAR_QUESTION)):
        for i, j in near_copies.near_pairs([sets[row] for row in held_out], sets, threshold):
            if rank[j] < rank[held_out[i]]:
                removed.add(j)
    for row in removed:
        dropped[order[rank[row]]]["near_copies_of_later_split_dropped"] += 1
    return _without(splits, {functions[row].name for row in removed})


def _without(splits: Splits, names: set[str]) -> Splits:
    return {
        split: [function for function in functions if function.name not in names]
        for split, functions in splits.items()
    }


def _question_words(question: str) -> list[str]:
    """The words by which questions are compared: lower-cased, without articles and final 's'."""
    words = (word for word in _QUESTION_WORD.findall(question.lower()) if word not in _ARTICLES)
    return [word[:-1] if len(word) > 3 and word.endswith("s") else word for word in words]


def _pools(functions: list[Function]) -> Iterator[LabelledPool]:
    """The pool of each question, ordered by answer id, which does not depend on relevance."""
    ids = [_answer_id(function.answer) for function in functions]
    index = BM25([function.answer.split() for function in functions])
    best, _ = index.top([function.question for function in functions], POOL_SIZE)
    for relevant, function in enumerate(functions):
        negatives = [row for row in best[relevant].tolist() if row != relevant][: POOL_SIZE - 1]
        pool = sorted(ids[row] for row in (relevant, *negatives))
        yield LabelledPool(function.name, function.question, pool, None, {ids[relevant]: 1})


def _answer_id(answer: str) -> str:
    """An id that does not depend on the question, as it breaks ties between scores."""
    return "a" + hashlib.sha256(answer.encode()).hexdigest()[:12]


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
