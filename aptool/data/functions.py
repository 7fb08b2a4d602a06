"""The built-in collection: code search as re-ranking, over the Python packages installed here.

A question is the first sentence of a function's docstring. Its relevant answer is the words of that
function's source, and its pool has the answers of the split that BM25 ranks best. No package is imported and
nothing is downloaded. The same package versions give the same bytes on every machine.
"""

import gc
import itertools
import logging
import platform
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from aptool.data import near_copies
from aptool.data.source_code import (
    Function,
    SourceFile,
    find_sources,
    installed_packages,
    read_functions,
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
    for copies in (_same_answers, _same_questions, _near_copies):
        splits = _without(splits, copies(splits), dropped)
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
    position = int(near_copies.hash_of(file)[:16], 16) / 2**64
    for split, share in SHARES.items():
        if position < share:
            return split
        position -= share
    return next(iter(SHARES))


def _read(sources: Iterable[SourceFile], limit: int | None) -> tuple[Splits, Dropped]:
    files: dict[str, list[SourceFile]] = {split: [] for split in SHARES}
    for source in sorted(sources, key=lambda source: near_copies.hash_of(source.name)):
        files[split_of(source.name)].append(source)
    dropped: Dropped = defaultdict(Counter)
    splits: Splits = {}
    logger.info(f"reading the functions of {sum(map(len, files.values())):,} Python files")
    gc.disable()  # syntax trees have no cycles: parsing takes half the time
    try:
        for split, share in SHARES.items():
            size = None if limit is None else round(share * limit)
            functions: list[Function] = []
            for source in files[split]:
                if size is not None and len(functions) >= _READ_PER_SELECTED * size:
                    break
                functions += read_functions(source, dropped[split])
            functions.sort(key=lambda function: near_copies.hash_of(function.name))
            splits[split] = functions[:size]
            dropped[split]["functions_beyond_limit_dropped"] += len(functions) - len(splits[split])
    finally:
        gc.enable()
    return splits, dropped


def _without(splits: Splits, reasons: Mapping[str, str], dropped: Dropped) -> Splits:
    """Drop functions by name, and count them by reason."""
    kept: Splits = {split: [] for split in splits}
    for split, functions in splits.items():
        for function in functions:
            if function.name in reasons:
                dropped[split][reasons[function.name]] += 1
            else:
                kept[split].append(function)
    return kept


def _same_answers(splits: Splits) -> dict[str, str]:
    """All functions but the first of each answer text; later splits come first, so that test loses none."""
    seen: set[str] = set()
    repeated: list[str] = []
    for function in itertools.chain(*reversed(splits.values())):
        if function.answer in seen:
            repeated.append(function.name)
        seen.add(function.answer)
    return dict.fromkeys(repeated, "answers_repeated_dropped")


def _same_questions(splits: Splits) -> dict[str, str]:
    """All functions but the first of each question if they are near copies of it; else all of them.

    Near copies are versions, overloads and synchronous twins. Functions that differ are several answers.
    """
    groups: dict[tuple[str, ...], list[Function]] = defaultdict(list)
    for function in itertools.chain(*reversed(splits.values())):
        groups[tuple(_question_words(function.question))].append(function)
    reasons: dict[str, str] = {}
    for group in groups.values():
        answers = near_copies.encode([function.answer.split() for function in group], ANSWER_RUN)
        if all(near_copies.jaccard(answers[0], other) >= NEAR_ANSWER for other in answers[1:]):
            reasons |= {function.name: "near_copies_of_same_question_dropped" for function in group[1:]}
        else:
            reasons |= {function.name: "questions_repeated_dropped" for function in group}
    return reasons


def _near_copies(splits: Splits) -> dict[str, str]:
    """The functions whose question or answer is a near copy of one in a later split."""
    functions = list(itertools.chain(*splits.values()))
    rank = [number for number, split in enumerate(splits.values()) for _ in split]
    answers = near_copies.encode([function.answer.split() for function in functions], ANSWER_RUN)
    questions = near_copies.encode([_question_words(function.question) for function in functions], 1)
    held_out = [row for row, number in enumerate(rank) if number > 0]
    removed: list[str] = []
    for sets, threshold in ((answers, NEAR_ANSWER), (questions, NEAR_QUESTION)):
        for i, j in near_copies.near_pairs([sets[row] for row in held_out], sets, threshold):
            if rank[j] < rank[held_out[i]]:
                removed.append(functions[j].name)
    return dict.fromkeys(removed, "near_copies_of_later_split_dropped")


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
    return "a" + near_copies.hash_of(answer)[:12]
