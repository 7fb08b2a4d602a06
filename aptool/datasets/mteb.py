"""Importer of reranking tasks in MTEB's layout.

The candidates of each query are in ``top_ranked``, with rows of ``query-id`` and a list ``corpus-ids``; the
other files are BEIR's. The older layout, one row of ``query``, ``positive`` and ``negative`` texts per query,
is read as well.
"""

import re
from collections.abc import Iterator
from itertools import chain

import polars as pl

from aptool.datasets.corpus import (
    Judgement,
    corpus_files,
    file_corpus,
    judgement_frame,
    read_fields,
    read_judgements,
    read_queries,
)
from aptool.datasets.importing import SplitPools, collection_name, write_collection
from aptool.datasets.pairs import Columns, Conflicts, Pair, Resolution, id_text, parse_label, pools_of
from aptool.datasets.retrieval import (
    RUN_SCHEMA,
    PoolOptions,
    RetrievalCollection,
    Topics,
    write_retrieval_collection,
)
from aptool.errors import InputError
from aptool.formats.collection import CollectionFiles
from aptool.formats.inputs import unpacked_name
from aptool.formats.location import Location, PathOrUrl, location

SOURCE = "MTEB, github.com/embeddings-benchmark/mteb"

# Splits in file names.
SPLITS = ("train", "dev", "validation", "test")

COLUMNS = Columns(question="query", answer="positive or negative", label="positive or negative")


def import_mteb(
    out: PathOrUrl,
    folder: PathOrUrl,
    *,
    split: str = "test",
    name: str | None = None,
    questions: str = "all",
    conflicts: Resolution = "error",
) -> CollectionFiles:
    """Import one split of a reranking task.

    The folder has ``corpus``, ``queries``, ``qrels`` and ``top_ranked``, each a file or a folder, or files of
    ``query``, ``positive``, ``negative``. The collection has the folder's name unless one is given.
    """
    root = location(folder)
    name = name or collection_name(folder)
    top = _part(root, "top_ranked", split)
    resolved = Conflicts(conflicts)
    if top is None:
        pairs = _text_pairs(root, split)
        pools = pools_of(root, pairs, COLUMNS, empty="keep", conflicts=resolved)
        sources = {split: SplitPools(root, pools, resolved)}
        return write_collection(out, name=name, source=SOURCE, splits=sources, questions=questions)
    qrels = _qrels(_required_part(root, "qrels", split), resolved)
    run = _top_ranked(top)
    queries = read_queries(*_required_part(root, "queries", split))
    topics = Topics(str(root), queries, qrels, run, top[0], resolved, keeps_unjudged=True)
    corpus = file_corpus(*_required_part(root, "corpus", split))
    depth = int(run.group_by("question_id").len()["len"].max() or 1)  # type: ignore[arg-type]
    collection = RetrievalCollection(name, SOURCE, corpus, {split: topics})
    return write_retrieval_collection(out, collection, PoolOptions(depth), questions=questions)


def _top_ranked(files: list[str]) -> pl.DataFrame:
    """Read the candidates as a run whose scores fall with the position in the list."""
    rows: list[tuple[str, str, float]] = []
    for file in files:
        for position, fields in read_fields(file):
            query = fields.get("query-id", fields.get("query_id"))
            ids = fields.get("corpus-ids", fields.get("corpus_ids"))
            if query is None or not isinstance(ids, list) or not ids:
                expected = "query-id and a list of corpus-ids"
                raise InputError(file, position=position, value=fields, expected=expected)
            query_id = id_text(file, position, "query-id", query)
            answer_ids = dict.fromkeys(id_text(file, position, "corpus-ids", name) for name in ids)
            rows += [(query_id, answer_id, -float(rank)) for rank, answer_id in enumerate(answer_ids)]
    if not rows:
        raise InputError(files[0], problem="no row", expected="query-id and corpus-ids")
    return pl.DataFrame(rows, schema=RUN_SCHEMA, orient="row")


def _qrels(files: list[str], conflicts: Conflicts) -> pl.DataFrame:
    judgements = (
        read_judgements(file) if unpacked_name(file).endswith(".tsv") else _judgements(file) for file in files
    )
    path = files[0] if len(files) == 1 else str(location(files[0]).parent)
    return judgement_frame(path, chain.from_iterable(judgements), conflicts)


def _judgements(file: str) -> Iterator[Judgement]:
    for position, fields in read_fields(file):
        query, document = fields.get("query-id"), fields.get("corpus-id")
        if query is None or document is None or "score" not in fields:
            raise InputError(file, position=position, value=fields, expected="query-id, corpus-id and score")
        label = parse_label(file, position, "score", fields["score"], graded=True)
        query, document = (
            id_text(file, position, column, name)
            for column, name in (("query-id", query), ("corpus-id", document))
        )
        yield Judgement(position, query, document, label)


def _text_pairs(root: Location, split: str) -> Iterator[Pair]:
    """Read the older layout."""
    rows = (
        (file, position, fields)
        for file in _files_of_split(root, corpus_files(str(root)), split)
        for position, fields in read_fields(file)
    )
    for number, (file, position, fields) in enumerate(rows):
        query, positive, negative = (fields.get(name) for name in ("query", "positive", "negative"))
        if not (isinstance(query, str) and isinstance(positive, list) and isinstance(negative, list)):
            expected = "query, positive and negative"
            raise InputError(file, position=position, value=list(fields), expected=expected)
        for relevance, texts in ((1, positive), (0, negative)):
            for text in texts:
                if not isinstance(text, str):
                    raise InputError(file, position=position, value=text, expected="a text")
                yield Pair(f"row {number}", f"q{number}", query, None, text, relevance)


def _required_part(root: Location, part: str, split: str) -> list[str]:
    files = _part(root, part, split)
    if files is None:
        expected = "a folder in MTEB's reranking layout"
        raise InputError(root / part, problem="file not found", expected=expected)
    return files


def _part(root: Location, part: str, split: str) -> list[str] | None:
    """List the files of one of the four parts; None if there are none."""
    folder = root / part
    if folder.is_dir():
        # All splits may share texts.
        is_shared = part in ("corpus", "queries")
        return _files_of_split(folder, corpus_files(str(folder)), split, is_shared=is_shared)
    for suffix in (".jsonl", ".jsonl.gz", ".parquet", ".tsv"):
        for file in (root / f"{part}-{split}{suffix}", root / f"{part}{suffix}"):
            if file.is_file():
                return [str(file)]
    return None


def _files_of_split(folder: Location, files: list[str], split: str, *, is_shared: bool = False) -> list[str]:
    """Select the files that name the split; all files if none names any split, or if they are shared."""
    matching = [file for file in files if _names_split(file, split)]
    other_splits = [other for other in SPLITS if any(_names_split(file, other) for file in files)]
    if matching or is_shared or not other_splits:
        return matching or files
    expected = f"one of {', '.join(other_splits)}"
    raise InputError(folder, problem=f"no file of split {split!r}", expected=expected)


def _names_split(file: str, split: str) -> bool:
    """Whether a split is a word of a file's name."""
    name = file.rsplit("/", 1)[-1].lower()
    return re.search(rf"(?<![a-z0-9]){re.escape(split.lower())}(?![a-z0-9])", name) is not None
