"""``aptool train``: trains a system on a collection, with one seed or several, into a model folder."""

import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aptool.cli.next_steps import default_collection
from aptool.cli.parameters import LOCATION, Seed, cluster_options, complete_preset, device_option
from aptool.config import CHECKPOINT_MINUTES
from aptool.errors import counted
from aptool.progress import measures_line

if TYPE_CHECKING:
    from aptool.config import Recipe
    from aptool.formats.location import Location
    from aptool.library.where import Where
    from aptool.training.fit import Fit
    from aptool.training.recorders import Log

logger = logging.getLogger(__name__)


@click.command("train")
@click.argument("collections", metavar="[COLLECTION]...", nargs=-1)
@click.option(
    "--preset",
    shell_complete=complete_preset,
    help="Preset name, or a recipe file.  [default: ap-cnn, or the recipe of the model of --start]",
)
@click.option(
    "--start",
    metavar="MODEL",
    help="Start from a trained model of the same system: its weights, its vocabulary grown by the new words.",
)
@click.option(
    "--teacher",
    metavar="RUN",
    help="Learn the scores of a run file of the training pools beside the labels.",
)
@click.option("--output", type=LOCATION, help="Model folder.  [default: models/PRESET]")
@click.option("--vectors", help="Word vectors: a file, a folder, a hub name, 'learned' or 'random'.")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="SECTION.KEY=VALUE",
    help="Override an option of the recipe; may be repeated.",
)
@click.option(
    "--seed",
    type=Seed(),
    default=0,
    show_default=True,
    help="Random seed.",
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Train N models, with consecutive seeds from --seed, into OUTPUT/seed0 and so on.",
)
@click.option(
    "--log",
    type=click.Choice(["tensorboard", "mlflow", "wandb"]),
    help="Record every epoch in files in logs/, for this tool (extra of its name).",
)
@device_option
@click.option(
    "--checkpoint-minutes",
    type=click.FloatRange(min=0),
    metavar="N",
    default=CHECKPOINT_MINUTES,
    show_default=True,
    help="Write a checkpoint every N minutes within an epoch, besides those after each epoch; 0 is none.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@partial(cluster_options, elastic=True)
def train(
    collections: tuple[str, ...],
    preset: str | None,
    start: str | None,
    teacher: str | None,
    output: "Location | None",
    vectors: str | None,
    overrides: tuple[str, ...],
    seed: int,
    seeds: int | None,
    log: "Log | None",
    checkpoint_minutes: float,
    as_json: bool,
    where: "Where",
) -> None:
    """Train a system on COLLECTION (default: the built-in one) and write a model folder.

    With several collections training takes the pairs of all; the dev split is that of the first one.

    Run the same command again after an interruption to resume from the last checkpoint; the model is the same
    as without the interruption.
    """
    from aptool.formats.collection import CollectionFiles
    from aptool.library.training import build_recipe, train_models
    from aptool.training.seeds import to_dict

    recipe = build_recipe(
        preset, set=overrides, start=start, teacher=teacher, mixture=collections[1:], vectors=vectors
    )
    if output is None:
        output = Path("models") / recipe.preset
        logger.info(f"--output not given: {output}")
    result = train_models(
        lambda: CollectionFiles(collections[0] if collections else default_collection()),
        recipe,
        output,
        where,
        seed=seed,
        seeds=seeds,
        log=log,
        checkpoint_minutes=checkpoint_minutes,
    )
    if as_json:
        import json

        click.echo(json.dumps({"output": str(output), **to_dict(result)}, indent=2))
        return
    for number, one in result.fits.items():
        name = output if seeds is None else f"seed {number}"
        what = f"best epoch {one.best_epoch} of {len(one.history)}" if one.history else "untrained"
        click.echo(f"{name}: {what}, dev {measures_line(one.dev)}")
    if seeds is None:
        click.echo(_details(one, recipe))
        return
    spread = ", ".join(f"{name} {mean:.4f} ± {sd:.4f}" for name, (mean, sd) in result.measures.items())
    click.echo(f"{output}: mean ± sd of {seeds} seeds, dev {spread}; best seed {result.best}")


def _details(fit: "Fit", recipe: "Recipe") -> str:
    """Training time and vocabulary, in one line."""
    trained = f"{counted(len(fit.history), 'epoch')} in {fit.seconds:.0f} s"
    if recipe.encoder["type"] in ("transformer", "cross"):
        return f"{trained}; vocabulary of {fit.words:,} subword tokens"
    return (
        f"{trained}; vocabulary of {counted(fit.words, 'word')}, "
        f"{fit.words - fit.words_with_vectors:,} without a vector; "
        f"{fit.dev_words_unknown:.1%} of dev tokens unknown"
    )
