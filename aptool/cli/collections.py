"""Options of commands that write a collection, and the table that they print."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import click

from aptool.cli.parameters import overwrite_option, with_options
from aptool.cli.tables import print_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aptool.datasets.import_options import ColumnNames
    from aptool.formats.collection import CollectionFiles

logger = logging.getLogger(__name__)

NO_LABELS = "no labels"  # instead of a count, for a split without qrels


def by_split(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """Parse ``SPLIT=PATH`` values; the callback of options and arguments."""
    from aptool.datasets.importing import parse_splits

    return parse_splits(values)


def splits_of_folder(splits: tuple[str, ...], names: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The path of each split, from ``SPLIT=PATH`` values or one folder with files of the given names."""
    from aptool.datasets.importing import parse_splits, splits_in
    from aptool.formats.location import location

    if len(splits) == 1 and (folder := location(splits[0])).is_dir():
        return splits_in(folder, names)
    return parse_splits(splits)


folder_or_splits_argument = click.argument(
    "splits", metavar="FOLDER | SPLIT=PATH...", nargs=-1, required=True
)
output_option = with_options(
    click.option("--output", metavar="FOLDER", required=True, help="Folder of the collection to write."),
    overwrite_option("COLLECTION"),
)
questions_option = click.option(
    "--questions",
    metavar="FILTER",
    type=click.Choice(["all", "answerable", "both-labels"]),
    default="all",
    help="Questions to import: all, answerable (with a relevant answer), or both-labels (with relevant and "
    "non-relevant candidates).",
)
conflicts_option = click.option(
    "--conflicts",
    metavar="RULE",
    type=click.Choice(["error", "max", "min"]),
    default="error",
    help="Pair with several labels: error (stop), max or min.",
)


def report_collection(collection: CollectionFiles, names: ColumnNames | None = None) -> None:
    """Print the splits as a table; log the path and the number of rows per import policy."""
    manifest = collection.manifest
    read = manifest.get("details", {}).get("read", {})
    rows = [["split", "questions", "candidates", "relevant"]]
    if read:
        rows[0] += ["questions read", "candidates read"]
    for split, counts in manifest["splits"].items():
        values = [counts["questions"], counts["candidates"], counts.get("positives", NO_LABELS)]
        values += read.get(split, {}).values()
        rows.append([split, *(value if isinstance(value, str) else f"{value:,}" for value in values)])
    print_table(rows)
    for policy, touched in manifest["policies"].items():
        for split, count in touched.items():
            if count:
                logger.info(f"{split}: {policy.replace('_', ' ')}: {count:,}")
    if names is not None and names.question_id is None:
        logger.info("questions with the same text are one question (see --question-id)")
    logger.info(f"written: {collection.path}")
    for split, counts in manifest.get("details", {}).get("first_stage", {}).items():
        relevant, missed = counts["relevant"], counts["relevant_missed"]
        if relevant:
            logger.info(
                f"{split}: the first stage ({counts['system']}) missed {missed:,} of {relevant:,} relevant "
                f"answers ({missed / relevant:.1%}); {counts['relevant_added']:,} of them were added"
            )
