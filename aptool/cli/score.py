"""``aptool score``: scores pools with a model into a TREC run file."""

from typing import TYPE_CHECKING, Literal

import click

from aptool.cli.cluster_options import check_cluster_options, cluster_options, connected, debugging
from aptool.cli.defaults import default_model, default_run
from aptool.cli.parameters import (
    LOCATION,
    UTF8,
    device_option,
    kind_option,
    model_option,
    tokens_per_batch_option,
)
from aptool.formats.ids import check_one_word

if TYPE_CHECKING:
    from aptool.formats.location import Location


@click.command("score")
@click.argument("pools", nargs=-1, required=True)
@model_option
@kind_option
@click.option(
    "--output",
    type=click.Path(),  # a slash at its end means something
    help="Run file; gzip if it ends in .gz. With a slash at its end a folder, for runs too large for one "
    "file.  [default: POOLS with .run]",
)
@click.option(
    "--answers",
    type=LOCATION,
    help="File with the texts of shared answers.  [default: answers.parquet beside POOLS]",
)
@click.option("--tag", type=UTF8, help="Run tag, one word.  [default: the model's preset]")
@device_option
@click.option(
    "--precision",
    type=click.Choice(["auto", "fp32", "tf32", "bf16"]),
    default="auto",
    show_default=True,
    help="Precision of encoding; auto is bf16 on a GPU where it changes no ranking of a sample, else fp32. "
    "tf32 has a GPU compute products of fp32 in TF32.",
)
@tokens_per_batch_option
@click.option(
    "--encoded",
    type=LOCATION,
    help="Store of answers that `aptool encode` encoded: they are read there.  [default: encode them]",
)
@click.option("--fill", is_flag=True, help="Encode answers that the store lacks, and add them to it.")
@cluster_options
def score(
    pools: tuple[str, ...],
    folder: "Location | None",
    kind: str,
    output: str | None,
    answers: "Location | None",
    tag: str | None,
    device: str,
    precision: Literal["auto", "fp32", "tf32", "bf16"],
    tokens_per_batch: int | None,
    encoded: "Location | None",
    fill: bool,
    cluster: str | None,
    workers: int | None,
    gpus_per_worker: float | None,
) -> None:
    """Score POOLS (files, folders, globs, URLs) into a TREC run file.

    Run the same command again after an interruption to resume.
    """
    check_cluster_options(cluster, workers, gpus_per_worker)
    if tag is not None:
        check_one_word("--tag", tag)
    folder = folder if folder is not None else default_model()
    output = output if output is not None else str(default_run(pools))

    from aptool.library.executors import executor_on
    from aptool.library.scoring import score as score_pools

    with connected(cluster) as found:
        done = score_pools(
            pools,
            folder,
            output,
            executor_on(found, workers, gpus_per_worker, debug=debugging()),
            answers=answers,
            tag=tag,
            device=device,
            precision=precision,
            tokens_per_batch=tokens_per_batch,
            kind=kind,
            encoded=encoded,
            fill=fill,
        )
    click.echo(f"{output}: {done.pairs} pairs")
