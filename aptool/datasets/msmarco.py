"""MS MARCO passage ranking (Bajaj et al., 2016): collection, queries, judgements, the official top 1000.

``collection.tsv`` holds ``pid<TAB>passage``, ``queries.SPLIT.tsv`` ``qid<TAB>query``, ``qrels.SPLIT.tsv``
``qid 0 pid 1``. The first stage is ``top1000.SPLIT`` (``qid<TAB>pid<TAB>query<TAB>passage``), a run in TREC's
format, or ``qid<TAB>pid<TAB>rank`` as MS MARCO's own evaluation reads it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import polars as pl

from aptool.datasets.corpus import FileCorpus, read_qrels_tsv, read_queries
from aptool.datasets.lines import read_rows
from aptool.datasets.policies import Conflicts, Resolution
from aptool.datasets.retrieval import PoolOptions, Topics, write_retrieval_collection
from aptool.errors import InputError
from aptool.formats.collection import CollectionFiles
from aptool.formats.trec import read_run

SOURCE = "MS MARCO passage ranking, microsoft.github.io/msmarco"


RUN = {"question_id": pl.String, "answer_id": pl.String, "score": pl.Float64}

# Lines held as Python's values at one time; a column of a frame takes a tenth of their memory.
_CHUNK = 500_000


class SplitFiles(NamedTuple):
    """The files of one split."""

    queries: str
    qrels: str
    top: str | None  # None: BM25 retrieves


def build(
    out: str | Path,
    collection: str | Path,
    splits: Mapping[str, SplitFiles],
    *,
    options: PoolOptions | None = None,
    questions: str = "all",
    conflicts: Resolution = "error",
) -> CollectionFiles:
    """Imports MS MARCO's files.

    Args:
        out: the collection's folder.
        collection: ``collection.tsv``.
        splits: the files of each split; queries without a judgement are left out, as in its evaluation.
        options: how pools are cut.
        questions: which questions are kept; see `CollectionWriter`.
        conflicts: what becomes of a pair with different labels; see `Conflicts`.

    Raises:
        InputError: a file is missing or is not what it should be.
    """
    topics = {}
    for split, files in splits.items():
        resolved = Conflicts(conflicts)
        qrels = read_qrels_tsv(files.qrels, resolved)
        judged = set(qrels["question_id"])
        queries = {name: text for name, text in read_queries(files.queries).items() if name in judged}
        if not queries:
            problem = f"no judgement of a query of {files.queries}: {qrels['question_id'][0]!r} is the first"
            raise InputError(files.qrels, problem=problem, expected="judgements of these queries")
        run = read_top(files.top) if files.top is not None else None
        topics[split] = Topics(files.queries, queries, qrels, run, str(files.top), resolved)
    return write_retrieval_collection(
        out,
        name="msmarco",
        source=SOURCE,
        corpus=FileCorpus(collection),
        splits=topics,
        options=options or PoolOptions(depth=1000),
        questions=questions,
    )


def read_top(path: str | Path) -> pl.DataFrame:
    """A first stage: question_id, answer_id, score (f64), higher is better.

    The order of the lines of ``top1000`` means nothing, so its candidates all have the score 0.

    Raises:
        InputError: a line is neither.
    """
    frames: list[pl.DataFrame] = []
    rows: list[tuple[str, str, float]] = []
    for number, line in read_rows(path):
        if len(rows) == _CHUNK:
            frames.append(pl.DataFrame(rows, schema=RUN, orient="row"))
            rows.clear()
        fields = line.split("\t")
        if len(fields) == 4:
            rows.append((fields[0], fields[1], 0.0))
        elif len(fields) == 3 and fields[2].strip().isdecimal():
            rows.append((fields[0], fields[1], -float(fields[2])))
        elif len(line.split()) == 6:
            return read_run(path).frame
        else:
            expected = "qid<TAB>pid<TAB>query<TAB>passage, qid<TAB>pid<TAB>rank, or a TREC run"
            raise InputError(path, place=f"line {number}", problem=f"{len(fields)} fields", expected=expected)
    frame = pl.concat([*frames, pl.DataFrame(rows, schema=RUN, orient="row")])
    if frame.is_empty():
        raise InputError(path, problem="no line", expected="a first stage")
    return frame.unique(["question_id", "answer_id"], keep="first", maintain_order=True)
