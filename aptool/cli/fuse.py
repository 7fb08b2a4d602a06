"""``aptool fuse``: fuse runs, by ranks, by scores or with learned weights."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from aptool.cli.parameters import UTF8, Bounded, json_option, overwrite_flag
from aptool.cli.tables import print_table
from aptool.data.ids import check_one_word
from aptool.errors import UsageError

if TYPE_CHECKING:
    from aptool.evaluation.fusion import Method, Normalization

# Defaults of `evaluation.fusion`, which is too slow to import for --help.
_K, _FOLDS = 60.0, 5


@click.command("fuse")
@click.argument("runs", nargs=-1, required=True)
@click.option("--output", required=True, type=click.Path(), help="TREC run file.")
@overwrite_flag
@click.option("--train", "qrels", metavar="QRELS", help="Learn the weights from these qrels.")
@click.option(
    "--train-run",
    "train_runs",
    metavar="RUN",
    multiple=True,
    help="Training run per RUN, in the same order.  [default: RUN, by cross-validation]",
)
@click.option(
    "--folds",
    type=Bounded(click.IntRange(2)),
    metavar="N",
    help=f"Cross-validation folds, 2 or more.  [default: {_FOLDS}]",
)
@click.option(
    "--method",
    metavar="NAME",
    type=click.Choice(["rrf", "combsum", "combmnz"]),
    help="rrf (reciprocal ranks), combsum or combmnz (normalized scores).  [default: rrf]",
)
@click.option(
    "--normalization",
    metavar="NAME",
    type=click.Choice(["min-max", "z-score"]),
    help="Scores per question, for combsum and combmnz: min-max or z-score.  [default: min-max]",
)
@click.option(
    "--k",
    type=Bounded(click.FloatRange(0)),
    metavar="X",
    help=f"Constant k of reciprocal rank fusion.  [default: {_K:g}]",
)
@click.option("--tag", type=UTF8, default="fused", help="Run tag, one word.")
@json_option
def fuse(
    runs: tuple[str, ...],
    output: str,
    overwrite: bool,
    qrels: str | None,
    train_runs: tuple[str, ...],
    folds: int | None,
    method: Method | None,
    normalization: Normalization | None,
    k: float | None,
    tag: str,
    as_json: bool,
) -> None:
    """Fuse RUNs of the same questions into one run.

    Without --train, by reciprocal rank fusion: the score of a candidate is the sum of 1 / (k + rank); or by
    the sum of its normalized scores (combsum), times the number of runs with the candidate (combmnz). With
    --train, by a linear model of the scores, standardized per question; its weights are printed.
    """
    if qrels is None and (train_runs or folds is not None):
        option = "--train-run" if train_runs else "--folds"
        raise UsageError(f"{option} given without --train QRELS; expected both")
    options = {"--method": method, "--normalization": normalization, "--k": k}
    for option, value in options.items():
        if qrels is not None and value is not None:
            name = option.removeprefix("--")
            raise UsageError(
                f"{option} given with --train; expected one or the other: learned fusion has no {name}"
            )
    if train_runs and folds is not None:
        raise UsageError("--folds given with --train-run; expected one or the other")
    check_one_word("--tag", tag)
    from aptool.evaluation.fusion import fuse as fuse_runs
    from aptool.evaluation.fusion import learn_fusion
    from aptool.outputs import check_apart, check_output

    check_apart(output, [*runs, *train_runs, *([qrels] if qrels is not None else [])])
    check_output(output, overwrite=overwrite)
    if qrels is None:
        fused = fuse_runs(runs, method=method or "rrf", k=k, normalization=normalization, tag=tag)
        weights = []
    else:
        learned = learn_fusion(runs, qrels, train_runs=train_runs or None, folds=folds or _FOLDS, tag=tag)
        fused = learned.run
        weights = [(run, mean, sd) for run, (mean, sd) in zip(runs, learned.weights, strict=True)]
    fused.save(output, overwrite=overwrite)
    if as_json:
        entries = [{"run": run, "weight": mean, "sd": sd} for run, mean, sd in weights]
        click.echo(json.dumps({"output": output, "runs": list(runs), "weights": entries}, indent=2))
        return
    if weights:
        rows = [[run, f"{mean:.4f}", f"{sd:.4f}"] for run, mean, sd in weights]
        print_table([["run", "weight", "sd over folds"], *rows])
    click.echo(output)
