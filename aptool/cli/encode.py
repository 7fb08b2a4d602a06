"""``aptool encode``: encodes answers into a store, from which they are scored without being encoded again."""

from typing import TYPE_CHECKING, Literal

import click

from aptool.cli.next_steps import default_model
from aptool.cli.parameters import (
    LOCATION,
    cluster_options,
    device_option,
    kind_option,
    model_option,
    tokens_per_batch_option,
)

if TYPE_CHECKING:
    from aptool.formats.location import Location
    from aptool.library.where import Where


@click.command("encode")
@click.argument("texts", nargs=-1, required=True, metavar="ANSWERS...")
@model_option
@kind_option
@click.option(
    "--output", type=LOCATION, required=True, help="Folder of the store; one that exists is added to."
)
@click.option(
    "--answers",
    type=LOCATION,
    help="File with the texts of shared answers of pools.  [default: answers.parquet beside them]",
)
@click.option(
    "--precision",
    type=click.Choice(["fp32", "fp16", "int8"]),
    help="Precision of stored numbers; fp32 changes no score.  [default: the store's, fp32 of a new one]",
)
@device_option
@tokens_per_batch_option
@cluster_options
def encode(
    texts: tuple[str, ...],
    folder: "Location | None",
    kind: str,
    output: "Location",
    answers: "Location | None",
    precision: Literal["fp32", "fp16", "int8"] | None,
    tokens_per_batch: int | None,
    where: "Where",
) -> None:
    """Encode ANSWERS once, for `aptool score --encoded`.

    ANSWERS are answers files or pools files: files, folders, globs or URLs. What the store has already is not
    encoded again: run the same command again after an interruption, or with more answers.
    """
    folder = folder if folder is not None else default_model()

    from aptool.library.encoding import encode as encode_answers

    with where.connected() as place:
        done = encode_answers(
            texts,
            folder,
            output,
            place.encoder(),
            answers=answers,
            precision=precision,
            device=where.device,
            tokens_per_batch=tokens_per_batch,
            kind=kind,
        )
    click.echo(f"{output}: {done.texts:,} answers, {done.encoded:,} encoded now, {done.size / 1e6:,.1f} MB")
