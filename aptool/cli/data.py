"""``aptool data``: build, import, check and describe collections."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from aptool.cli.parameters import Count, json_option, overwrite_flag
from aptool.cli.tables import print_table
from aptool.errors import AptoolError, UsageError, printable
from aptool.paths import location

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aptool.data.collection import Collection
    from aptool.data.stats import Statistics

logger = logging.getLogger(__name__)

# Title and text of each row of `aptool data stats`, from the attributes of `stats.SplitStatistics`.
_STATISTICS = {
    "questions": "{questions:,}",
    "M: words per question": "{M:.2f}",
    "L: words per relevant answer": "{L:.2f}",
    "L over all candidates": "{L_all:.2f}",
    "L/M, mean over relevant answers": "{L_over_M:.2f}",
    "candidates": "{candidates:,}",
    "candidates per question": "{pool_mean:.2f}",
    "smallest, largest pool": "{pool_least}, {pool_most}",
    "relevant answers": "{relevant:,}",
    "questions without relevant answer": "{without_relevant:,}",
    "questions without non-relevant candidate": "{without_nonrelevant:,}",
    "relevant answers not in the pool": "{relevant_not_in_pool:,}",
    "questions without relevant candidate": "{questions_without_relevant_in_pool:,}",
    "distinct answer texts": "{distinct_answers:,}",
}


_RELEVANT_MISSING = "relevant_missing_from_pool_kept"  # a policy


def _splits_of_folder(splits: tuple[str, ...], names: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The path of each split, from ``SPLIT=PATH`` values or one folder with files of the given names."""
    from aptool.data.published import splits_in
    from aptool.data.writing import parse_splits

    if len(splits) == 1 and (folder := location(splits[0])).is_dir():
        return splits_in(folder, names)
    return parse_splits(splits)


def _output_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add ``--output`` and ``--overwrite``."""
    output = click.option(
        "--output", metavar="FOLDER", required=True, help="Folder of the collection to write."
    )
    return output(overwrite_flag(command))


_folder_or_splits = click.argument("splits", metavar="FOLDER | SPLIT=PATH...", nargs=-1, required=True)
_questions = click.option(
    "--questions",
    metavar="FILTER",
    type=click.Choice(["all", "answerable", "both-labels"]),
    default="all",
    help="Questions to import: all, answerable (with a relevant answer), or both-labels (with relevant and "
    "non-relevant candidates).",
)


def _report_collection(collection: Collection) -> None:
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
            if count and not (policy == _RELEVANT_MISSING and split in stages):
                logger.info(f"{split}: {policy.replace('_', ' ')}: {count:,}")
    for split, stage in stages.items():
        if relevant := stage["relevant"]:
            missed, added = stage["relevant_missed"], stage["relevant_added"]
            more = f"; {added:,} of them were added" if added else ""
            logger.info(
                f"{split}: the first stage missed {missed:,} of {relevant:,} relevant answers "
                f"({missed / relevant:.1%}){more}"
            )
    logger.info(f"collection: {collection.path}")


@click.group()
def data() -> None:
    """Build, import, check and describe collections."""


@data.command()
@_output_options
@click.option("--limit", type=Count(0), metavar="N", help="Maximum number of functions.  [default: no limit]")
def functions(output: str, overwrite: bool, limit: int | None) -> None:
    """Build a code-search collection from the installed Python packages."""
    from aptool.data.collection import Collection
    from aptool.data.functions import import_functions

    import_functions(output, limit=limit, overwrite=overwrite)
    _report_collection(Collection(output))


@data.command()
@click.argument("collection", metavar="COLLECTION")
@json_option
def stats(collection: str, as_json: bool) -> None:
    """Print statistics of a collection."""
    from aptool.data.collection import Collection
    from aptool.data.stats import describe

    statistics = describe(Collection(collection))
    if as_json:
        click.echo(json.dumps(asdict(statistics), indent=2, ensure_ascii=False))
    else:
        _print_statistics(statistics)


@data.command()
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--leaks", is_flag=True, help="Count near copies between splits (data leakage).")
@click.pass_context
def check(context: click.Context, paths: tuple[str, ...], leaks: bool) -> None:
    """Validate pools, answers, qrels, runs and collections.

    The exit code is 1 if a path is invalid.
    """
    from aptool.data.check import check_path, is_collection

    invalid = 0
    for path in paths:
        try:
            click.echo(f"{path}: {check_path(path)}")
            if leaks and is_collection(path):
                _print_leaks(path)
        except AptoolError as error:
            invalid += 1
            click.echo(str(error))
    if invalid:
        logger.info(f"{invalid} of {len(paths)} invalid")
        context.exit(1)


@data.command()
@click.argument("collection", metavar="COLLECTION")
@click.option("--folds", type=Count(2, 1000), default=5, metavar="N", help="Number of folds, 2 to 1000.")
@click.option(
    "--split",
    "splits",
    multiple=True,
    default=("train", "dev"),
    metavar="SPLIT",
    help="Split to take questions from; repeatable.",
)
@click.option("--output", metavar="FOLDER", required=True, help="Folder of the folds: FOLDER/fold1 etc.")
@overwrite_flag
def folds(collection: str, folds: int, splits: tuple[str, ...], output: str, overwrite: bool) -> None:
    """Split COLLECTION into cross-validation folds.

    Each fold is a collection with a train and a dev split. Near duplicates stay in one fold. Dev questions of
    a split with relevant candidates only get 500 candidates. The same collection always gives the same folds.
    """
    from aptool.data.collection import Collection
    from aptool.data.folds import write_folds

    for fold in write_folds(Collection(collection), output, folds, splits, overwrite=overwrite):
        counts = fold.manifest["splits"]
        click.echo(f"{fold.path}: {counts['train']['questions']:,} train, {counts['dev']['questions']:,} dev")


def _print_leaks(path: str) -> None:
    """Print the near copies of questions and relevant answers between each pair of splits."""
    from aptool.data.check import find_leaks
    from aptool.data.collection import Collection

    collection = Collection(path)
    if len(collection.splits) == 1:
        click.echo(f"  {collection.splits[0]} is the only split: no leaks to look for")
    for leak in find_leaks(collection):
        click.echo(
            f"  {leak.questions.near:,} of {leak.questions.total:,} questions of {leak.split} have a near "
            f"copy in {leak.earlier} ({leak.questions.same:,} word for word), {leak.answers.near:,} of "
            f"{leak.answers.total:,} distinct relevant answers ({leak.answers.same:,} word for word)"
        )
        if leak.examples:
            pairs = ", ".join(f"{question} and {earlier}" for question, earlier in leak.examples)
            click.echo(printable(f"    questions such as {pairs}"))


def _print_statistics(statistics: Statistics) -> None:
    rows = [["", *statistics.splits]]
    for title, text in _STATISTICS.items():
        rows.append([title, *(text.format_map(vars(split)) for split in statistics.splits.values())])
    for policy, touched in statistics.policies.items():
        if any(touched.values()) and policy != _RELEVANT_MISSING:  # it has a row above
            shown = [f"{touched.get(split, 0):,}" for split in statistics.splits]
            rows.append([f"at import: {policy.replace('_', ' ')}", *shown])
    click.echo(statistics.name)
    print_table(rows)


@data.group(name="import")
def import_() -> None:
    """Import a published data set or your own data."""


@import_.command()
@_folder_or_splits
@_output_options
@_questions
def wikiqa(splits: tuple[str, ...], output: str, **options: Any) -> None:
    """Import WikiQA: TSV files, or Parquet files of microsoft/wiki_qa.

    For the questions of the paper, pass --questions answerable.
    """
    from aptool.data.published import WIKIQA_SPLITS, import_wikiqa

    _report_collection(import_wikiqa(output, _splits_of_folder(splits, WIKIQA_SPLITS), **options))


@import_.command()
@_folder_or_splits
@_output_options
@_questions
def trecqa(splits: tuple[str, ...], output: str, **options: Any) -> None:
    """Import TREC-QA: folders with a.toks, b.toks, id.txt and sim.txt.

    For the questions of the paper, pass --questions both-labels.
    """
    from aptool.data.published import TRECQA_SPLITS, import_trecqa

    collection = import_trecqa(output, _splits_of_folder(splits, TRECQA_SPLITS), **options)
    details = collection.manifest["details"]
    logger.info(f"variant: {details['variant'] or 'none'} ({details['variant_decided']})")
    _report_collection(collection)


@import_.command()
@click.argument("folder", metavar="FOLDER")
@_output_options
@_questions
def insuranceqa(folder: str, output: str, **options: Any) -> None:
    """Import InsuranceQA V1 (github.com/shuzi/insuranceQA)."""
    from aptool.data.published import import_insuranceqa

    collection = import_insuranceqa(output, folder, **options)
    for split in collection.manifest["details"].get("splits_not_found", []):
        logger.info(f"{split}: skipped, its file is not in {folder}")
    _report_collection(collection)


@import_.command()
@click.argument("tables", metavar="FOLDER | SPLIT=PATH...", nargs=-1, required=True)
@_output_options
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

    if options["split_ratio"] is not None and len(tables) == 1 and "=" not in tables[0]:
        splits = {"table": tables[0]}
    elif len(tables) == 1 and location(tables[0]).is_dir():
        splits = split_folders(tables[0])
    else:
        splits = parse_splits(tables, ", or --split-ratio 80:10:10 to split one table")
    if options["separator"] == "\\t":
        options["separator"] = "\t"
    columns = {part: name for part in PARTS if (name := options.pop(part)) is not None}
    _report_collection(Collection.from_rows(splits, output, columns=columns, **options))


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
@_output_options
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
    _report_collection(import_retrieval(output, collection, **options))
