"""``aptool matrix`` and ``aptool report``: run a table of experiments, and write an HTML report on it."""

import shlex
from typing import TYPE_CHECKING, Any

import click
from typing_extensions import override

from aptool.cli.parameters import LOCATION, Count, cluster_option, device_option, gpus_option, overwrite_flag
from aptool.cli.runs import (
    measures_option,
    named_runs,
    parse_measures,
    pools_beside,
    pools_option,
    qrels_of,
    qrels_option,
)
from aptool.cli.tables import print_table
from aptool.errors import UsageError
from aptool.paths import Location, location

if TYPE_CHECKING:
    from aptool.execution import Jobs


class JobsType(click.ParamType):  # type: ignore[type-arg]
    """A number of trials, or ``auto``."""

    name = "N|auto"

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == "auto" else click.IntRange(min=1).convert(value, param, ctx)


@click.command("matrix")
@click.argument("table", type=LOCATION)
@click.option("--output", required=True, type=LOCATION, help="Folder for models, runs and tables.")
@overwrite_flag
@click.option(
    "--let", "given", multiple=True, metavar="NAME=VALUE", help="Value of ${NAME} in TABLE; repeatable."
)
@click.option("--quick", is_flag=True, help="Run only the first seed of each row.")
@click.option(
    "--only",
    "patterns",
    multiple=True,
    metavar="GLOB",
    help="Run only the rows whose COLLECTION/SYSTEM matches, such as 'wikiqa-folds/*'; repeatable.",
)
@device_option
@click.option(
    "--jobs",
    type=JobsType(),
    help="Concurrent trials; auto: one per core or GPU.  [default: 1; on a cluster as many as fit]",
)
@cluster_option
@gpus_option
def matrix(
    table: Location,
    output: Location,
    overwrite: bool,
    given: tuple[str, ...],
    quick: bool,
    patterns: tuple[str, ...],
    jobs: "Jobs",
    **where: Any,
) -> None:
    """Run the experiments of TABLE, such as jobs/eval.toml.

    A trial is one system with one seed on one collection. Finished and unchanged trials are skipped. On a
    cluster each trial gets one worker.
    """
    from aptool.execution import Where

    place = Where(**where)
    from aptool.data.collection import Collection
    from aptool.experiments.matrix import only, read_matrix

    plan = only(read_matrix(table, _values(given)), patterns)
    for evaluated in dict.fromkeys(experiment.evaluated for experiment in plan.experiments):
        if evaluated.build is None and not evaluated.optional:
            Collection(evaluated.path)  # raises before PyTorch is imported
    from aptool.experiments.runner import run_matrix
    from aptool.experiments.table import OVER_SEEDS, paired_cells, table_cells, write_table

    if quick:
        experiments = [experiment._replace(seeds=experiment.seeds[:1]) for experiment in plan.experiments]
        plan = plan._replace(experiments=experiments)

    with place.connected() as cluster:
        processes = place.processes(cluster, jobs)
        results = run_matrix(plan, output, device=place.device, processes=processes, overwrite=overwrite)
    options = [word for value in given for word in ("--let", value)] + ["--quick"] * quick
    options += [word for pattern in patterns for word in ("--only", pattern)]
    command = shlex.join(["aptool", "matrix", str(table), "--output", str(output), *options])
    summaries, tests = write_table(output, results, plan.measures, command)
    print_table(table_cells(summaries, plan.measures), left=2)
    if any(summary.seeds > 1 for summary in summaries):
        click.echo(OVER_SEEDS)
    if tests:
        click.echo("\nPaired permutation tests over all questions of the folds, each the mean over its seeds")
        print_table(paired_cells(tests), left=4)
    click.echo(f"\n{output / 'table.md'}, {output / 'table.json'}; run files in the same folder")


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


@click.command("report")
@click.argument("runs", metavar="FOLDER | [NAME=]RUN...", nargs=-1, required=True)
@click.option("--output", metavar="FILE", type=LOCATION, help="HTML file.  [default: report.html, in FOLDER]")
@overwrite_flag
@qrels_option
@pools_option
@measures_option
@click.option(
    "--baseline",
    metavar="SYSTEM",
    help="Baseline of significance tests.  [default: bm25, else first system]",
)
@click.option(
    "--questions",
    metavar="N",
    type=Count(),
    default=10,
    help="Questions to show: the N largest gains and the N largest losses of the best system.",
)
@device_option
def report(
    runs: tuple[str, ...],
    output: Location | None,
    overwrite: bool,
    qrels: str | None,
    pools: tuple[str, ...],
    measures: str | None,
    baseline: str | None,
    questions: int,
    device: str,
) -> None:
    """Write a report on FOLDER, the output of `aptool matrix`, or on RUNs of any tool and their qrels.

    RUNs with the same NAME are seeds of one system.

    The page has the results with confidence intervals and significance tests, charts, and the questions with
    the largest differences, with ranked answers and heat maps. It is self-contained: one HTML file, no
    network, no scripts.
    """
    from aptool.files import stat
    from aptool.reporting.report import write_report
    from aptool.reporting.runs import read_runs, runs_of_files

    if len(runs) == 1 and qrels is None:
        if pools or measures is not None:
            raise UsageError("--pools and --measures: require --qrels")
        read = read_runs(runs[0])
        page = location(runs[0]) / "report.html" if output is None else output
    else:
        paths, names = named_runs(runs)
        qrels = qrels_of(paths, qrels)
        texts = pools or pools_beside(qrels)
        read = runs_of_files(zip(names, paths, strict=True), qrels, texts, parse_measures(measures))
        page = location("report.html") if output is None else output
    write_report(read, page, baseline=baseline, questions=questions, device=device, overwrite=overwrite)
    click.echo(f"{page}: {stat(page).size / 1e6:.2f} MB")
