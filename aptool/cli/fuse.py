"""``aptool fuse``: fuse runs, by ranks or with learned weights."""

import click

from aptool.cli.parameters import Bounded, overwrite_flag
from aptool.cli.tables import print_table
from aptool.data.ids import check_one_word
from aptool.errors import UsageError

_K = 60.0  # `fusion.DEFAULT_K`; the module is too slow to import for --help


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
    "--k",
    type=Bounded(click.FloatRange(0)),
    metavar="X",
    help=f"Constant k of reciprocal rank fusion.  [default: {_K:g}]",
)
@click.option("--tag", default="fused", help="Run tag, one word.")
def fuse(
    runs: tuple[str, ...],
    output: str,
    overwrite: bool,
    qrels: str | None,
    train_runs: tuple[str, ...],
    k: float | None,
    tag: str,
) -> None:
    """Fuse RUNs of the same questions into one run.

    Without --train, by reciprocal rank fusion: the score of a candidate is the sum of 1 / (k + rank). With
    --train, by a linear model of the scores, standardized per question; its weights are printed.
    """
    if qrels is None and train_runs:
        raise UsageError("--train-run given without --train QRELS; expected both")
    if qrels is not None and k is not None:
        raise UsageError("--k given with --train; expected one or the other: learned fusion has no k")
    check_one_word("--tag", tag)
    from aptool.evaluation.fusion import fuse as fuse_runs
    from aptool.evaluation.fusion import learn_fusion
    from aptool.outputs import check_apart, check_output

    check_apart(output, [*runs, *train_runs, *([qrels] if qrels is not None else [])])
    check_output(output, overwrite=overwrite)
    if qrels is None:
        fuse_runs(runs, k=_K if k is None else k, tag=tag).save(output, overwrite=overwrite)
    else:
        learned = learn_fusion(runs, qrels, train_runs=train_runs or None, tag=tag)
        learned.run.save(output, overwrite=overwrite)
        rows = zip(runs, learned.weights, strict=True)
        weights = [[run, f"{mean:.4f}", f"{deviation:.4f}"] for run, (mean, deviation) in rows]
        print_table([["run", "weight", "sd over folds"], *weights])
    click.echo(output)
