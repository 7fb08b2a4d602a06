"""``aptool matrix``: run a table of experiments and print their measures."""

import shlex
from typing import TYPE_CHECKING, Any

import click
from typing_extensions import override

from aptool.cli.parameters import LOCATION, SectionedCommand, cluster_options, device_option
from aptool.cli.tables import print_table
from aptool.errors import AptoolError, UsageError

if TYPE_CHECKING:
    from aptool.formats.location import Location
    from aptool.library.where import Jobs, Where


class JobsType(click.ParamType):  # type: ignore[type-arg]
    """A number of trials, or ``auto``."""

    name = "N|auto"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == "auto" else click.IntRange(min=1).convert(value, param, ctx)


@click.command("matrix", cls=SectionedCommand)
@click.argument("table", type=LOCATION)
@click.option("--output", required=True, type=LOCATION, help="Folder to write models, runs and tables to.")
@click.option(
    "--let", "given", multiple=True, metavar="NAME=VALUE", help="Value of ${NAME} in TABLE; repeatable."
)
@click.option("--quick", is_flag=True, help="Run only the first seed of each row.")
@device_option
@click.option(
    "--jobs",
    type=JobsType(),
    help="Concurrent trials; auto: one per core or GPU, with one thread each.  [default: 1; on a cluster as "
    "many as it has room for]",
)
@cluster_options
def matrix(
    table: "Location",
    output: "Location",
    given: tuple[str, ...],
    quick: bool,
    jobs: "Jobs",
    where: "Where",
) -> None:
    """Run the experiments of TABLE, such as jobs/eval.toml.

    A trial is one system with one seed on one collection. Finished and unchanged trials are skipped.

    On a cluster each trial gets one worker; with --jobs 1, one trial at a time gets all workers.
    """
    if where.workers is not None and jobs != 1:
        raise UsageError(
            f"--workers {where.workers}: requires --jobs 1; expected --jobs for trials side by side"
        )
    from aptool.evaluation.compare import is_mean
    from aptool.experiments.matrix import read_matrix
    from aptool.experiments.runner import Runner
    from aptool.experiments.table import (
        not_above_random,
        paired_cells,
        paired_tests,
        summarize,
        table_cells,
        write_table,
    )
    from aptool.formats.atomic import check_writable

    plan = read_matrix(table, _values(given))
    if quick:
        plan = plan.with_one_seed()
    check_writable(output / "table.md")

    with where.connected() as connection:
        if where.on_cluster and jobs == 1:
            results = Runner(plan, output, train=connection.trainer(), executor=connection.executor()).run()
        else:
            results = Runner(plan, output, device=where.device).run(connection.processes(jobs))
    summaries = summarize(results)
    options = [word for value in given for word in ("--let", value)] + ["--quick"] * quick
    command = shlex.join(["aptool", "matrix", str(table), "--output", str(output), *options])
    tested = next((measure for measure in plan.measures if is_mean(measure)), None)
    tests = paired_tests(results, tested) if tested is not None else []
    write_table(output, summaries, results, tests, plan.measures, command)
    print_table(table_cells(summaries, plan.measures), left=2)
    if tests:
        click.echo("\nPaired permutation tests over all questions of the folds, each the mean over its seeds")
        print_table(paired_cells(tests), left=4)
    click.echo(f"\n{output / 'table.md'}, {output / 'table.json'}; run files beside them")
    failed = not_above_random(summaries, plan)
    if failed:
        raise AptoolError(f"not above random order: {'; '.join(failed)}")


def _values(given: tuple[str, ...]) -> dict[str, str]:
    values = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (equals and name.isidentifier()):
            raise UsageError(f"--let {text!r}: expected NAME=VALUE")
        if name in values:
            raise UsageError(f"--let {text!r}: {name} given twice; expected each name once")
        values[name] = value
    return values
