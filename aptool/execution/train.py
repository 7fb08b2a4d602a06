"""The public function `train`, and the steps that the command takes, too."""

import shutil
import tempfile
import weakref
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from aptool.arguments import (
    LONGEST_SECONDS,
    PathLike,
    check_device,
    check_integer,
    check_number,
    check_path,
    check_text,
)
from aptool.config import CHECKPOINT_MINUTES, DEFAULT_PRESET, Overrides, Recipe, load_recipe
from aptool.data.collection import Collection
from aptool.errors import InputError
from aptool.execution.where import Address, Where
from aptool.models.build import check_recipe
from aptool.models.device import pick_device
from aptool.paths import Location, location, with_home
from aptool.training.fit import Fit

if TYPE_CHECKING:
    from aptool.scoring.model import Model


def train(
    collection: "Collection | PathLike",
    preset: str | None = None,
    *,
    start: PathLike | None = None,
    seed: int = 0,
    output: PathLike | None = None,
    overwrite: bool = False,
    vectors: PathLike | None = None,
    set: Overrides = (),  # noqa: A002 - the option's name on the command line
    device: str = "auto",
    cluster: Address = None,
    workers: int | tuple[int, int] | None = None,
    gpus_per_worker: float | None = None,
    wait: float | None = None,
    checkpoint_minutes: float = CHECKPOINT_MINUTES,
) -> "Model":
    """Train a system on a collection, as ``aptool train`` does.

    Args:
        collection: a collection, or its folder, with a split train and, to select the best epoch, dev.
        preset: name of a preset (``aptool.config.preset_names`` lists them), or a recipe file. Default:
            ``ap-cnn``, or the recipe of ``start``.
        start: model folder of the same system to initialize from; new words are added to its vocabulary.
        seed: random seed, an integer of at least 0.
        output: the model folder. After an interruption, a call with the same arguments resumes from the last
            checkpoint; after the training, it loads the model. Default: a temporary folder, deleted with the
            model object.
        overwrite: replace an existing model even if aptool did not write it, or it has changed since.
        vectors: word vectors: a file, a folder or a hub name; ``learned`` or ``random``.
        set: options of the recipe: ``{"training.epochs": 5}`` or ``["training.epochs=5"]``.
        device: ``auto`` (a GPU if there is one), ``cpu``, ``cuda`` or a GPU such as ``cuda:1``.
        cluster: address of a Ray cluster, or True for RAY_ADDRESS (``auto`` if unset). Default: no cluster.
        workers: number of worker processes of the cluster, or a minimum and a maximum for elastic training.
            Default: one per GPU, or one per node without GPUs.
        gpus_per_worker: GPUs per worker, may be fractional. Default: 1 if the cluster has GPUs, else 0.
        wait: seconds to wait for nodes with room. Default: no limit.
        checkpoint_minutes: minutes between checkpoints within an epoch; 0 writes only the checkpoint at the
            end of each epoch.

    Returns:
        The model of the best epoch, on ``device`` (after training on a cluster, on ``auto``).

    Example:
        >>> data = aptool.Collection("data/wikiqa")
        >>> model = aptool.train(data, preset="ap-cnn", seed=1, set={"training.epochs": 1})
        >>> model.save("models/mine")
        >>> model.preset, list(model.dev)
        ('ap-cnn', ['MAP', 'MRR', 'P@1'])
    """
    from aptool.scoring.model import Model

    opened = collection if isinstance(collection, Collection) else Collection(collection)
    recipe = build_recipe(preset, set=set, start=start, vectors=vectors)
    where = Where(check_device(device), cluster, workers, gpus_per_worker, wait)
    if output is not None:
        folder = location(check_path("output", output, "a folder to write to (str or os.PathLike)"))
    elif where.on_cluster:
        raise InputError("output", value=None, expected="a folder on storage that all nodes share")
    else:
        folder = Path(tempfile.mkdtemp(prefix="aptool-")) / "model"
    try:
        train_recipe(
            opened,
            recipe,
            folder,
            where,
            seed=seed,
            checkpoint_minutes=checkpoint_minutes,
            overwrite=overwrite,
        )
        # The workers' device may not exist in this process.
        model = Model(folder, "auto" if where.on_cluster else where.device)
    except BaseException:
        if output is None:
            shutil.rmtree(str(folder.parent), ignore_errors=True)
        raise
    if output is None:
        weakref.finalize(model, shutil.rmtree, str(folder.parent), ignore_errors=True)
    return model


def build_recipe(
    preset: str | None,
    *,
    set: Overrides = (),  # noqa: A002 - as ``train``
    start: PathLike | None = None,
    vectors: PathLike | None = None,
) -> Recipe:
    """Build and validate the recipe of a training from the arguments of ``train``."""
    if preset is not None:
        preset = with_home(check_text("preset", preset))
    if start is None:
        recipe = load_recipe(DEFAULT_PRESET if preset is None else preset, set)
    else:
        from aptool.models.start import training_recipe

        folder = check_path("start", start, "a model folder (str or os.PathLike)")
        recipe = training_recipe(preset, set, folder)
    if vectors is not None:
        source = check_path("vectors", vectors)
        recipe = replace(recipe, vectors=replace(recipe.vectors, source=source))
    check_recipe(recipe)
    return recipe


def train_recipe(
    collection: Collection,
    recipe: Recipe,
    output: Location,
    where: Where,
    *,
    seed: int,
    checkpoint_minutes: float = CHECKPOINT_MINUTES,
    overwrite: bool = False,
) -> Fit:
    """Train a model into ``output``; called again, it resumes."""
    check_integer("seed", seed, 0, 1 << 63)
    check_number("checkpoint_minutes", checkpoint_minutes, 0, LONGEST_SECONDS // 60)
    if not where.on_cluster:
        pick_device(where.device)
    with where.connected() as connected:
        train = connected.trainer(checkpoint_minutes)
        return train(collection, recipe, output, seed=seed, overwrite=overwrite)
