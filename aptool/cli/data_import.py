"""``aptool data import``: collections out of published data sets; other modules add a user's own data."""

from __future__ import annotations

import logging

import click

from aptool.cli import retrieval
from aptool.cli.collections import output_option, questions_option, report_collection, splits_argument
from aptool.cli.data_own import OWN_FORMATS

logger = logging.getLogger(__name__)


@click.group(name="import")
def import_() -> None:
    """Import a published data set, or one of your own.

    PATH may be a URL that fsspec knows, such as https://... or hf://datasets/...
    """


@import_.command()
@splits_argument
@output_option
@questions_option
def wikiqa(splits: tuple[str, ...], output: str, questions: str) -> None:
    """Import WikiQA: its TSV files, or the Parquet files of the hub's microsoft/wiki_qa.

    The paper's questions are those of --questions answerable.
    """
    from aptool.datasets.importing import parse_splits
    from aptool.datasets.wikiqa import build

    report_collection(build(output, parse_splits(splits), questions=questions))


@import_.command()
@splits_argument
@output_option
@questions_option
@click.option(
    "--variant",
    type=click.Choice(["raw", "clean"]),
    help="Variant of TREC-QA; clean is verified.  [default: clean if every question outside train has a "
    "relevant and a non-relevant candidate, else raw]",
)
def trecqa(splits: tuple[str, ...], output: str, questions: str, variant: str | None) -> None:
    """Import TREC-QA: jacana's XML-like files, or folders with a.toks, b.toks, id.txt and sim.txt.

    The paper's questions are those of --questions both-labels.
    """
    from typing import cast

    from aptool.datasets.importing import parse_splits
    from aptool.datasets.trecqa import Variant, build

    stated = cast("Variant | None", variant)
    collection = build(output, parse_splits(splits), questions=questions, variant=stated)
    details = collection.manifest["details"]
    logger.info(f"variant: {details['variant'] or 'none'} ({details['variant_decided']})")
    report_collection(collection)


@import_.command()
@click.argument("folder", metavar="FOLDER")
@output_option
@questions_option
@click.option(
    "--pool-size",
    type=click.Choice(["100", "500", "1000", "1500"]),
    default="500",
    show_default=True,
    help="Candidates per question; V2 only.",
)
@click.option(
    "--tokens",
    type=click.Choice(["token", "raw"]),
    default="token",
    show_default=True,
    help="Tokenization of the texts; V2 only.",
)
def insuranceqa(folder: str, output: str, questions: str, pool_size: str, tokens: str) -> None:
    """Import InsuranceQA from FOLDER, the V1 or V2 of github.com/shuzi/insuranceQA."""
    from aptool.datasets.insuranceqa import build

    collection = build(output, folder, questions=questions, pool_size=int(pool_size), tokens=tokens)
    for split in collection.manifest["details"].get("splits_not_found", []):
        logger.info(f"{split}: skipped, its file is not in {folder}")
    report_collection(collection)


for _command in (*OWN_FORMATS, retrieval.beir, retrieval.mteb, retrieval.msmarco, retrieval.ir_datasets):
    import_.add_command(_command)
import_.add_command(retrieval.pools, "pyserini")  # a run and a corpus, whatever made the run
