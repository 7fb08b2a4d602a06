"""``aptool fuse``: several runs into one, by rank or by a model fitted on judged questions."""

from __future__ import annotations

import click

from aptool.cli.parameters import UTF8
from aptool.errors import UsageError
from aptool.formats.ids import check_one_word

# The defaults of `evaluation`, which is too slow to import for --help.
_K, _FOLDS = 60.0, 5


@click.command("fuse")
@click.argument("runs", nargs=-1, required=True)
@click.option("--output", required=True, type=click.Path(), help="Run file.")  # it keeps a slash at its end
@click.option("--train", "qrels", metavar="QRELS", help="Learn the fusion from these judgements.")
@click.option(
    "--train-run",
    "train_runs",
    metavar="RUN",
    multiple=True,
    help="Run of the same system on the questions of QRELS, one for each RUN in the same order.  "
    "[default: RUN itself, each fold of its questions fused by a model of the other folds]",
)
@click.option(
    "--folds", type=click.IntRange(2), help=f"Folds of the questions of QRELS.  [default: {_FOLDS}]"
)
@click.option(
    "--k",
    type=click.FloatRange(0),
    help=f"Constant of fusion by rank: the larger, the less the first ranks count.  [default: {_K:g}]",
)
@click.option("--tag", type=UTF8, default="fused", show_default=True, help="Run tag, one word.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def fuse(
    runs: tuple[str, ...],
    output: str,
    qrels: str | None,
    train_runs: tuple[str, ...],
    folds: int | None,
    k: float | None,
    tag: str,
    as_json: bool,
) -> None:
    """Fuse RUNs of the same questions into one run.

    Without --train by reciprocal rank: a candidate's score is the sum of 1 / (k + rank). With --train by a
    model of the runs' scores, standardized within each question; its weights are printed.
    """
    if len(runs) < 2:
        raise UsageError(f"{len(runs)} run given; expected two or more")
    given = {"--train-run": train_runs, "--folds": folds}
    useless = [name for name, value in given.items() if value not in (None, ())] if qrels is None else []
    if useless:
        raise UsageError(f"{useless[0]} given without --train QRELS; expected both")
    if qrels is not None and k is not None:
        raise UsageError("--k given with --train; expected one or the other: learned fusion has no k")
    if train_runs and len(train_runs) != len(runs):
        raise UsageError(f"{len(train_runs)} --train-run for {len(runs)} runs; expected one for each")
    if train_runs and folds is not None:
        raise UsageError("--folds given with --train-run; expected one or the other")
    check_one_word("--tag", tag)
    from aptool.formats.atomic import check_apart, files_of
    from aptool.formats.ir_metadata import check_run_output
    from aptool.library.fusion import fuse as fuse_runs
    from aptool.library.fusion import learn_fusion
    from aptool.library.run import Run

    check_run_output(output)
    check_apart(output, files_of(*runs, *train_runs, *([qrels] if qrels is not None else [])))
    loaded = [Run.load(run) for run in runs]
    if qrels is None:
        fuse_runs(loaded, k=_K if k is None else k, tag=tag).save(output)
        _print(output, runs, [], as_json)
        return
    learned = learn_fusion(
        loaded,
        qrels,
        train_runs=[Run.load(run) for run in train_runs] or None,
        folds=folds or _FOLDS,
        tag=tag,
    )
    learned.run.save(output)
    _print(output, runs, learned.weights, as_json)


def _print(output: str, runs: tuple[str, ...], weights: list[tuple[float, float]], as_json: bool) -> None:
    from aptool.cli.tables import print_table

    if as_json:
        import json

        pairs = zip(runs, weights, strict=False)
        entries = [{"run": run, "weight": mean, "sd": sd} for run, (mean, sd) in pairs]
        click.echo(json.dumps({"output": output, "runs": list(runs), "weights": entries}, indent=2))
        return
    if weights:
        rows = [[run, f"{mean:.4f}", f"{sd:.4f}"] for run, (mean, sd) in zip(runs, weights, strict=True)]
        print_table([["run", "weight", "sd over folds"], *rows])
    click.echo(output)
