"""A teacher's scores of the training pools: a run file of any system, or of several fused."""

import hashlib

import numpy as np
import polars as pl

from aptool.config import Recipe
from aptool.errors import InputError
from aptool.formats.collection import Collection
from aptool.formats.location import location
from aptool.formats.trec import read_run
from aptool.options import expected_without
from aptool.training.losses import Teacher
from aptool.training.texts import numbered_pairs


def read_teacher(collection: Collection, recipe: Recipe, split: str) -> Teacher | None:
    """The scores of a recipe's teacher; None if it has none.

    Raises:
        InputError: the run cannot be read, or lacks a pair of the training pools.
    """
    options = recipe.teacher
    if not options.run:
        return None
    pairs = numbered_pairs(collection, split)
    found = pairs.frame.join(read_run(options.run).frame, on=["question_id", "answer_id"], how="left")
    missing = found.filter(pl.col("score").is_null())
    if len(missing) == len(found):
        wanted = f"scores of the pairs of {collection.pools(split)}"
        raise InputError(options.run, problem="scores of other pools only", expected=wanted)
    if len(missing):
        question, answer = missing.select("question_id", "answer_id").row(0)
        problem = f"{len(missing):,} of {len(found):,} training pairs have no score"
        place = f"question {question!r}, answer {answer!r}"
        raise InputError(options.run, place=place, problem=problem, expected="a score of every pair")
    keys = found["question"].to_numpy() * len(pairs.answers) + found["answer"].to_numpy()
    keys, first = np.unique(keys, return_index=True)  # an answer with two ids is one
    return Teacher(keys, found["score"].to_numpy()[first].astype(np.float32), len(pairs.answers), options)


def teacher_fingerprint(recipe: Recipe) -> str | None:
    """Hash of the run file; None without a teacher.

    Raises:
        InputError: it does not exist, or is a folder.
    """
    if not recipe.teacher.run:
        return None
    path = location(recipe.teacher.run)
    if path.is_dir():
        raise InputError(path, problem="a folder", expected=expected_without("a run file as a teacher"))
    if not path.is_file():
        raise InputError(path, problem="file not found", expected="a run that scores the training pools")
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
