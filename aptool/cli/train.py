"""``aptool train``: train a model on a collection."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aptool.cli.parameters import (
    LOCATION,
    Bounded,
    cluster_option,
    device_option,
    gpus_option,
    overwrite_flag,
    seed_option,
    workers_option,
)
from aptool.config import CHECKPOINT_MINUTES
from aptool.progress import measures_line

if TYPE_CHECKING:
    from aptool.paths import Location

logger = logging.getLogger(__name__)


@click.command("train")
@click.argument("collection")
@click.option(
    "--preset",
    metavar="NAME",
    help="Preset or recipe file (TOML).  [default: ap-cnn; with --start its recipe]",
)
@click.option("--output", metavar="FOLDER", type=LOCATION, help="Model folder.  [default: models/PRESET]")
@overwrite_flag
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
    help="Word vectors: file, folder, Hugging Face name, learned or random.  [default: see the recipe]",
)
@click.option("--start", metavar="MODEL", help="Initialize from this model; add new words to its vocabulary.")
@seed_option
@device_option
@click.option(
    "--checkpoint-minutes",
    type=Bounded(click.FloatRange(min=0)),
    metavar="MINUTES",
    default=CHECKPOINT_MINUTES,
    help="Minutes between checkpoints; 0: only after each epoch.",
)
@cluster_option
@workers_option
@gpus_option
def train(
    collection: str,
    preset: str | None,
    start: str | None,
    output: "Location | None",
    overwrite: bool,
    vectors: str | None,
    overrides: tuple[str, ...],
    seed: int,
    checkpoint_minutes: float,
    **where: Any,
) -> None:
    """Train a model on COLLECTION into a model folder.

    `aptool data functions --output data/functions` builds a collection to try.

    Run the same command again after an interruption to resume from the last checkpoint, with the same result.
    """
    from aptool.config import load_recipe
    from aptool.data.collection import Collection
    from aptool.execution import Where, build_recipe, train_recipe
    from aptool.files import stat
    from aptool.models.hub import find_folder
    from aptool.paths import with_home

    opened, place = Collection(collection), Where(**where)
    # Missing inputs are refused before PyTorch is imported.
    if start is not None:
        find_folder(start)
    elif preset is not None:
        load_recipe(with_home(preset), overrides)
    if vectors not in (None, "learned", "random"):
        stat(vectors)

    recipe = build_recipe(preset, set=overrides, start=start, vectors=vectors)
    if output is None:
        output = Path("models") / recipe.preset
        logger.info(f"--output {output} (default)")
    fit = train_recipe(
        opened,
        recipe,
        output,
        place,
        seed=seed,
        checkpoint_minutes=checkpoint_minutes,
        overwrite=overwrite,
    )
    epochs = f"best epoch {fit.best_epoch} of {len(fit.history)}" if fit.history else "untrained"
    click.echo(f"{output}: {epochs}, dev {measures_line(fit.dev)}")
