"""Texts, relevant answers and the scores of a teacher, read from the collections of a training."""

import hashlib
from collections.abc import Iterator

import numpy as np
import polars as pl

from aptool.config import Recipe
from aptool.errors import InputError
from aptool.formats.collection import CollectionFiles
from aptool.formats.inputs import open_binary
from aptool.formats.trec import read_qrels, read_run
from aptool.training.data import IndexLists, Teacher, TrainingTexts

TRAIN = "train"  # the split that systems are trained on


def _numbered_pairs(collection: CollectionFiles, split: str) -> tuple[list[str], list[str], pl.DataFrame]:
    """Read the pools of a split; answers are numbered by their text.

    Returns the question of each pool, the distinct answers, and the pairs: question_id, answer_id, and
    question and answer (their indices in the lists).
    """
    questions: list[str] = []
    answers: dict[str, int] = {}
    frames = []
    for pools in collection.batches(split):
        index = np.array([answers.setdefault(text, len(answers)) for text in pools.answers.to_pylist()])
        numbers = {"question": pools.pair_question + len(questions), "answer": index[pools.pair_answer]}
        frames.append(pools.pairs().hstack(pl.DataFrame(numbers)))
        questions += pools.questions.to_pylist()
    return questions, list(answers), pl.concat(frames)


def read_texts(collection: CollectionFiles, split: str) -> TrainingTexts:
    """Read the pools and qrels of a split; relevant answers outside all pools are ignored."""
    questions, answers, pairs = _numbered_pairs(collection, split)
    relevant = read_qrels(collection.qrels(split)).filter(pl.col("relevance") > 0)
    positive = pairs.join(relevant, on=["question_id", "answer_id"], how="semi")
    positives = IndexLists.of(positive["question"].to_numpy(), positive["answer"].to_numpy(), len(questions))
    if not len(positives.values):
        problem = f"none for {collection.pools(split).name}"
        expected = "at least one relevant answer in a pool"
        raise InputError(collection.qrels(split), problem=problem, expected=expected)
    pools = IndexLists.of(pairs["question"].to_numpy(), pairs["answer"].to_numpy(), len(questions))
    return TrainingTexts(questions, answers, positives, pools)


def sources(collection: CollectionFiles, recipe: Recipe) -> list[CollectionFiles]:
    """Open the collections of a training, ``collection`` first."""
    opened = [collection]
    for number, text in enumerate(recipe.mixture.collections):
        position = f"mixture.collections, item {number}"
        further = CollectionFiles(text)
        if further.path.resolve() in [source.path.resolve() for source in opened]:
            raise InputError(recipe.preset, position=position, value=text, expected="each collection once")
        opened.append(further)
    return opened


def all_texts(collection: CollectionFiles, recipe: Recipe) -> Iterator[str]:
    """Yield every text of every split of every collection; an answer appears once per row group."""
    for source in sources(collection, recipe):
        for split in source.splits:
            for pools in source.batches(split):
                yield from pools.questions.to_pylist()
                yield from pools.answers.to_pylist()


def read_mixture(collection: CollectionFiles, recipe: Recipe) -> TrainingTexts:
    """Join the training splits of all collections; equal answers are joined, too."""
    collections = sources(collection, recipe)
    if len(collections) == 1:
        return read_texts(collection, TRAIN)
    parts = [read_texts(source, TRAIN) for source in collections]
    index: dict[str, int] = {}
    for part in parts:
        for text in part.answers:
            index.setdefault(text, len(index))
    renumbered = [np.array([index[text] for text in part.answers], dtype=np.int64) for part in parts]
    return TrainingTexts(
        questions=[question for part in parts for question in part.questions],
        answers=list(index),
        positives=_joined([part.positives for part in parts], renumbered),
        pools=_joined([part.pools for part in parts], renumbered),
    )


def _joined(parts: list[IndexLists], renumbered: list[np.ndarray]) -> IndexLists:
    """Concatenate the lists of all parts, with the new numbers of their answers."""
    values = np.concatenate([new[part.values] for part, new in zip(parts, renumbered, strict=True)])
    lengths = np.concatenate([part.lengths for part in parts])
    return IndexLists.of(np.repeat(np.arange(len(lengths)), lengths), values, len(lengths))


def read_teacher(collection: CollectionFiles, recipe: Recipe) -> Teacher | None:
    """Read the scores of the teacher of a recipe, if any."""
    options = recipe.teacher
    if not options.run:
        return None
    _, answers, pairs = _numbered_pairs(collection, TRAIN)
    scored = pairs.join(read_run(options.run).frame, on=["question_id", "answer_id"], how="left")
    missing = scored.filter(pl.col("score").is_null())
    if len(missing) == len(scored):
        expected = f"scores of the pairs of {collection.pools(TRAIN)}"
        raise InputError(options.run, problem="scores of other pools only", expected=expected)
    if len(missing):
        question, answer = missing.select("question_id", "answer_id").row(0)
        problem = f"{len(missing):,} of {len(scored):,} training pairs have no score"
        position = f"question {question!r}, answer {answer!r}"
        raise InputError(options.run, position=position, problem=problem, expected="a score of every pair")
    keys = scored["question"].to_numpy() * len(answers) + scored["answer"].to_numpy()
    keys, first = np.unique(keys, return_index=True)  # an answer may have two ids
    return Teacher(keys, scored["score"].to_numpy()[first].astype(np.float32), len(answers), options)


def teacher_fingerprint(recipe: Recipe) -> str | None:
    """Hash the run file of the teacher of a recipe, if any."""
    if not recipe.teacher.run:
        return None
    with open_binary(recipe.teacher.run) as file:
        return hashlib.sha256(file.read()).hexdigest()[:16]
