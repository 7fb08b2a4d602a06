"""``aptool data import`` of retrieval data, such as BEIR."""

from __future__ import annotations

import re
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aptool.cli.collections import (
    by_split,
    conflicts_option,
    output_option,
    questions_option,
    report_collection,
)
from aptool.cli.parameters import LOCATION, Command, Count, SectionedCommand, seed_option, with_options
from aptool.errors import UsageError
from aptool.formats.ids import check_one_word

if TYPE_CHECKING:
    from collections.abc import Callable

    from aptool.datasets.retrieval import PoolOptions
    from aptool.formats.location import Location


def _one_word(ctx: click.Context, param: click.Parameter, name: str | None) -> str | None:
    if name is not None:
        check_one_word("--name", name)
    return name


_name = click.option(
    "--name",
    metavar="NAME",
    callback=_one_word,
    help="Name of the collection.  [default: name of its source]",
)
_by_split = partial(click.option, multiple=True, callback=by_split)
_exclude_same_id = click.option(
    "--exclude-same-id",
    is_flag=True,
    help="Leave out a candidate with the id of its query, as BEIR does.  [default: for beir/ only]",
)
_runs = _by_split(
    "--run",
    "runs",
    metavar="SPLIT=RUN",
    help="First-stage run of a split; repeatable.  [default: BM25]",
)


def _pool_options(depth: int) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of a pool; the command gets them as ``options``."""

    def add(command: Command) -> Command:
        @wraps(command)
        def with_options_of_pools(
            *,
            depth: int,
            negatives: int | None,
            add_relevant: bool,
            seed: int,
            exclude_same_id: bool = False,
            **arguments: Any,
        ) -> None:
            from aptool.datasets.retrieval import PoolOptions

            options = PoolOptions(depth, negatives, add_relevant, seed, exclude_same_id)
            command(options=options, **arguments)

        return with_options(
            click.option(
                "--depth",
                type=Count(),
                metavar="N",
                default=depth,
                help="Candidates per question: the top N of the first stage.",
            ),
            click.option(
                "--negatives",
                type=Count(0),
                metavar="N",
                help="Non-relevant candidates to sample per question.  [default: all]",
            ),
            click.option(
                "--add-relevant",
                is_flag=True,
                help="Add relevant documents that the first stage missed (for training).",
            ),
            seed_option,
        )(with_options_of_pools)

    return add


@click.command(cls=SectionedCommand)
@click.argument("folder", type=LOCATION)
@output_option
@_runs
@_name
@conflicts_option
@questions_option
@_pool_options(100)
def beir(folder: Location, output: str, **options: Any) -> None:
    """Import a BEIR data set: corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv.

    As in BEIR, a query that is a document of the corpus is not its own candidate.
    """
    from aptool.datasets.retrieval_sources import import_beir

    report_collection(import_beir(output, folder, **options))


@click.command(cls=SectionedCommand)
@click.argument("folder", type=LOCATION)
@output_option
@click.option("--split", metavar="SPLIT", default="test", help="Split to import.")
@_name
@conflicts_option
@questions_option
def mteb(folder: Location, output: str, **options: Any) -> None:
    """Import an MTEB reranking task: corpus, queries, qrels and top_ranked."""
    from aptool.datasets.mteb import import_mteb

    report_collection(import_mteb(output, folder, **options))


@click.command(cls=SectionedCommand)
@click.argument("collection", metavar="COLLECTION.TSV")
@_by_split("--queries", metavar="SPLIT=TSV", required=True, help="Queries of a split; repeatable.")
@_by_split("--qrels", metavar="SPLIT=TSV", required=True, help="Qrels of a split; repeatable.")
@_by_split(
    "--top",
    metavar="SPLIT=FILE",
    help="First stage of a split: top1000 file or run; repeatable.  [default: BM25]",
)
@output_option
@conflicts_option
@questions_option
@_exclude_same_id
@_pool_options(1000)
def msmarco(
    collection: str,
    queries: dict[str, str],
    qrels: dict[str, str],
    top: dict[str, str],
    output: str,
    **options: Any,
) -> None:
    """Import MS MARCO passage ranking: collection, queries, qrels and top1000 files."""
    from aptool.datasets.retrieval_sources import SplitFiles, import_msmarco

    for split in {**queries, **qrels, **top}:
        if split not in queries or split not in qrels:
            raise UsageError(f"split {split!r}: expected it in --queries and in --qrels")
    splits = {split: SplitFiles(path, qrels[split], top.get(split)) for split, path in queries.items()}
    report_collection(import_msmarco(output, collection, splits, **options))


@click.command("ir-datasets", cls=SectionedCommand)
@click.argument("datasets", metavar="SPLIT=ID...", nargs=-1, required=True, callback=by_split)
@output_option
@_runs
@_name
@conflicts_option
@questions_option
@_exclude_same_id
@_pool_options(100)
def ir_datasets(
    datasets: dict[str, str], output: str, name: str | None, options: PoolOptions, **arguments: Any
) -> None:
    """Import data sets of the ir_datasets catalogue, such as test=beir/scifact/test."""
    from aptool.datasets.retrieval_sources import import_ir_datasets, load_ir_dataset

    loaded = {split: load_ir_dataset(identifier) for split, identifier in datasets.items()}
    name = name or re.sub(r"[^A-Za-z0-9_-]+", "-", next(iter(datasets.values())))
    if any(identifier.startswith("beir/") for identifier in datasets.values()):
        options = options._replace(exclude_same_id=True)
    report_collection(import_ir_datasets(output, loaded, name=name, options=options, **arguments))


@click.command(cls=SectionedCommand)
@click.argument("run", metavar="RUN")
@click.option(
    "--corpus", metavar="PATH", required=True, help="Documents: .jsonl, .tsv or .parquet files, or a folder."
)
@click.option("--queries", metavar="FILE", required=True, help="Queries: a .jsonl, .tsv or .parquet file.")
@click.option("--qrels", metavar="FILE", required=True, help="TREC qrels.")
@click.option("--split", metavar="SPLIT", default="test", help="Name of the split.")
@output_option
@_name
@questions_option
@_exclude_same_id
@_pool_options(100)
def pyserini(
    run: str,
    corpus: str,
    queries: str,
    qrels: str,
    split: str,
    output: str,
    name: str | None,
    **options: Any,
) -> None:
    """Import a first-stage RUN with its corpus, queries and qrels.

    RUN is a TREC run file, such as one of Pyserini, or an MS MARCO run (query, document and rank per line).
    """
    from aptool.datasets.corpus import file_corpus, read_queries
    from aptool.datasets.importing import collection_name
    from aptool.datasets.retrieval import Topics, write_retrieval_collection
    from aptool.datasets.retrieval_sources import read_top
    from aptool.formats.trec import read_qrels

    texts, judgements, first_stage = read_queries(queries), read_qrels(qrels), read_top(run)
    ids = {*first_stage["question_id"], *judgements["question_id"]}
    texts = {question: text for question, text in texts.items() if question in ids} or texts
    report_collection(
        write_retrieval_collection(
            output,
            name=name or collection_name(output),
            source=f"{Path(run).name} over {corpus}",
            corpus=file_corpus(corpus),
            splits={split: Topics(queries, texts, judgements, first_stage, run)},
            **options,
        )
    )


FORMATS = {
    "beir": beir,
    "mteb": mteb,
    "msmarco": msmarco,
    "ir-datasets": ir_datasets,
    "pyserini": pyserini,
}
