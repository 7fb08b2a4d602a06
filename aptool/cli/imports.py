"""``aptool data import``: published data sets, tables and retrieval collections."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import click

from aptool.cli.parameters import Count, overwrite_flag, with_options
from aptool.cli.tables import print_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aptool.data.collection import Collection

logger = logging.getLogger(__name__)

RELEVANT_MISSING = "relevant_missing_from_pool_kept"  # a policy


def _splits_of_folder(splits: tuple[str, ...], names: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The path of each split, from ``SPLIT=PATH`` values or one folder with files of the given names."""
    from aptool.data.published import splits_in
    from aptool.data.writing import parse_splits
    from aptool.paths import location

    if len(splits) == 1 and (folder := location(splits[0])).is_dir():
        return splits_in(folder, names)
    return parse_splits(splits)


_folder_or_splits = click.argument("splits", metavar="FOLDER | SPLIT=PATH...", nargs=-1, required=True)
output_option = with_options(
    click.option("--output", metavar="FOLDER", required=True, help="Folder of the collection to write."),
    overwrite_flag,
)
_questions = click.option(
    "--questions",
    metavar="FILTER",
    type=click.Choice(["all", "answerable", "both-labels"]),
    default="all",
    help="Questions to import: all, answerable (with a relevant answer), or both-labels (with relevant and "
    "non-relevant candidates).",
)


def report_collection(collection: Collection) -> None:
    """Print the splits as a table; log the path and the number of rows per import policy."""
    manifest = collection.manifest
    read = manifest.get("details", {}).get("read", {})
    rows = [["split", "questions", "candidates", "relevant"]]
    if read:
        rows[0] += ["questions read", "candidates read"]
    for split, counts in manifest["splits"].items():
        values = [counts["questions"], counts["candidates"], counts["positives"]]
        values += read.get(split, {}).values()
        rows.append([split, *(f"{value:,}" for value in values)])
    print_table(rows)
    stages = manifest.get("details", {}).get("first_stage", {})
    for policy, touched in manifest["policies"].items():
        for split, count in touched.items():
            # The first stage says it with the number of all relevant answers.
            if count and not (policy == RELEVANT_MISSING and split in stages):
                logger.info(f"{split}: {policy.replace('_', ' ')}: {count:,}")
    for split, stage in stages.items():
        if relevant := stage["relevant"]:
            missed, added = stage["relevant_missed"], stage["relevant_added"]
            more = f"; {added:,} of them were added" if added else ""
            logger.info(
                f"{split}: the first stage missed {missed:,} of {relevant:,} relevant answers "
                f"({missed / relevant:.1%}){more}"
            )
    logger.info(f"written: {collection.path}")


@click.group(name="import")
def import_() -> None:
    """Import a published data set or your own data."""


@import_.command()
@_folder_or_splits
@output_option
@_questions
def wikiqa(splits: tuple[str, ...], output: str, **options: Any) -> None:
    """Import WikiQA: TSV files, or Parquet files of microsoft/wiki_qa.

    For the questions of the paper, pass --questions answerable.
    """
    from aptool.data.published import WIKIQA_SPLITS, import_wikiqa

    report_collection(import_wikiqa(output, _splits_of_folder(splits, WIKIQA_SPLITS), **options))


@import_.command()
@_folder_or_splits
@output_option
@_questions
def trecqa(splits: tuple[str, ...], output: str, **options: Any) -> None:
    """Import TREC-QA: folders with a.toks, b.toks, id.txt and sim.txt.

    For the questions of the paper, pass --questions both-labels.
    """
    from aptool.data.published import TRECQA_SPLITS, import_trecqa

    collection = import_trecqa(output, _splits_of_folder(splits, TRECQA_SPLITS), **options)
    details = collection.manifest["details"]
    logger.info(f"variant: {details['variant'] or 'none'} ({details['variant_decided']})")
    report_collection(collection)


@import_.command()
@click.argument("folder", metavar="FOLDER")
@output_option
@_questions
def insuranceqa(folder: str, output: str, **options: Any) -> None:
    """Import InsuranceQA V1 (github.com/shuzi/insuranceQA)."""
    from aptool.data.published import import_insuranceqa

    collection = import_insuranceqa(output, folder, **options)
    for split in collection.manifest["details"].get("splits_not_found", []):
        logger.info(f"{split}: skipped, its file is not in {folder}")
    report_collection(collection)


@import_.command()
@click.argument("tables", metavar="FOLDER | SPLIT=PATH...", nargs=-1, required=True)
@output_option
@click.option("--question", default="question", metavar="NAME", help="Column of the question text.")
@click.option("--answer", default="answer", metavar="NAME", help="Column of the candidate text.")
@click.option("--label", default="label", metavar="NAME", help="Column of the grade, 0 or more.")
@click.option("--question-id", metavar="NAME", help="Column of the question id.  [default: from the text]")
@click.option("--answer-id", metavar="NAME", help="Column of the candidate id.  [default: from the text]")
@click.option("--separator", metavar="CHAR", help="Column separator.  [default: tab in .tsv, comma in .csv]")
@click.option("--encoding", metavar="NAME", help="Encoding of text, such as cp1252.  [default: utf-8]")
@_questions
@click.option(
    "--unlabelled",
    type=click.Choice(["refuse", "drop"]),
    default="refuse",
    help="Rows without a label: refuse them, or drop and count them.",
)
@click.option(
    "--add-candidates",
    type=click.Choice(["all"]),
    help="Add all answers of the split to each pool. Without a label column, each row is a right answer.",
)
@click.option(
    "--split-ratio",
    metavar="RATIO",
    help="Split one table by question, as train:dev:test or train:dev, such as 80:10:10.",
)
def table(tables: tuple[str, ...], output: str, **options: Any) -> None:
    """Import tables with one row per question and candidate.

    PATH is a file, a folder or a glob of CSV, TSV, JSON Lines, Parquet or Excel (.xlsx) files. The suffix of
    a file is its format. Columns are found by name. FOLDER has a folder split=NAME per split.
    """
    from aptool.data.collection import Collection
    from aptool.data.table import PARTS
    from aptool.data.table_files import split_folders
    from aptool.data.writing import parse_splits
    from aptool.paths import location

    if options["split_ratio"] is not None and len(tables) == 1 and "=" not in tables[0]:
        splits = {"table": tables[0]}
    elif len(tables) == 1 and location(tables[0]).is_dir():
        splits = split_folders(tables[0])
    else:
        splits = parse_splits(tables, ", or --split-ratio 80:10:10 to split one table")
    if options["separator"] == "\\t":
        options["separator"] = "\t"
    columns = {part: name for part in PARTS if (name := options.pop(part)) is not None}
    report_collection(Collection.from_rows(splits, output, columns=columns, **options))


@import_.command()
@click.argument("source", metavar="[FOLDER | SPLIT=ID...]", nargs=-1)
@click.option("--corpus", metavar="PATH", help="Documents: .jsonl or .tsv files.")
@click.option("--queries", metavar="FILE", help="Queries: a .jsonl or .tsv file.")
@click.option("--qrels", metavar="SPLIT=FILE", multiple=True, help="Qrels of a split; repeatable.")
@click.option(
    "--run",
    "runs",
    metavar="SPLIT=RUN",
    multiple=True,
    help="First-stage run of a split; repeatable.",
)
@output_option
@_questions
@click.option(
    "--depth",
    type=Count(),
    metavar="N",
    default=100,
    help="Candidates per question: the top N of the first stage.",
)
@click.option(
    "--add-relevant",
    metavar="SPLIT",
    multiple=True,
    help="Split of which pools get the relevant documents that the first stage missed: train; repeatable.",
)
def retrieval(
    source: tuple[str, ...],
    corpus: str | None,
    queries: str | None,
    qrels: tuple[str, ...],
    runs: tuple[str, ...],
    output: str,
    **options: Any,
) -> None:
    """Import the candidates of first-stage runs.

    The source is a FOLDER in BEIR's layout, a data set of ir_datasets per split (test=beir/scifact/test), or
    the files --corpus, --queries and --qrels.
    """
    from aptool.data.retrieval import import_retrieval, read_beir, read_files, read_ir_datasets
    from aptool.data.writing import parse_splits
    from aptool.errors import UsageError

    files = (corpus, queries, qrels or None)
    if bool(source) == any(files) or (not source and not all(files)):
        raise UsageError("expected FOLDER, SPLIT=ID, or all of --corpus, --queries and --qrels")
    run_of_split = parse_splits(runs)
    if corpus is not None and queries is not None:
        collection = read_files(corpus, queries, parse_splits(qrels), run_of_split)
    elif len(source) == 1 and "=" not in source[0]:
        collection = read_beir(source[0], run_of_split)
    else:
        collection = read_ir_datasets(parse_splits(source), run_of_split)
    report_collection(import_retrieval(output, collection, **options))
