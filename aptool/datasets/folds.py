"""Splits by question: of one table into train, dev and test, or of a collection into folds.

The dev split of each fold has one part of all questions, its train split the other parts. Near copies of a
question are in the same part, so that no system trains on its dev questions. Splits are deterministic.
"""

import contextlib
import hashlib
from collections.abc import Iterator, Sequence

from aptool.datasets.importing import SplitPools
from aptool.datasets.leaks import THRESHOLD, encode, labelled_pools, near_pairs
from aptool.datasets.pairs import Conflicts
from aptool.errors import AptoolError, InputError, counted
from aptool.formats.atomic import check_output_folder, remove_tree
from aptool.formats.collection import MANIFEST, CollectionFiles, CollectionWriter, LabelledPool
from aptool.formats.location import Location, PathOrUrl, location
from aptool.formats.outputs import Kind
from aptool.text.words import unicode_words as words


def write_folds(
    collection: CollectionFiles, out: PathOrUrl, folds: int = 5, splits: Sequence[str] = ("train", "dev")
) -> list[CollectionFiles]:
    """Write one collection per fold: ``OUT/fold1``, ``OUT/fold2`` and so on; missing splits are skipped."""
    present = [split for split in dict.fromkeys(splits) if split in collection.splits]
    if not present:
        problem = f"a collection of the splits {', '.join(collection.splits)}"
        raise InputError(collection.path, problem=problem, expected=f"one of {', '.join(splits)}")
    targets = [location(out) / f"fold{number}" for number in range(1, folds + 1)]
    stale = location(out) / f"fold{folds + 1}"
    if (stale / MANIFEST).is_file():
        problem = f"a fold of an earlier call with more than {folds} folds"
        raise InputError(stale, problem=problem, expected="a folder without it")
    pools = list(_distinct(collection, present))
    fold_of = assign([pool.question for pool in pools], [pool.question_id for pool in pools], [1] * folds)
    if len(set(fold_of)) < folds:
        raise AptoolError(
            f"{collection.path}: too few questions for {folds} folds, near copies kept together"
        )
    for target in targets:
        check_output_folder(target, Kind.COLLECTION)
    with contextlib.ExitStack() as undo:
        for number, target in enumerate(targets):
            if not target.exists():
                undo.callback(remove_tree, target)
            _write_fold(collection, target, number, folds, pools, fold_of, present)
        undo.pop_all()
    return [CollectionFiles(target) for target in targets]


def _write_fold(
    collection: CollectionFiles,
    target: Location,
    number: int,
    folds: int,
    pools: Sequence[LabelledPool],
    fold_of: Sequence[int],
    splits: Sequence[str],
) -> None:
    train = [pool for pool, fold in zip(pools, fold_of, strict=True) if fold != number]
    dev = [pool for pool, fold in zip(pools, fold_of, strict=True) if fold == number]
    details = {"folds": folds, "fold": number + 1, "of": collection.fingerprint, "splits": list(splits)}
    source = f"fold {number + 1} of {folds} of {collection.name}"
    with CollectionWriter(target, name=collection.name, source=source, details=details) as writer:
        writer.add_split("train", train)
        writer.add_split("dev", dev)


def divide(content: SplitPools, shares: Sequence[int]) -> dict[str, SplitPools]:
    """Divide the pools of one table among the splits train, dev and test, in proportion to their shares."""
    pools = list(content.pools)
    split_of = assign([pool.question for pool in pools], [pool.question_id for pool in pools], shares)
    if len(set(split_of)) < len(shares):
        problem = f"{counted(len(pools), 'question')}, near copies kept together"
        raise InputError(content.path, problem=problem, expected=f"at least {len(shares)} to split")
    divided = {}
    for number, split in enumerate(("train", "dev", "test")[: len(shares)]):
        part = [pool for pool, of_pool in zip(pools, split_of, strict=True) if of_pool == number]
        divided[split] = content._replace(pools=part)
        # The rows of the whole table that policies affected are counted once.
        resolution = content.conflicts.resolution if content.conflicts is not None else "error"
        content = content._replace(counts={}, conflicts=Conflicts(resolution))
    return divided


def assign(questions: Sequence[str], ids: Sequence[str], shares: Sequence[int]) -> list[int]:
    """Assign a fold, from 0, to each question: near copies to one fold, in proportion to the folds' shares.

    Groups are assigned from the largest to the smallest, each to the fold with the fewest questions for its
    share. Groups of one size are ordered by a hash of their first id, which separates neighbours in a file.
    """
    groups: dict[int, list[int]] = {}
    for row, root in enumerate(_roots(questions)):
        groups.setdefault(root, []).append(row)
    order = sorted(groups.values(), key=lambda rows: (-len(rows), _hash(ids[rows[0]])))
    sizes, fold_of = [0] * len(shares), [0] * len(questions)
    for rows in order:
        fold = min(range(len(shares)), key=lambda number: sizes[number] / shares[number])
        sizes[fold] += len(rows)
        for row in rows:
            fold_of[row] = fold
    return fold_of


def _roots(questions: Sequence[str]) -> list[int]:
    """Map each question to a representative of its near copies, and of their near copies in turn."""
    sets = encode([words(question) for question in questions], 1)
    root = list(range(len(questions)))

    def find(row: int) -> int:
        while root[row] != row:
            root[row] = root[root[row]]
            row = root[row]
        return row

    for i, j in near_pairs(sets, sets, THRESHOLD):
        first, second = sorted((find(i), find(j)))
        root[second] = first
    return [find(row) for row in range(len(questions))]


def _distinct(collection: CollectionFiles, splits: Sequence[str]) -> Iterator[LabelledPool]:
    """All questions of the splits; an id that repeats in another split gets the split as its prefix."""
    seen: set[str] = set()
    for split in splits:
        for pool in labelled_pools(collection, split):
            name = pool.question_id if pool.question_id not in seen else f"{split}-{pool.question_id}"
            seen.add(name)
            yield pool._replace(question_id=name)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
