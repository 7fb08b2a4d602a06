"""``aptool score``: pools and a model in, a TREC run file out."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aptool.cli.cluster_options import check_cluster_options, cluster_options, debugging
from aptool.cli.defaults import default_model, default_run
from aptool.cli.display import progress_bar, say
from aptool.cli.pace import Pace
from aptool.errors import UsageError

if TYPE_CHECKING:
    from aptool.scoring.systems import ModelSystem


@click.command("score")
@click.argument("pools", nargs=-1, required=True)
@click.option(
    "--model", "folder", type=click.Path(path_type=Path), help="A model folder.  [default: models/ap-cnn]"
)
@click.option("--output", type=click.Path(path_type=Path), help="The run file.  [default: POOLS with .run]")
@click.option(
    "--answers", type=click.Path(path_type=Path), help="Texts of shared answers.  [default: beside POOLS]"
)
@click.option("--tag", help="The run's name in the file, one word.  [default: the model's preset]")
@click.option(
    "--device",
    default="auto",
    show_default=True,
    help="cpu, cuda, cuda:1; auto is a GPU if there is one.",
)
@cluster_options
def score(
    pools: tuple[str, ...],
    folder: Path | None,
    output: Path | None,
    answers: Path | None,
    tag: str | None,
    device: str,
    cluster: str | None,
    workers: int | None,
    gpus_per_worker: float | None,
) -> None:
    """Score POOLS (files, folders, globs, URLs) into a TREC run file.

    Run again after an interruption, it goes on where it stopped.
    """
    check_cluster_options(cluster, workers, gpus_per_worker)
    from aptool.formats.atomic import check_writable
    from aptool.formats.pools import list_units, read_answers
    from aptool.formats.storage import expand

    if tag is not None and len(tag.split()) != 1:
        raise UsageError(f"--tag {tag!r}: expected one word")
    folder = folder if folder is not None else default_model()
    output = output if output is not None else default_run(pools)
    check_writable(output)
    files = expand(pools, ".pools.parquet")
    units = list_units(files)
    shared = answers if answers is not None else _answers_beside(files)

    from aptool.models.checkpoint import load_model
    from aptool.scoring.local import score_pools
    from aptool.scoring.systems import ModelSystem, pick_device

    texts = read_answers(shared) if shared is not None else None
    if cluster is not None:
        from aptool.scoring.cluster import connect, worker_share

        system = open_model(str(folder), "cpu")
        tag = tag if tag is not None else "-".join(system.name.split())
        with connect(cluster, debug=debugging()) as found, progress_bar("score") as tick:
            from aptool.scoring.distributed import score_pools as score_on

            result = score_on(
                units,
                system,
                partial(open_model, str(folder.resolve())),
                output,
                cluster=found,
                tag=tag,
                answers=texts,
                workers=workers,
                each=worker_share(found, device, gpus_per_worker),
                paths=[str(folder.resolve())],
                debug=debugging(),
                say=say,
                report=Pace(tick, len(units)),
            )
        click.echo(f"{output}: {result.pairs} pairs")
        return
    system = ModelSystem(load_model(folder), pick_device(device))
    tag = tag if tag is not None else "-".join(system.name.split())
    with progress_bar("score") as tick:
        pairs = score_pools(units, system, output, tag=tag, answers=texts, report=Pace(tick, len(units)))
    if system.truncated:
        say(f"{system.truncated} answers were cut at {system.max_answer_tokens} tokens")
    click.echo(f"{output}: {pairs} pairs")


def _answers_beside(files: list[str]) -> Path | None:
    """The shared answers of the collection that the first pools file stands in, if it is a local one."""
    from aptool.formats.collection import ANSWERS

    path = Path(files[0]).parent / ANSWERS
    return path if path.is_file() else None


def open_model(folder: str, device: str) -> "ModelSystem":
    """The system of a model folder; workers call this as well."""
    from aptool.models.checkpoint import load_model
    from aptool.scoring.systems import ModelSystem

    return ModelSystem(load_model(folder), device)
