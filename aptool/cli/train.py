"""``aptool train``: train a model on a collection, with one seed or several."""

import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from aptool.cli.next_steps import default_collection
from aptool.cli.parameters import (
    LOCATION,
    Count,
    SectionedCommand,
    cluster_options,
    complete_preset,
    device_option,
    json_option,
    seed_option,
)
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


@click.command("train", cls=SectionedCommand)
@click.argument("collections", metavar="[COLLECTION]...", nargs=-1)
@click.option(
    "--preset",
    metavar="NAME",
    shell_complete=complete_preset,
    help="Preset name or recipe file (TOML).  [default: ap-cnn; with --start the recipe of that model]",
)
@click.option("--output", metavar="FOLDER", type=LOCATION, help="Model folder.  [default: models/PRESET]")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="SECTION.KEY=VALUE",
    help="Override a hyperparameter of the recipe; repeatable.",
)
@click.option(
    "--vectors",
    metavar="FILE",
    help="Word vectors: file, folder, Hugging Face name, learned or random.  [default: the recipe's]",
)
@click.option(
    "--start", metavar="MODEL", help="Initialize from this model; new words are added to its vocabulary."
)
@click.option("--teacher", metavar="RUN", help="Distill from the scores of this run of the training pools.")
@seed_option
@click.option(
    "--seeds",
    type=Count(1, 10_000),
    metavar="N",
    help="Train N models with consecutive seeds from --seed, into OUTPUT/seed0 and so on.",
)
@click.option(
    "--log",
    type=click.Choice(["tensorboard", "mlflow", "wandb"]),
    help="Experiment tracker to log each epoch to, in OUTPUT/logs.",
)
@device_option
@click.option(
    "--checkpoint-minutes",
    type=click.FloatRange(min=0),
    metavar="MINUTES",
    default=CHECKPOINT_MINUTES,
    show_default=True,
    help="Minutes between checkpoints within an epoch; 0: only after each epoch.",
)
@json_option
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
    """Train a model on COLLECTION (default: data/functions) into a model folder.

    With several collections, training mixes their pairs; the dev split is that of the first collection.

    Run the same command again after an interruption to resume from the last checkpoint. The result is the
    same as without the interruption.
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
    for number, fit in result.fits.items():
        name = output if seeds is None else f"seed {number}"
        epochs = f"best epoch {fit.best_epoch} of {len(fit.history)}" if fit.history else "untrained"
        click.echo(f"{name}: {epochs}, dev {measures_line(fit.dev)}")
    if seeds is None:
        click.echo(_details(fit, recipe))
        return
    spread = ", ".join(f"{name} {mean:.4f} ± {sd:.4f}" for name, (mean, sd) in result.measures.items())
    click.echo(f"{output}: mean ± sd of {seeds} seeds, dev {spread}; best seed {result.best}")


def _details(fit: "Fit", recipe: "Recipe") -> str:
    """Training time and vocabulary."""
    trained = f"{counted(len(fit.history), 'epoch')} in {fit.seconds:.0f} s"
    if recipe.encoder["type"] in ("transformer", "cross"):
        return f"{trained}; vocabulary of {fit.words:,} subword tokens"
    return (
        f"{trained}; vocabulary of {counted(fit.words, 'word')}, "
        f"{fit.words - fit.words_with_vectors:,} without a vector; "
        f"{fit.dev_words_unknown:.1%} of dev tokens unknown"
    )
