"""Folds of a collection, by question.

The dev split of each fold has one part of all questions, its train split the other parts. Near copies of a
question are in the same part, so that no system trains on its dev questions. Splits are deterministic.

A split whose candidates are all relevant has no pools to evaluate, as the train split of InsuranceQA V1 or a
list of frequently asked questions. In dev, each of its questions gets a pool of answers of the collection.
"""

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from aptool.data.collection import Collection
from aptool.data.near_copies import assign, hash_of
from aptool.data.pools import read_answers
from aptool.data.table import fill_pools
from aptool.data.trec import read_qrels, to_dicts
from aptool.data.writing import (
    ANSWERS_ADDED,
    MANIFEST,
    LabelledPool,
    SplitPools,
    check_collection_output,
    write_collection,
)
from aptool.errors import AptoolError, InputError
from aptool.paths import PathOrUrl, location

logger = logging.getLogger(__name__)

POOL_SIZE = 500  # as in InsuranceQA V1


def write_folds(
    collection: Collection,
    out: PathOrUrl,
    folds: int = 5,
    splits: Sequence[str] = ("train", "dev"),
    *,
    pool_size: int = POOL_SIZE,
    train_share: float = 1.0,
    seed: int = 0,
    overwrite: bool = False,
) -> list[Collection]:
    """Write one collection per fold: ``OUT/fold1``, ``OUT/fold2`` and so on; missing splits are skipped.

    Questions of a split whose candidates are all relevant are evaluated on ``pool_size`` candidates: their
    relevant answers, and answers drawn with ``seed`` from the collection. Train splits keep ``train_share``
    of their questions, for learning curves: a smaller share is part of a larger one, and dev splits are
    equal.
    """
    present = [split for split in dict.fromkeys(splits) if split in collection.splits]
    if not present:
        problem = f"a collection of the splits {', '.join(collection.splits)}"
        raise InputError(collection.path, problem=problem, expected=f"one of {', '.join(splits)}")
    targets = [location(out) / f"fold{number}" for number in range(1, folds + 1)]
    stale = location(out) / f"fold{folds + 1}"
    if (stale / MANIFEST).is_file():
        problem = f"a fold of an earlier call with more than {folds} folds"
        raise InputError(stale, problem=problem, expected="a folder without it")
    by_split = _distinct(collection, present)
    pools = [pool for of_split in by_split.values() for pool in of_split]
    fold_of = assign([pool.question for pool in pools], [pool.question_id for pool in pools], [1] * folds)
    if len(set(fold_of)) < folds:
        raise AptoolError(
            f"{collection.path}: too few questions for {folds} folds, near copies kept together"
        )
    with_drawn = [split for split, of_split in by_split.items() if _are_all_relevant(of_split)]
    evaluated = _evaluated(collection, by_split, with_drawn, pool_size, seed)
    details = {
        "folds": folds,
        "of": collection.fingerprint,
        "splits": present,
        "pool_size": pool_size,
        "pool_seed": seed,
        "pools_drawn": with_drawn,
        "train_share": train_share,
    }
    for target in targets:
        check_collection_output(target, collection.name, overwrite=overwrite)
    for fold, target in enumerate(targets):
        train = [pool for pool, of_pool in zip(pools, fold_of, strict=True) if of_pool != fold]
        held_out = [pool for pool, of_pool in zip(pools, fold_of, strict=True) if of_pool == fold]
        dev = [evaluated[pool.question_id] for pool in held_out]
        added = sum(len(pool.answer_ids) for pool in dev) - sum(len(pool.answer_ids) for pool in held_out)
        write_collection(
            target,
            {
                "train": _share(train, train_share),
                "dev": SplitPools(dev, counts={ANSWERS_ADDED: added} if added else None),
            },
            name=collection.name,
            source=f"fold {fold + 1} of {folds} of {collection.name}",
            details={**details, "fold": fold + 1},
            overwrite=overwrite,
        )
    return [Collection(target) for target in targets]


def labelled_pools(collection: Collection, split: str) -> Iterator[LabelledPool]:
    """Read the pools of a split with their texts and judgements, in the order of the file."""
    relevance = to_dicts(read_qrels(collection.qrels_file(split)), "relevance")
    for batch in collection.batches(split):
        for pool in batch.records():
            yield LabelledPool(*pool, relevance.get(pool.question_id, {}))


def _share(pools: Sequence[LabelledPool], share: float) -> list[LabelledPool]:
    """A share of the pools, selected by a hash of their ids, in their order."""
    by_hash = sorted(pools, key=lambda pool: hash_of(pool.question_id))
    kept = {pool.question_id for pool in by_hash[: math.ceil(share * len(pools))]}
    return [pool for pool in pools if pool.question_id in kept]


def _are_all_relevant(pools: Sequence[LabelledPool]) -> bool:
    return all(pool.relevance.get(answer, 0) > 0 for pool in pools for answer in pool.answer_ids)


def _evaluated(
    collection: Collection,
    by_split: Mapping[str, list[LabelledPool]],
    with_drawn: Sequence[str],
    pool_size: int,
    seed: int,
) -> dict[str, LabelledPool]:
    """The pool of each question for evaluation; those of the splits ``with_drawn`` have drawn answers."""
    evaluated = {pool.question_id: pool for pools in by_split.values() for pool in pools}
    sources = [pool for split in with_drawn for pool in by_split[split]]
    if sources:
        answers = _answers(collection, by_split)
        content = SplitPools(sources, collection.path)
        drawn = fill_pools(content, pool_size, seed, has_answer_ids=True, shared=answers)
        for source, pool in zip(sources, drawn, strict=True):
            outside = source.relevance.keys() - source.answer_ids  # relevant answers missing from the pool
            relevance = pool.relevance | {answer_id: source.relevance[answer_id] for answer_id in outside}
            evaluated[source.question_id] = pool._replace(relevance=relevance)
        logger.info(
            f"{collection.path}: questions of {', '.join(with_drawn)} have relevant candidates only: in dev, "
            f"they get pools of up to {pool_size:,} answers (seed {seed})"
        )
    return evaluated


def _answers(
    collection: Collection, by_split: Mapping[str, Iterable[LabelledPool]]
) -> Iterator[tuple[str, str]]:
    """Ids and texts of the shared answers and of the candidates of the splits, with repetitions."""
    if collection.answers is not None:
        shared = read_answers(collection.answers)
        yield from zip(shared.answer_ids.to_pylist(), shared.texts.to_pylist(), strict=True)
    for pools in by_split.values():
        for pool in pools:
            yield from zip(pool.answer_ids, pool.texts or (), strict=True)


def _distinct(collection: Collection, splits: Sequence[str]) -> dict[str, list[LabelledPool]]:
    """The pools of each split; a question id that repeats in another split gets the split as its prefix."""
    seen: set[str] = set()
    by_split: dict[str, list[LabelledPool]] = {split: [] for split in splits}
    for split, pools in by_split.items():
        for pool in labelled_pools(collection, split):
            name = pool.question_id if pool.question_id not in seen else f"{split}-{pool.question_id}"
            seen.add(name)
            pools.append(pool._replace(question_id=name))
    return by_split
