"""Reranking tasks in MTEB's layout: BEIR's files with the candidates of each query under ``top_ranked``.

``top_ranked`` holds rows of ``query-id`` and a list ``corpus-ids``. The older layout, one row of ``query``,
``positive`` and ``negative`` texts for each query, is read as well.
"""

import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

import polars as pl

from aptool.datasets.column_names import label_of
from aptool.datasets.corpus import (
    FileCorpus,
    Judgement,
    corpus_files,
    judgement_frame,
    qrels_rows,
    read_queries,
)
from aptool.datasets.importing import SplitPools, write_collection
from aptool.datasets.json_rows import read_objects, unit_of
from aptool.datasets.pairs import Columns, Pair, pools_of
from aptool.datasets.policies import Conflicts, Resolution
from aptool.datasets.retrieval import PoolOptions, Topics, write_retrieval_collection
from aptool.errors import InputError
from aptool.formats.collection import CollectionFiles
from aptool.formats.location import Location, PathOrUrl, location
from aptool.formats.parquet import open_parquet

SOURCE = "MTEB, github.com/embeddings-benchmark/mteb"

# Splits as files are named after them.
SPLITS = ("train", "dev", "validation", "test")

COLUMNS = Columns(question="query", answer="positive or negative", label="positive or negative")


def build(
    out: PathOrUrl,
    folder: PathOrUrl,
    *,
    split: str = "test",
    name: str | None = None,
    questions: str = "all",
    conflicts: Resolution = "error",
) -> CollectionFiles:
    """Imports a reranking task.

    Args:
        out: the collection's folder.
        folder: with ``corpus``, ``queries``, ``qrels`` and ``top_ranked`` (each a file or a folder), or with
            files of ``query``, ``positive``, ``negative``.
        split: which files are read where there are several, and what the split is called.
        name: of the collection; None is the folder's.
        questions: which questions are kept; see `CollectionWriter`.
        conflicts: what becomes of a pair with different labels; see `Conflicts`.

    Raises:
        InputError: a file is missing or is not what it should be.
    """
    root = location(folder)
    called = name or "-".join(root.resolve().name.split())
    top = _part(root, "top_ranked", split)
    resolved = Conflicts(conflicts)
    if top is None:
        pairs = _old_pairs(root, split)
        pools = pools_of(root, pairs, COLUMNS, unit="row", empty="keep", conflicts=resolved)
        sources = {split: SplitPools(root, pools, resolved)}
        return write_collection(out, name=called, source=SOURCE, splits=sources, questions=questions)
    qrels = _qrels(_needed(root, "qrels", split), resolved)
    run = _top_ranked(top)
    queries = read_queries(*map(str, _needed(root, "queries", split)))
    wanted = {*run["question_id"], *qrels["question_id"]}
    asked = {query: text for query, text in queries.items() if query in wanted}
    topics = Topics(str(root), asked, qrels, run, str(top[0]), resolved)
    depth = int(run.group_by("question_id").len()["len"].max() or 1)  # type: ignore[arg-type]
    return write_retrieval_collection(
        out,
        name=called,
        source=SOURCE,
        corpus=FileCorpus(*map(str, _needed(root, "corpus", split))),
        splits={split: topics},
        options=PoolOptions(depth=depth),
        questions=questions,
    )


def _top_ranked(paths: list[Location]) -> pl.DataFrame:
    """question_id, answer_id, score: falling with the place in the list, so that the order is kept."""
    rows: list[tuple[str, str, float]] = []
    for place, file, fields in _rows(paths):
        query = fields.get("query-id", fields.get("query_id"))
        ids = fields.get("corpus-ids", fields.get("corpus_ids"))
        if query is None or not isinstance(ids, list) or not ids or not all(map(_is_id, ids)):
            raise InputError(file, place=place, value=fields, expected="query-id and a list of corpus-ids")
        rows += [(str(query), str(name), -float(number)) for number, name in enumerate(dict.fromkeys(ids))]
    schema = {"question_id": pl.String, "answer_id": pl.String, "score": pl.Float64}
    if not rows:
        raise InputError(paths[0], problem="no row", expected="query-id and corpus-ids")
    return pl.DataFrame(rows, schema=schema, orient="row")


def _is_id(value: object) -> bool:
    return isinstance(value, str | int)


def _qrels(paths: list[Location], conflicts: Conflicts) -> pl.DataFrame:
    parts = (
        qrels_rows(str(path)) if path.name.endswith((".tsv", ".tsv.gz")) else _judgements(path)
        for path in paths
    )
    called = paths[0] if len(paths) == 1 else paths[0].parent
    return judgement_frame(str(called), chain.from_iterable(parts), conflicts)


def _judgements(path: Location) -> Iterator[Judgement]:
    for place, file, fields in _rows([path]):
        query, document = fields.get("query-id"), fields.get("corpus-id")
        if query is None or document is None or "score" not in fields:
            raise InputError(file, place=place, value=fields, expected="query-id, corpus-id and score")
        label = label_of(file, place, "score", fields["score"])
        yield Judgement(place, str(query), str(document), label)


def _old_pairs(root: Location, split: str) -> Iterator[Pair]:
    files = [location(file) for file in corpus_files(str(root))]
    number = 0
    for path in _of_split(root, files, split):
        for place, file, fields in _rows([path]):
            query = fields.get("query")
            lists = [fields.get(label) for label in ("positive", "negative")]
            if not isinstance(query, str) or not all(isinstance(some, list) for some in lists):
                raise InputError(
                    file, place=place, value=list(fields), expected="query, positive and negative"
                )
            for relevance, texts in ((1, lists[0]), (0, lists[1])):
                for text in texts or ():
                    if not isinstance(text, str):
                        raise InputError(file, place=place, value=text, expected="a text")
                    yield Pair(number, f"q{number}", query, None, text, relevance)
            number += 1


def _rows(paths: list[Location]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """place, file and fields of every row of JSON lines or Parquet."""
    for file in map(str, paths):
        if file.endswith(".parquet"):
            with open_parquet(file) as reader:
                for number, row in enumerate(reader.rows(reader.schema.names)):
                    yield f"row {number}", file, row
            continue
        unit = unit_of(file)
        for number, fields in read_objects(file):
            yield f"{unit} {number}", file, fields


def _needed(root: Location, part: str, split: str) -> list[Location]:
    found = _part(root, part, split)
    if found is None:
        raise InputError(
            root / part, problem="file not found", expected="a folder in MTEB's reranking layout"
        )
    return found


def _part(root: Location, part: str, split: str) -> list[Location] | None:
    """The files of one of the four parts; None if there are none."""
    folder = root / part
    if folder.is_dir():
        files = [location(file) for file in corpus_files(str(folder))]
        # All splits may share texts.
        return _of_split(folder, files, split, whole=part in ("corpus", "queries"))
    for suffix in (".jsonl", ".jsonl.gz", ".parquet", ".tsv"):
        for file in (root / f"{part}-{split}{suffix}", root / f"{part}{suffix}"):
            if file.is_file():
                return [file]
    return None


def _of_split(folder: Location, files: list[Location], split: str, *, whole: bool = False) -> list[Location]:
    """The files whose names say the split; all of them if no name says any, or where ``whole`` allows it.

    Raises:
        InputError: the names say other splits only.
    """
    own = [file for file in files if _says(file.name, split)]
    others = [other for other in SPLITS if any(_says(file.name, other) for file in files)]
    if own or whole or not others:
        return own or files
    raise InputError(folder, problem=f"no file of split {split!r}", expected=f"one of {', '.join(others)}")


def _says(name: str, split: str) -> bool:
    """Whether a split is a word of a file's name."""
    return re.search(rf"(?<![a-z0-9]){re.escape(split.lower())}(?![a-z0-9])", name.lower()) is not None
