"""``aptool encode``: encode answers into an answer store, for repeated scoring."""

from typing import TYPE_CHECKING, Any

import click

from aptool.cli.next_steps import default_model
from aptool.cli.parameters import (
    LOCATION,
    SectionedCommand,
    cluster_options,
    device_option,
    kind_option,
    model_option,
    tokens_per_batch_option,
)

if TYPE_CHECKING:
    from aptool.formats.location import Location
    from aptool.library.where import Where


@click.command("encode", cls=SectionedCommand)
@click.argument("texts", nargs=-1, required=True, metavar="ANSWERS...")
@model_option
@kind_option
@click.option(
    "--output",
    type=LOCATION,
    required=True,
    help="Folder of the answer store; answers are added to an existing store.",
)
@click.option(
    "--answers",
    type=LOCATION,
    help="Texts of shared answers.  [default: answers.parquet in the folder of the pools]",
)
@device_option
@click.option(
    "--precision",
    type=click.Choice(["fp32", "fp16", "int8"]),
    help="Precision of the stored vectors; fp32 changes no score.  [default: that of the store; new: fp32]",
)
@tokens_per_batch_option
@cluster_options
def encode(
    texts: tuple[str, ...],
    folder: "Location | None",
    output: "Location",
    where: "Where",
    **options: Any,
) -> None:
    """Encode ANSWERS once, for `aptool score --encoded`.

    ANSWERS are answers files or pools files: files, folders, globs or URLs. Answers that the store already
    has are skipped: run the same command again after an interruption, or with more answers.
    """
    folder = folder if folder is not None else default_model()

    from aptool.library.encoding import encode as encode_answers

    with where.connected() as connection:
        encoded = encode_answers(
            texts,
            folder,
            output,
            connection.encoder(),
            device=where.device,
            **options,
        )
    click.echo(
        f"{output}: {encoded.texts:,} answers, {encoded.encoded:,} encoded now, {encoded.size / 1e6:,.1f} MB"
    )
