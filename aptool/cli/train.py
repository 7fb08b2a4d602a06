"""``aptool train``: a collection and a preset in, a model folder out."""

from pathlib import Path
from typing import Any

import click

from aptool.cli.defaults import default_collection
from aptool.cli.display import epoch_line, figures, progress_bar, say


@click.command("train")
@click.argument("collection", required=False, type=click.Path(path_type=Path))
@click.option("--preset", default="ap-cnn", show_default=True, help="A system by name, or a recipe file.")
@click.option("--output", type=click.Path(path_type=Path), help="The model folder.  [default: models/PRESET]")
@click.option("--vectors", help="Word vectors: a file, a folder or a hub name; 'learned' or 'random'.")
@click.option(
    "--set", "overrides", multiple=True, metavar="SECTION.KEY=VALUE", help="Change an option of the recipe."
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    default=0,
    show_default=True,
    help="Of everything that is drawn.",
)
def train(
    collection: Path | None,
    preset: str,
    output: Path | None,
    vectors: str | None,
    overrides: tuple[str, ...],
    seed: int,
) -> None:
    """Train a system on COLLECTION (by default the built-in one) and write a model folder."""
    from aptool.config import load_recipe
    from aptool.formats.atomic import check_folder
    from aptool.formats.collection import Collection
    from aptool.models.checkpoint import WEIGHTS
    from aptool.models.ranker import check_recipe

    recipe = load_recipe(preset, overrides)
    if vectors is not None:
        recipe = recipe.with_vectors(vectors)
    check_recipe(recipe)
    if output is None:
        output = Path("models") / recipe.preset
        say(f"--output not given: {output}")
    check_folder(output, WEIGHTS)
    opened = Collection(collection if collection is not None else default_collection())

    from aptool.training.fit import fit
    from aptool.training.loop import Progress

    with progress_bar(recipe.preset) as tick:

        def progress(state: Progress) -> None:
            tick(state.pairs, state.pairs_in_epoch, f"pairs, epoch {state.epoch}, loss {state.loss:.4f}")

        def epoch_done(entry: dict[str, Any]) -> None:
            say(epoch_line(entry))

        result = fit(opened, recipe, output, seed=seed, say=say, progress=progress, epoch_done=epoch_done)
    click.echo(
        f"{output}: best epoch {result.best_epoch} of {len(result.history)}, dev {figures(result.dev)}"
    )
