"""Recorded runs: the rankings behind the tables of ``docs/results``.

``aptool/recorded/COLLECTION.parquet`` has one row per candidate: question_id, answer_id, and one column
``SYSTEM/SEED`` per run with the rank of the answer (u16, from 1) in the order of trec_eval, which determines
every measure. The file has no texts and no judgements. Its metadata has the SHA-256 of the judgements.
``bench/record.py`` writes these files.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from aptool.errors import InputError, UsageError, first_few

RECORDED = Path(__file__).parents[1] / "recorded"
KEYS = ("question_id", "answer_id")
QRELS = b"aptool.qrels"  # metadata entry


def recorded_systems() -> dict[str, list[str]]:
    """The seeds of each recorded system, by ``COLLECTION/SYSTEM``."""
    seeds: dict[str, list[str]] = {}
    for file in sorted(RECORDED.glob("*.parquet")):
        for column in pq.read_schema(file).names[len(KEYS) :]:
            system, _, seed = column.rpartition("/")
            seeds.setdefault(f"{file.stem}/{system}", []).append(seed)
    return seeds


def recorded_runs(
    names: Sequence[str], qrels: pl.DataFrame, qrels_name: str = "qrels"
) -> dict[str, list[pl.DataFrame]]:
    """The runs of recorded systems, one per seed: question_id, answer_id, score (minus the rank).

    Args:
        names: ``COLLECTION`` for all of its systems, ``COLLECTION/SYSTEM``, or ``COLLECTION/SYSTEM/SEED``.
        qrels: judgements, which must be those of the collection.
        qrels_name: name of the judgements in errors.
    """
    systems = recorded_systems()
    chosen: dict[str, list[str]] = {}
    for name in names:
        of_collection = {key: seeds for key, seeds in systems.items() if key.startswith(f"{name}/")}
        system, _, seed = name.rpartition("/")
        if name in systems:
            chosen[name] = systems[name]
        elif seed in systems.get(system, ()):
            chosen[name] = [seed]
        elif of_collection:
            chosen |= of_collection
        else:
            raise UsageError(f"--against {name}: not recorded; expected one of {first_few(list(systems))}")
    sha256 = qrels_sha256(qrels)
    runs = {}
    for name, seeds in chosen.items():
        collection, system, *_ = name.split("/")
        file = RECORDED / f"{collection}.parquet"
        expected = pq.read_schema(file).metadata[QRELS].decode()
        if sha256 != expected:
            problem = f"other questions or judgements than {collection}, as the SHA-256 is {sha256[:12]}"
            raise InputError(qrels_name, problem=problem, expected=expected[:12])
        table = pl.read_parquet(file, columns=[*KEYS, *(f"{system}/{seed}" for seed in seeds)])
        runs[name] = [
            table.select(*KEYS, score=-pl.col(f"{system}/{seed}").cast(pl.Float64)) for seed in seeds
        ]
    return runs


def qrels_sha256(qrels: pl.DataFrame) -> str:
    """SHA-256 of the sorted lines of judgements: ``LC_ALL=C sort FILE | sha256sum`` of a file by aptool."""
    lines = qrels.select(pl.format("{} 0 {} {}\n", *KEYS, "relevance").sort()).to_series()
    return hashlib.sha256("".join(lines).encode()).hexdigest()
