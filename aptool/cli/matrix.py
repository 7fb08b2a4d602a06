"""``aptool matrix``: a table of experiments in, run files and one table of figures out."""

import contextlib
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aptool.cli.cluster_options import check_cluster_options, cluster_options, debugging
from aptool.cli.display import epoch_line, progress_bar, say
from aptool.errors import AptoolError, UsageError

if TYPE_CHECKING:
    from aptool.formats.pools import Unit


@click.command("matrix")
@click.argument("table", type=click.Path(path_type=Path))
@click.option(
    "--output", required=True, type=click.Path(path_type=Path), help="The folder for everything made."
)
@click.option("--let", "given", multiple=True, metavar="NAME=VALUE", help="What ${NAME} stands for in TABLE.")
@cluster_options
def matrix(
    table: Path,
    output: Path,
    given: tuple[str, ...],
    cluster: str | None,
    workers: int | None,
    gpus_per_worker: float | None,
) -> None:
    """Run the experiments of TABLE (such as jobs/eval.toml); what is done and unchanged is not run again.

    Where the paper has figures for a collection, they are printed beside ours.
    """
    check_cluster_options(cluster, workers, gpus_per_worker)
    from aptool.experiments.matrix import read_matrix
    from aptool.experiments.paper import beside, beside_cells
    from aptool.experiments.runner import Runner
    from aptool.experiments.table import cells, columns, not_above_random, summarise, write_table
    from aptool.formats.atomic import check_writable
    from aptool.training.loop import Progress

    plan = read_matrix(table, _values(given))
    check_writable(output / "table.md")

    with contextlib.ExitStack() as stack:
        elsewhere = {}
        if cluster is not None:
            elsewhere = _on_cluster(stack, cluster, workers, gpus_per_worker)
        tick = stack.enter_context(progress_bar("train"))

        def progress(system: str, state: Progress) -> None:
            text = f"pairs, {system}, epoch {state.epoch}, loss {state.loss:.4f}"
            tick(state.pairs, state.pairs_in_epoch, text)

        def epoch_done(system: str, entry: dict[str, Any]) -> None:
            say(f"  {system}: {epoch_line(entry)}")

        results = Runner(plan, output, say=say, progress=progress, epoch_done=epoch_done, **elsewhere).run()
    lines = summarise(results)
    let = [word for value in given for word in ("--let", value)]
    command = shlex.join(["aptool", "matrix", str(table), "--output", str(output), *let])
    write_table(output, lines, results, plan, command)
    _print([columns(plan.measures), *map(cells, lines)])
    compared = beside(results)
    if compared:
        click.echo("\nBeside the paper, mean ± deviation over seeds (OK: reached; close: within .01; below)")
        _print(beside_cells(compared), left=3)
    click.echo(f"\n{output / 'table.md'}, {output / 'table.json'}; run files beside them")
    trained = {name for name, contender in plan.contenders.items() if contender.preset is not None}
    baseline = next((name for name, one in plan.contenders.items() if one.baseline == "random"), None)
    failed = not_above_random(lines, trained, baseline, plan.measures[0])
    if failed:
        raise AptoolError(f"not above random order: {'; '.join(failed)}")


def _on_cluster(
    stack: contextlib.ExitStack, cluster: str, workers: int | None, gpus_per_worker: float | None
) -> dict[str, Any]:
    """How a ``Runner`` trains and scores on a cluster, which is let go with the stack."""
    from aptool.cluster.connection import connect
    from aptool.cluster.nodes import worker_share

    found = stack.enter_context(connect(cluster, debug=debugging()))
    each = worker_share(found, "auto", gpus_per_worker)

    from aptool.scoring.distributed import score_model
    from aptool.training.distributed import fit_on_cluster

    def score(units: list["Unit"], model: Path, run: Path, tag: str, answers: Path | None) -> None:
        score_model(
            units,
            model,
            run,
            cluster=found,
            tag=tag,
            answers=answers,
            workers=workers,
            gpus_per_worker=gpus_per_worker,
            debug=debugging(),
        )

    return {"train": partial(fit_on_cluster, cluster=found, workers=workers, each=each), "score": score}


def _values(given: tuple[str, ...]) -> dict[str, str]:
    values = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (equals and name.isidentifier()):
            raise UsageError(f"--let {text!r}: expected NAME=VALUE")
        values[name] = value
    return values


def _print(rows: list[list[str]], left: int = 2) -> None:
    """Rows in columns, the first ``left`` of them flush left."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        texts = [cell.ljust(width) for cell, width in zip(row[:left], widths, strict=False)]
        figures = [cell.rjust(width) for cell, width in zip(row[left:], widths[left:], strict=True)]
        click.echo("  ".join([*texts, *figures]).rstrip())
