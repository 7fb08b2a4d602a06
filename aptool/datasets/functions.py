"""The built-in collection: code search as re-ranking, over the Python packages installed here.

The question is the first sentence of a function's docstring, the relevant answer that function's source as
words, and the pool this answer with the best others of its split by BM25, as a first stage retrieves them.
No package is imported and nothing is downloaded; the same package versions give the same bytes everywhere.
"""

import hashlib
import logging
import platform
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

from aptool.datasets import leaks
from aptool.datasets.source_code import (
    Function,
    SourceFile,
    find_sources,
    installed_packages,
    read_functions,
    without_garbage_collection,
)
from aptool.errors import AptoolError, UsageError
from aptool.formats.atomic import check_folder
from aptool.formats.collection import MANIFEST, CollectionWriter, LabelledPool
from aptool.formats.location import PathOrUrl
from aptool.text.bm25 import BM25

logger = logging.getLogger(__name__)

POOL_SIZE = 100
SMALLEST_LIMIT = 100

# Which share of all files a split gets. A file's split follows from its name alone, so it is the same
# with any --limit and with any other versions of the packages.
SHARES = {"train": 0.91, "dev": 0.03, "test": 0.06}

# Answers are compared as sets of runs of three words, questions as sets of words.
ANSWER_RUN = 3
NEAR_ANSWER = 0.4
NEAR_QUESTION = 0.6

# With a limit, so many times as many functions are read and a sample of them is kept, for variety.
_READ_PER_KEPT = 4
_QUESTION_WORD = re.compile(r"[a-z0-9]+")
_ARTICLES = {"a", "an", "the", "this", "that", "its"}

Splits = dict[str, list[Function]]
Dropped = dict[str, Counter[str]]


def import_functions(
    out: PathOrUrl,
    limit: int | None = None,
    *,
    sources: Iterable[SourceFile] | None = None,
) -> None:
    """Builds the collection ``functions`` in the folder ``out``, replacing an existing one.

    Args:
        out: the collection's folder.
        limit: maximum number of functions, a fixed sample that keeps the splits' proportions; at least
            ``SMALLEST_LIMIT``.
        sources: files to take functions from, instead of the installed packages.

    Raises:
        UsageError: the limit is too small.
        InputError: ``out`` cannot be written.
        AptoolError: a split is left without functions.
    """
    if limit is not None and limit < SMALLEST_LIMIT:
        raise UsageError(f"limit {limit}: expected at least {SMALLEST_LIMIT}")
    check_folder(out, MANIFEST)
    versions: dict[str, str] = {}
    if sources is None:
        versions = installed_packages()
        sources = find_sources(versions)
    found, dropped = _read(sources, limit)
    splits = without_copies(found, dropped)
    for split, functions in splits.items():
        if len(functions) < 2:
            raise AptoolError(f"{out}: split {split!r}: {len(functions)} functions left, expected at least 2")
    sizes = ", ".join(f"{split} {len(functions):,}" for split, functions in splits.items())
    logger.info(f"kept {sum(map(len, splits.values())):,} functions ({sizes}); pooling them by BM25")
    with CollectionWriter(
        out,
        name="functions",
        source="documented functions of the Python standard library and of installed packages",
        details={**_details(versions, splits), "limit": limit},
    ) as writer:
        for split, reasons in dropped.items():
            for reason, rows in sorted(reasons.items()):
                writer.count(reason, split, rows)
        everything = [function.answer for functions in splits.values() for function in functions]
        writer.add_answers(sorted((answer_id(answer), answer) for answer in everything))
        for split, functions in splits.items():
            writer.add_split(split, _pools(functions))


def split_of(file: str) -> str:
    """The split of a source file, from a hash of its name."""
    place = _hash(file) / 2**64
    for split, share in SHARES.items():
        if place < share:
            return split
        place -= share
    return next(iter(SHARES))


def answer_id(answer: str) -> str:
    """An id that does not depend on the question: ties between scores are broken by it."""
    return "a" + hashlib.sha256(answer.encode()).hexdigest()[:12]


def question_words(question: str) -> list[str]:
    """The words by which questions are compared: lower-cased, without articles and final 's'.

    ``Return the names`` and ``Returns a name`` ask the same.
    """
    found = (word for word in _QUESTION_WORD.findall(question.lower()) if word not in _ARTICLES)
    return [word[:-1] if len(word) > 3 and word.endswith("s") else word for word in found]


def without_copies(found: Mapping[str, list[Function]], dropped: Dropped) -> Splits:
    """Drops duplicates: repeated answers and questions, and near-copies across splits.

    - Of functions with one answer text, the first is kept.
    - Of functions with one question, the first is kept if the others are near-copies of it (versions,
      overloads, synchronous twins); if not, none is: the question would have several answers.
    - A function of train that is a near-copy of one in dev or test, by its question or by its answer, is
      left out, and so is one of dev that is a near-copy of one in test. So the test split stays whole.
    """
    splits = _without_same_answer(found, dropped)
    splits = _without_same_question(splits, dropped)
    return _without_near_copies(splits, dropped)


def _read(sources: Iterable[SourceFile], limit: int | None) -> tuple[Splits, Dropped]:
    files: dict[str, list[SourceFile]] = {split: [] for split in SHARES}
    for source in sorted(sources, key=lambda source: (_hash(source.name), source.name)):
        files[split_of(source.name)].append(source)
    dropped: Dropped = defaultdict(Counter)
    found: Splits = {}
    count = sum(map(len, files.values()))
    read = functions_so_far = 0
    logger.info(f"reading the functions of {count:,} Python files")
    with without_garbage_collection():
        for split, share in SHARES.items():
            wanted = None if limit is None else round(share * limit)
            functions: list[Function] = []
            for source in files[split]:
                if wanted is not None and len(functions) >= _READ_PER_KEPT * wanted:
                    break
                functions += read_functions(source, dropped[split])
                read += 1
                if read % 1000 == 0:
                    logger.info(f"read {read:,} files, {functions_so_far + len(functions):,} functions")
            functions_so_far += len(functions)
            functions.sort(key=lambda function: (_hash(function.name), function.name))
            found[split] = functions[:wanted]
            dropped[split]["functions_beyond_limit_dropped"] += len(functions) - len(found[split])
    return found, dropped


def _without_same_answer(found: Mapping[str, list[Function]], dropped: Dropped) -> Splits:
    seen: set[str] = set()
    kept: Splits = {}
    for split in reversed(list(found)):
        kept[split] = []
        for function in found[split]:
            if function.answer in seen:
                dropped[split]["answers_repeated_dropped"] += 1
            else:
                seen.add(function.answer)
                kept[split].append(function)
    return {split: kept[split] for split in found}


def _without_same_question(splits: Splits, dropped: Dropped) -> Splits:
    groups: dict[tuple[str, ...], list[tuple[str, Function]]] = defaultdict(list)
    for split in reversed(list(splits)):
        for function in splits[split]:
            groups[tuple(question_words(function.question))].append((split, function))
    gone: set[str] = set()
    for group in groups.values():
        runs = leaks.encode([function.answer.split() for _, function in group], ANSWER_RUN)
        one_answer = all(leaks.jaccard(runs[0], other) >= NEAR_ANSWER for other in runs[1:])
        for split, function in group[1:] if one_answer else group:
            reason = "near_copies_of_same_question_dropped" if one_answer else "questions_repeated_dropped"
            dropped[split][reason] += 1
            gone.add(function.name)
    return _less(splits, gone)


def _without_near_copies(splits: Splits, dropped: Dropped) -> Splits:
    functions = [function for split in splits.values() for function in split]
    order = list(splits)
    rank = [place for place, split in enumerate(order) for _ in splits[split]]
    answers = leaks.encode([function.answer.split() for function in functions], ANSWER_RUN)
    questions = leaks.encode([question_words(function.question) for function in functions], 1)
    held_out = [row for row, place in enumerate(rank) if place > 0]
    gone: set[int] = set()
    for sets, threshold in ((answers, NEAR_ANSWER), (questions, NEAR_QUESTION)):
        for i, j in leaks.near_pairs([sets[row] for row in held_out], sets, threshold):
            if rank[j] < rank[held_out[i]]:
                gone.add(j)
    for row in gone:
        dropped[order[rank[row]]]["near_copies_of_later_split_dropped"] += 1
    return _less(splits, {functions[row].name for row in gone})


def _less(splits: Splits, gone: set[str]) -> Splits:
    return {
        split: [function for function in functions if function.name not in gone]
        for split, functions in splits.items()
    }


def _pools(functions: list[Function]) -> Iterator[LabelledPool]:
    """The pool of each question, ordered by answer id, which does not depend on relevance."""
    ids = [answer_id(function.answer) for function in functions]
    index = BM25([function.answer.split() for function in functions])
    best, _ = index.top([function.question for function in functions], POOL_SIZE)
    for relevant, function in enumerate(functions):
        others = [row for row in best[relevant].tolist() if row != relevant][: POOL_SIZE - 1]
        pool = sorted(ids[row] for row in (relevant, *others))
        yield LabelledPool(function.name, function.question, pool, None, {ids[relevant]: 1})


def _details(versions: Mapping[str, str], splits: Splits) -> dict[str, object]:
    packages = Counter(function.package for functions in splits.values() for function in functions)
    return {
        "python": platform.python_version(),
        "packages": dict(sorted(versions.items())),
        "functions_per_package": dict(sorted(packages.items())),
        "pool_size": POOL_SIZE,
    }


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
