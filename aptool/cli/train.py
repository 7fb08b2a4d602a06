"""``aptool train``: train a model on a collection."""

import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from typing_extensions import override

from aptool.cli.parameters import (
    LOCATION,
    Bounded,
    cluster_options,
    device_option,
    json_option,
    overwrite_flag,
    seed_option,
)
from aptool.config import CHECKPOINT_MINUTES
from aptool.errors import UsageError, counted
from aptool.progress import measures_line

if TYPE_CHECKING:
    from aptool.config import Recipe
    from aptool.data.collection import Collection
    from aptool.paths import Location
    from aptool.training.fit import Fit

logger = logging.getLogger(__name__)


class TrainCommand(click.Command):
    """The command of training, which names ``--set`` if an option of a recipe is passed as an option."""

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            from aptool.config import Recipe

            name = error.option_name.lstrip("-").replace("-", "_")
            sections = Recipe("", {}, {}).to_dict()
            for title in ("training", "text", "vectors"):
                if name in sections[title]:
                    ctx.fail(f"No such option: {error.option_name}; expected --set {title}.{name}=VALUE")
            raise


@click.command("train", cls=TrainCommand)
@click.argument("collection", required=False)
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
@json_option
@partial(cluster_options, elastic=True)
def train(
    collection: str | None,
    preset: str | None,
    start: str | None,
    output: "Location | None",
    overwrite: bool,
    vectors: str | None,
    overrides: tuple[str, ...],
    seed: int,
    checkpoint_minutes: float,
    as_json: bool,
    **where: Any,
) -> None:
    """Train a model on COLLECTION into a model folder.

    `aptool data functions --output data/functions` builds a collection to try.

    Run the same command again after an interruption to resume from the last checkpoint, with the same result.
    """
    from aptool.config import load_recipe
    from aptool.execution import Where, build_recipe, train_recipe
    from aptool.files import stat
    from aptool.models.hub import find_folder
    from aptool.paths import with_home

    opened, place = _open_collection(collection), Where(**where)
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
    if as_json:
        import json

        result = {"best_epoch": fit.best_epoch, "epochs": len(fit.history), "dev": fit.dev}
        click.echo(json.dumps({"output": str(output), "seed": seed, **result}, indent=2))
        return
    epochs = f"best epoch {fit.best_epoch} of {len(fit.history)}" if fit.history else "untrained"
    click.echo(f"{output}: {epochs}, dev {measures_line(fit.dev)}")
    click.echo(_details(fit, recipe))


def _open_collection(collection: str | None) -> "Collection":
    """Open the collection, before PyTorch is imported."""
    if collection is None:
        hint = "`aptool data functions --output data/functions` builds one to try"
        raise UsageError(f"missing argument COLLECTION ({hint})")
    from aptool.config import preset_names
    from aptool.data.collection import Collection

    if collection in preset_names() and not Path(collection).exists():
        raise UsageError(f"COLLECTION {collection}: the name of a preset; expected --preset {collection}")
    return Collection(collection)


def _details(fit: "Fit", recipe: "Recipe") -> str:
    """Training time and vocabulary."""
    trained = f"{counted(len(fit.history), 'epoch')} in {fit.seconds:.0f} s"
    if recipe.encoder["type"] == "transformer":
        return f"{trained}; vocabulary of {fit.words:,} subword tokens"
    return (
        f"{trained}; vocabulary of {counted(fit.words, 'word')}, "
        f"{fit.words - fit.words_with_vectors:,} without a vector; "
        f"{fit.dev_words_unknown:.1%} of dev tokens unknown"
    )
