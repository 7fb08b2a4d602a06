"""``aptool score``: score pools into a run."""

from typing import Any

import click

from aptool.cli.parameters import (
    LOCATION,
    cluster_option,
    default_model,
    device_option,
    gpus_option,
    overwrite_flag,
    tokens_per_batch_option,
    workers_option,
)
from aptool.environment import BACKENDS, PRECISIONS, Backend, Precision, requiring_torch


@click.command("score")
@click.argument("pools", nargs=-1, required=True)
@click.option(
    "--model",
    metavar="MODEL",
    type=click.Path(),  # it keeps the ./ of a folder named as a baseline
    help="Model folder, Hugging Face name (ORG/NAME), bm25 or random.  [default: models/ap-cnn]",
)
@click.option(
    "--backend",
    metavar="NAME",
    type=click.Choice(BACKENDS),
    default="torch",
    help="Computes checkpoints of other libraries: torch or openvino (on a CPU).",
)
@click.option(
    "--output",
    type=click.Path(),  # it keeps a slash at its end
    required=True,
    help="TREC run file (.gz: gzip), table (.parquet) or folder of parts (ends in /).",
)
@overwrite_flag
@click.option("--tag", help="Run tag, one word.  [default: preset or name of the model]")
@click.option(
    "--answers",
    type=LOCATION,
    help="Texts of shared answers.  [default: answers.parquet next to the pools]",
)
@device_option
@click.option(
    "--precision",
    metavar="TYPE",
    type=click.Choice(PRECISIONS),
    default="auto",
    help="Precision: fp32, bf16, or auto: bf16 on a GPU if it ranks the first pools as fp32 does, else fp32.",
)
@tokens_per_batch_option
@cluster_option
@workers_option
@gpus_option
def score(
    pools: tuple[str, ...],
    model: str | None,
    output: str,
    device: str,
    backend: Backend,
    precision: Precision,
    tokens_per_batch: int | None,
    **options: Any,
) -> None:
    """Score POOLS (files, folders, globs, URLs) into a TREC run file.

    The models bm25 and random are untrained baselines; pass a model folder named bm25 as ./bm25. BM25 counts
    document frequencies over the distinct answers of all POOLS.

    Run the same command again after an interruption to resume. A complete run of the same command is left
    as it is.
    """
    model = model if model is not None else str(default_model())
    from aptool.files import expand, stat
    from aptool.models.hub import find_folder
    from aptool.paths import is_remote
    from aptool.scoring.systems import BASELINES, System

    stat(expand(pools, ".pools.parquet")[0])  # before large libraries are imported
    if model not in BASELINES and not is_remote(model):
        find_folder(model)

    from aptool.execution import score as score_pools

    system: str | System = model
    if model not in BASELINES:
        with requiring_torch("a model"):
            from aptool.scoring.model_system import model_system
        system = model_system(
            model, device=device, precision=precision, backend=backend, tokens_per_batch=tokens_per_batch
        )
    scored = score_pools(pools, system, output, device=device, **options)
    click.echo(f"{output}: {scored.pairs} pairs")
