"""``aptool data import`` of retrieval data, such as BEIR."""

from __future__ import annotations

import re
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import click

from aptool.cli.imports import (
    by_split,
    conflicts_option,
    output_option,
    questions_option,
    report_collection,
)
from aptool.cli.parameters import LOCATION, Command, Count, SectionedCommand, seed_option, with_options
from aptool.formats.ids import check_one_word

if TYPE_CHECKING:
    from collections.abc import Callable

    from aptool.datasets.retrieval import RetrievalCollection
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


def _importer(depth: int) -> Callable[[Callable[..., RetrievalCollection]], Command]:
    """Return a decorator that makes an import command of a function that reads a retrieval collection.

    The decorator adds the options of the output and of its pools.
    """

    def add(read: Callable[..., RetrievalCollection]) -> Command:
        @wraps(read)
        def command(
            *,
            output: str,
            name: str | None,
            questions: str,
            depth: int,
            negatives: int | None,
            add_relevant: bool,
            seed: int,
            exclude_same_id: bool = False,
            **arguments: Any,
        ) -> None:
            from aptool.datasets.retrieval import PoolOptions, write_retrieval_collection

            options = PoolOptions(depth, negatives, add_relevant, seed, exclude_same_id)
            collection = read(**arguments)
            report_collection(
                write_retrieval_collection(output, collection, options, name=name, questions=questions)
            )

        return with_options(
            output_option,
            _name,
            questions_option,
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
        )(command)

    return add


@click.command(cls=SectionedCommand)
@click.argument("folder", type=LOCATION)
@_runs
@conflicts_option
@_importer(depth=100)
def beir(folder: Location, **options: Any) -> RetrievalCollection:
    """Import a BEIR data set: corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv.

    As in BEIR, a query that is a document of the corpus is not its own candidate.
    """
    from aptool.datasets.retrieval_sources import read_beir

    return read_beir(folder, **options)


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
@conflicts_option
@_exclude_same_id
@_importer(depth=1000)
def msmarco(collection: str, **options: Any) -> RetrievalCollection:
    """Import MS MARCO passage ranking: collection, queries, qrels and top1000 files."""
    from aptool.datasets.retrieval_sources import read_msmarco

    return read_msmarco(collection, **options)


@click.command("ir-datasets", cls=SectionedCommand)
@click.argument("datasets", metavar="SPLIT=ID...", nargs=-1, required=True, callback=by_split)
@_runs
@conflicts_option
@_exclude_same_id
@_importer(depth=100)
def ir_datasets(datasets: dict[str, str], **options: Any) -> RetrievalCollection:
    """Import data sets of the ir_datasets catalogue, such as test=beir/scifact/test."""
    from aptool.datasets.retrieval_sources import load_ir_dataset, read_ir_datasets

    loaded = {split: load_ir_dataset(identifier) for split, identifier in datasets.items()}
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", next(iter(datasets.values())))
    is_beir = any(identifier.startswith("beir/") for identifier in datasets.values())
    return read_ir_datasets(loaded, name=name, **options)._replace(exclude_same_id=is_beir)


@click.command(cls=SectionedCommand)
@click.argument("run", metavar="RUN")
@click.option(
    "--corpus", metavar="PATH", required=True, help="Documents: .jsonl, .tsv or .parquet files, or a folder."
)
@click.option("--queries", metavar="FILE", required=True, help="Queries: a .jsonl, .tsv or .parquet file.")
@click.option("--qrels", metavar="FILE", required=True, help="TREC qrels.")
@click.option("--split", metavar="SPLIT", default="test", help="Name of the split.")
@_exclude_same_id
@_importer(depth=100)
def pyserini(run: str, **files: str) -> RetrievalCollection:
    """Import a first-stage RUN with its corpus, queries and qrels.

    RUN is a TREC run file, such as one of Pyserini, or an MS MARCO run (query, document and rank per line).
    """
    from aptool.datasets.retrieval_sources import read_pyserini

    return read_pyserini(run, **files)


FORMATS = {
    "beir": beir,
    "mteb": mteb,
    "msmarco": msmarco,
    "ir-datasets": ir_datasets,
    "pyserini": pyserini,
}
