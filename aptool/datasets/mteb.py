"""Reranking tasks in MTEB's layout: BEIR's files with the candidates of each query under ``top_ranked``.

``top_ranked`` holds rows of ``query-id`` and a list ``corpus-ids``. The older layout, one row of ``query``,
``positive`` and ``negative`` texts for each query, is read as well.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from aptool.datasets.corpus import FileCorpus, corpus_files, read_queries
from aptool.datasets.importing import (
    Columns,
    Conflicts,
    Pair,
    Resolution,
    SplitPools,
    pools_of,
    write_collection,
)
from aptool.datasets.json_rows import read_objects, unit_of
from aptool.datasets.judgements import Judgement, judgement_frame, read_qrels_tsv
from aptool.datasets.retrieval import PoolOptions, Topics, write_retrieval_collection
from aptool.errors import InputError
from aptool.formats.collection import Collection
from aptool.formats.location import Location, PathOrUrl, location
from aptool.formats.parquet import open_parquet

SOURCE = "MTEB, github.com/embeddings-benchmark/mteb"
COLUMNS = Columns(question="query", answer="positive or negative", label="positive or negative")


def build(
    out: PathOrUrl,
    folder: PathOrUrl,
    *,
    split: str = "test",
    name: str | None = None,
    questions: str = "all",
    conflicts: Resolution = "error",
) -> Collection:
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
        pools = pools_of(root, pairs, COLUMNS, unit="row", empty_answers=True, conflicts=resolved)
        sources = {split: SplitPools(root, pools, resolved)}
        return write_collection(out, name=called, source=SOURCE, splits=sources, questions=questions)
    qrels = _qrels(root, split, resolved)
    run = _top_ranked(top)
    queries = read_queries(str(_needed(root, "queries", split)))
    ranked = set(run["question_id"])
    asked = {query: text for query, text in queries.items() if query in ranked}
    topics = Topics(str(top), asked, qrels, run, str(top), resolved)
    depth = int(run.group_by("question_id").len()["len"].max() or 1)  # type: ignore[arg-type]
    return write_retrieval_collection(
        out,
        name=called,
        source=SOURCE,
        corpus=FileCorpus(str(_needed(root, "corpus", split))),
        splits={split: topics},
        options=PoolOptions(depth=depth),
        questions=questions,
    )


def _top_ranked(path: Location) -> pl.DataFrame:
    """question_id, answer_id, score: falling with the place in the list, so that the order is kept."""
    rows: list[tuple[str, str, float]] = []
    for place, file, fields in _rows(path):
        query = fields.get("query-id", fields.get("query_id"))
        ids = fields.get("corpus-ids", fields.get("corpus_ids"))
        if query is None or not isinstance(ids, list) or not ids or not all(map(_is_id, ids)):
            raise InputError(file, place=place, value=fields, expected="query-id and a list of corpus-ids")
        rows += [(str(query), str(name), -float(number)) for number, name in enumerate(dict.fromkeys(ids))]
    schema = {"question_id": pl.String, "answer_id": pl.String, "score": pl.Float64}
    if not rows:
        raise InputError(path, problem="no row", expected="query-id and corpus-ids")
    return pl.DataFrame(rows, schema=schema, orient="row")


def _is_id(value: object) -> bool:
    return isinstance(value, str | int)


def _qrels(root: Location, split: str, conflicts: Conflicts) -> pl.DataFrame:
    path = _needed(root, "qrels", split)
    files = [path] if path.is_file() else _entries(path, split) or _entries(path)
    file = files[0] if files else path
    if file.suffix == ".tsv":
        return read_qrels_tsv(str(file), conflicts)
    return judgement_frame(str(file), _judgements(file), conflicts)


def _judgements(path: Location) -> Iterator[Judgement]:
    for place, file, fields in _rows(path):
        query, document = fields.get("query-id"), fields.get("corpus-id")
        score = fields.get("score")
        if query is None or document is None or isinstance(score, bool) or not isinstance(score, int | float):
            raise InputError(file, place=place, value=fields, expected="query-id, corpus-id and score")
        yield Judgement(place, str(query), str(document), int(score))


def _old_pairs(root: Location, split: str) -> Iterator[Pair]:
    files = corpus_files(str(root)) if root.is_dir() else [str(root)]
    wanted = [file for file in files if split in Path(file).name] or files
    number = 0
    for file in wanted:
        for place, _, fields in _rows(location(file)):
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


def _rows(path: Location) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """place, file and fields of every row of JSON lines or Parquet."""
    for file in corpus_files(str(path)):
        if file.endswith(".parquet"):
            with open_parquet(file) as reader:
                for number, row in enumerate(reader.rows(reader.schema.names)):
                    yield f"row {number}", file, row
            continue
        unit = unit_of(file)
        for number, fields in read_objects(file):
            yield f"{unit} {number}", file, fields


def _needed(root: Location, part: str, split: str) -> Location:
    found = _part(root, part, split)
    if found is None:
        raise InputError(
            root / part, problem="file not found", expected="a folder in MTEB's reranking layout"
        )
    return found


def _entries(folder: Location, start: str = "") -> list[Location]:
    return sorted(file for file in folder.iterdir() if file.name.startswith(start))


def _part(root: Location, part: str, split: str) -> Location | None:
    """The file or folder of one of the four parts; a file that carries the split's name comes first."""
    folder = root / part
    if folder.is_dir():
        own = _entries(folder, split)
        return own[0] if len(own) == 1 else folder
    for suffix in (".jsonl", ".jsonl.gz", ".parquet", ".tsv"):
        for file in (root / f"{part}-{split}{suffix}", root / f"{part}{suffix}"):
            if file.is_file():
                return file
    return None
