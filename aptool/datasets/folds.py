"""Folds for choosing without a test set: the questions of train and dev, dealt out anew.

Each fold is a collection of its own: its dev split is one part of all questions, its train split the others.
Questions that are near copies of each other always stand in the same part, so that no fold trains on what it
is judged by. The same collection gives the same folds.
"""

import hashlib
from collections.abc import Iterator, Sequence

from aptool.datasets.importing import check_output
from aptool.datasets.leaks import THRESHOLD, encode, labelled_pools, near_pairs
from aptool.errors import AptoolError, InputError, UsageError
from aptool.formats.collection import MANIFEST, CollectionFiles, CollectionWriter, LabelledPool
from aptool.formats.location import PathOrUrl, location
from aptool.text.bm25 import words


def write_folds(
    collection: CollectionFiles, out: PathOrUrl, folds: int = 5, splits: Sequence[str] = ("train", "dev")
) -> list[CollectionFiles]:
    """Writes ``OUT/fold1`` and so on, one collection for each fold.

    Args:
        collection: where the questions come from.
        out: the folder of the folds.
        folds: how many; at least 2.
        splits: whose questions are used; a split that the collection does not have is left out.

    Raises:
        UsageError: there are fewer than two folds.
        InputError: the collection has none of the splits, the folder has more folds than these, or a file
            cannot be read or written.
        AptoolError: there are fewer groups of questions than folds.
    """
    if folds < 2:
        raise UsageError(f"--folds {folds}: expected at least 2")
    present = [split for split in dict.fromkeys(splits) if split in collection.splits]
    if not present:
        wanted = f"one of {', '.join(splits)}"
        raise InputError(collection.path, problem="none of its splits is one of those", expected=wanted)
    targets = [location(out) / f"fold{number}" for number in range(1, folds + 1)]
    for target in targets:
        check_output(target)
    more = location(out) / f"fold{folds + 1}"
    if (more / MANIFEST).is_file():
        raise InputError(more, problem=f"a fold beyond {folds}", expected="all folds of a folder of one call")
    pools = list(_distinct(collection, present))
    part = assign([pool.question for pool in pools], [pool.question_id for pool in pools], folds)
    if len(set(part)) < folds:
        raise AptoolError(
            f"{collection.path}: too few questions for {folds} folds, near copies kept together"
        )
    found = []
    for number, target in enumerate(targets):
        details = {"folds": folds, "fold": number + 1, "of": collection.fingerprint, "splits": present}
        source = f"fold {number + 1} of {folds} of {collection.name}"
        with CollectionWriter(target, name=collection.name, source=source, details=details) as writer:
            writer.add_split("train", (pool for pool, own in zip(pools, part, strict=True) if own != number))
            writer.add_split("dev", (pool for pool, own in zip(pools, part, strict=True) if own == number))
        found.append(CollectionFiles(target))
    return found


def assign(questions: Sequence[str], ids: Sequence[str], folds: int) -> list[int]:
    """The fold of each question, from 0: near copies together, all folds of about the same size.

    Groups are dealt out from the largest to the smallest, each to the fold with the fewest questions so far;
    equal ones in the order of a hash of their first id, so that neighbours in a file do not stay together.
    """
    groups: dict[int, list[int]] = {}
    for row, root in enumerate(_roots(questions)):
        groups.setdefault(root, []).append(row)
    order = sorted(groups.values(), key=lambda rows: (-len(rows), _hash(ids[rows[0]])))
    sizes, fold_of = [0] * folds, [0] * len(questions)
    for rows in order:
        fold = sizes.index(min(sizes))
        sizes[fold] += len(rows)
        for row in rows:
            fold_of[row] = fold
    return fold_of


def _roots(questions: Sequence[str]) -> list[int]:
    """For each question one that stands for all its near copies, and for their near copies in turn."""
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
    """Every question of the splits; one whose id stands in two splits gets the split's name in front."""
    seen: set[str] = set()
    for split in splits:
        for pool in labelled_pools(collection, split):
            name = pool.question_id if pool.question_id not in seen else f"{split}-{pool.question_id}"
            seen.add(name)
            yield pool._replace(question_id=name)


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
