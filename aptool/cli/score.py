"""``aptool score``: pools and a model in, a TREC run file out."""

from pathlib import Path
from typing import Literal

import click

from aptool.cli.cluster_options import check_cluster_options, cluster_options, debugging
from aptool.cli.defaults import default_model, default_run
from aptool.cli.display import progress_bar, say
from aptool.cli.pace import Pace
from aptool.cli.parameters import UTF8
from aptool.errors import UsageError


@click.command("score")
@click.argument("pools", nargs=-1, required=True)
@click.option(
    "--model", "folder", type=click.Path(path_type=Path), help="A model folder.  [default: models/ap-cnn]"
)
@click.option("--output", type=click.Path(path_type=Path), help="The run file.  [default: POOLS with .run]")
@click.option(
    "--answers", type=click.Path(path_type=Path), help="Texts of shared answers.  [default: beside POOLS]"
)
@click.option("--tag", type=UTF8, help="The run's name in the file, one word.  [default: the model's preset]")
@click.option(
    "--device",
    default="auto",
    show_default=True,
    help="cpu, cuda, cuda:1; auto is a GPU if there is one.",
)
@click.option(
    "--precision",
    type=click.Choice(["auto", "fp32", "bf16"]),
    default="auto",
    show_default=True,
    help="What texts are encoded in; auto is bf16 on a GPU if no ranking of a sample changes, else fp32.",
)
@click.option(
    "--tokens-per-batch",
    type=click.IntRange(1),
    metavar="N",
    help="Tokens encoded at one time; fewer take less memory.  [default: 8,192; on a GPU 262,144]",
)
@cluster_options
def score(
    pools: tuple[str, ...],
    folder: Path | None,
    output: Path | None,
    answers: Path | None,
    tag: str | None,
    device: str,
    precision: Literal["auto", "fp32", "bf16"],
    tokens_per_batch: int | None,
    cluster: str | None,
    workers: int | None,
    gpus_per_worker: float | None,
) -> None:
    """Score POOLS (files, folders, globs, URLs) into a TREC run file.

    Run again after an interruption, it goes on where it stopped.
    """
    check_cluster_options(cluster, workers, gpus_per_worker)
    from aptool.formats.atomic import check_apart, check_writable
    from aptool.formats.pools import list_units, read_answers, read_pools
    from aptool.formats.storage import expand

    if tag is not None and len(tag.split()) != 1:
        raise UsageError(f"--tag {tag!r}: expected one word")
    folder = folder if folder is not None else default_model()
    output = output if output is not None else default_run(pools)
    check_writable(output)
    files = expand(pools, ".pools.parquet")
    units = list_units(files)
    shared = answers if answers is not None else _answers_beside(files)
    check_apart(output, [*files, *([shared] if shared is not None else [])])

    from aptool.models.checkpoint import load_model
    from aptool.scoring.local import score_pools
    from aptool.scoring.precision import pick_precision
    from aptool.scoring.systems import ModelSystem, default_tag, pick_device

    if cluster is not None:
        from aptool.cluster.connection import connect

        with connect(cluster, debug=debugging()) as found, progress_bar("score") as tick:
            from aptool.scoring.distributed import score_model

            done = score_model(
                units,
                folder,
                output,
                cluster=found,
                tag=tag,
                answers=shared,
                device=device,
                precision=precision,
                tokens_per_batch=tokens_per_batch,
                workers=workers,
                gpus_per_worker=gpus_per_worker,
                debug=debugging(),
                say=say,
                report=Pace(tick, len(units)),
            )
        click.echo(f"{output}: {done.pairs} pairs")
        return
    place = pick_device(device)
    model = load_model(folder, place)
    texts = read_answers(shared) if shared is not None else None
    chosen = pick_precision(precision, model, place, lambda: read_pools(units[0], texts))
    system = ModelSystem(model, place, precision=chosen, tokens_per_batch=tokens_per_batch)
    tag = tag if tag is not None else default_tag(model.recipe)
    with progress_bar("score") as tick:
        merged = score_pools(units, system, output, tag=tag, answers=texts, report=Pace(tick, len(units)))
    if merged.truncated:
        say(f"{merged.truncated} answers were cut at {system.max_answer_tokens} tokens")
    click.echo(f"{output}: {merged.pairs} pairs")


def _answers_beside(files: list[str]) -> Path | None:
    """The shared answers of the collection that the first pools file stands in, if it is a local one."""
    from aptool.formats.collection import ANSWERS

    path = Path(files[0]).parent / ANSWERS
    return path if path.is_file() else None
