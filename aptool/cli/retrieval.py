"""Collections out of retrieval data: ``aptool data import beir`` and its kin, and ``aptool data pools``."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from aptool.cli.collections import (
    conflicts_option,
    output_option,
    questions_option,
    report_collection,
)
from aptool.cli.parameters import LOCATION, Seed, whole_number
from aptool.errors import UsageError
from aptool.formats.ids import check_one_word

if TYPE_CHECKING:
    from aptool.datasets.retrieval import PoolOptions
    from aptool.formats.location import Location

Command = TypeVar("Command", bound=Callable[..., Any])

_name = click.option("--name", metavar="NAME", help="Name of the collection.  [default: that of its source]")
_run = click.option(
    "--run",
    "runs",
    metavar="SPLIT=RUN",
    multiple=True,
    help="First-stage run file of a split.  [default: retrieve with BM25]",
)


def _pool_options(depth: int) -> Callable[[Command], Command]:
    """The options that say how pools are cut from a run."""

    def add(command: Command) -> Command:
        for option in reversed(
            (
                click.option(
                    "--depth",
                    type=whole_number(),
                    default=depth,
                    show_default=True,
                    help="Candidates of each question, from the top of the first stage.",
                ),
                click.option(
                    "--negatives",
                    type=whole_number(0),
                    metavar="N",
                    help="Keep N of them that are not relevant, drawn at random (for training).",
                ),
                click.option(
                    "--add-relevant",
                    is_flag=True,
                    help="Add the relevant documents that the first stage missed (for training).",
                ),
                click.option("--seed", type=Seed(), default=0, show_default=True, help="Random seed."),
            )
        ):
            command = option(command)
        return command

    return add


@click.command()
@click.argument("folder", type=LOCATION)
@output_option
@_run
@_name
@conflicts_option
@questions_option
@_pool_options(100)
def beir(
    folder: Location,
    output: str,
    runs: tuple[str, ...],
    name: str | None,
    conflicts: Any,
    questions: str,
    **cut: Any,
) -> None:
    """Import a data set in the layout of BEIR: corpus.jsonl, queries.jsonl, qrels/SPLIT.tsv."""
    from aptool.datasets.retrieval_sources import import_beir

    given = _by_split(runs)
    report_collection(
        import_beir(
            output,
            folder,
            name=_checked(name),
            runs=given,
            options=_options(cut),
            questions=questions,
            conflicts=conflicts,
        )
    )


@click.command()
@click.argument("folder", type=LOCATION)
@output_option
@click.option("--split", default="test", show_default=True, help="Split to read.")
@_name
@conflicts_option
@questions_option
def mteb(folder: Location, output: str, split: str, name: str | None, conflicts: Any, questions: str) -> None:
    """Import a reranking task in the layout of MTEB: corpus, queries, qrels and top_ranked."""
    from aptool.datasets.mteb import import_mteb

    report_collection(
        import_mteb(
            output, folder, split=split, name=_checked(name), questions=questions, conflicts=conflicts
        )
    )


@click.command()
@click.argument("collection", metavar="COLLECTION.TSV")
@click.option("--queries", metavar="SPLIT=TSV", multiple=True, required=True, help="Queries of a split.")
@click.option("--qrels", metavar="SPLIT=TSV", multiple=True, required=True, help="Judgements of a split.")
@click.option(
    "--top",
    metavar="SPLIT=FILE",
    multiple=True,
    help="First stage of a split: top1000 or a run.  [default: retrieve with BM25]",
)
@output_option
@conflicts_option
@questions_option
@_pool_options(1000)
def msmarco(
    collection: str,
    queries: tuple[str, ...],
    qrels: tuple[str, ...],
    top: tuple[str, ...],
    output: str,
    conflicts: Any,
    questions: str,
    **cut: Any,
) -> None:
    """Import MS MARCO passage ranking: collection, queries, qrels and top1000 files."""
    from aptool.datasets.retrieval_sources import SplitFiles, import_msmarco

    asked, judged, first = _by_split(queries), _by_split(qrels), _by_split(top)
    lacking = [split for split in asked if split not in judged]
    unknown = [split for split in {**judged, **first} if split not in asked]
    if lacking or unknown:
        split = (lacking or unknown)[0]
        raise UsageError(f"split {split!r}: expected it in --queries and in --qrels")
    splits = {split: SplitFiles(path, judged[split], first.get(split)) for split, path in asked.items()}
    report_collection(
        import_msmarco(
            output, collection, splits, options=_options(cut), questions=questions, conflicts=conflicts
        )
    )


@click.command("ir-datasets")
@click.argument("datasets", metavar="SPLIT=ID...", nargs=-1, required=True)
@output_option
@_run
@_name
@conflicts_option
@questions_option
@_pool_options(100)
def ir_datasets(
    datasets: tuple[str, ...],
    output: str,
    runs: tuple[str, ...],
    name: str | None,
    conflicts: Any,
    questions: str,
    **cut: Any,
) -> None:
    """Import data sets of the ir_datasets catalogue, such as test=beir/scifact/test."""
    from aptool.datasets.retrieval_sources import import_ir_datasets, load_ir_dataset

    named = _by_split(datasets)
    found = {split: load_ir_dataset(identifier) for split, identifier in named.items()}
    called = _checked(name) or re.sub(r"[^A-Za-z0-9_-]+", "-", next(iter(named.values())))
    given = _by_split(runs)
    report_collection(
        import_ir_datasets(
            output,
            found,
            name=called,
            runs=given,
            options=_options(cut),
            questions=questions,
            conflicts=conflicts,
        )
    )


@click.command()
@click.argument("run", metavar="RUN")
@click.option("--corpus", required=True, help="Documents: .jsonl, .tsv or .parquet files, or a folder.")
@click.option("--queries", required=True, help="Queries: a .jsonl, .tsv or .parquet file.")
@click.option("--qrels", required=True, help="Judgements: TREC qrels.")
@click.option("--split", default="test", show_default=True, help="Name of the split.")
@output_option
@_name
@questions_option
@_pool_options(100)
def pools(
    run: str,
    corpus: str,
    queries: str,
    qrels: str,
    split: str,
    output: str,
    name: str | None,
    questions: str,
    **cut: Any,
) -> None:
    """Make a collection out of a first-stage RUN (such as Pyserini's), a corpus, queries and qrels.

    RUN is a TREC run file, or lines of query, document and rank as MS MARCO has them.
    """
    from aptool.datasets.corpus import FileCorpus, read_queries
    from aptool.datasets.importing import collection_name
    from aptool.datasets.retrieval import Topics, write_retrieval_collection
    from aptool.datasets.retrieval_sources import read_top
    from aptool.formats.trec import read_qrels

    texts, judgements, first = read_queries(queries), read_qrels(qrels), read_top(run)
    wanted = {*first["question_id"], *judgements["question_id"]}
    kept = {question: text for question, text in texts.items() if question in wanted} or texts
    report_collection(
        write_retrieval_collection(
            output,
            name=_checked(name) or collection_name(output),
            source=f"{Path(run).name} over {corpus}",
            corpus=FileCorpus(corpus),
            splits={split: Topics(queries, kept, judgements, first, run)},
            options=_options(cut),
            questions=questions,
        )
    )


def _options(cut: dict[str, Any]) -> PoolOptions:
    from aptool.datasets.retrieval import PoolOptions

    return PoolOptions(**cut)


def _by_split(arguments: tuple[str, ...]) -> dict[str, str]:
    from aptool.datasets.importing import parse_splits

    return parse_splits(arguments)


def _checked(name: str | None) -> str | None:
    if name is not None:
        check_one_word("--name", name)
    return name
