"""What is checked before any work of a training: its recipe, splits, device, and where its files go."""

from dataclasses import fields, replace

import torch

from aptool.config import Recipe, TeacherOptions
from aptool.errors import InputError, UsageError
from aptool.evaluation.names import measure_names
from aptool.formats.atomic import check_apart
from aptool.formats.collection import CollectionFiles
from aptool.formats.location import PathOrUrl, location
from aptool.models.build import check_recipe
from aptool.models.device import check_training_precision
from aptool.models.model import CONFIG, check_model_folder
from aptool.models.start import check_start
from aptool.training.checkpoint import training_folder, training_key
from aptool.training.texts import check_sources


def check_training(
    collection: CollectionFiles,
    recipe: Recipe,
    output: PathOrUrl,
    seed: int,
    splits: tuple[str, str] = ("train", "dev"),
    device: torch.device | str = "cpu",
) -> tuple[Recipe, str]:
    """Checks, before any work, that training can start.

    Returns:
        The recipe with its dev measure by its common name, and the training's key.
    """
    check_recipe(recipe)
    check_training_precision(
        recipe.encoder.get("precision", "fp32"),
        torch.device(device),
        lstm=recipe.encoder["type"] == "bilstm",
    )
    check_start(recipe)
    if recipe.start.model:
        check_apart(location(output) / CONFIG, [location(recipe.start.model) / CONFIG])
    recipe = _with_measure(recipe)
    if not recipe.teacher.run:
        _check_no_teacher(recipe)
    check_model_folder(output)
    folder = training_folder(output)
    if folder.exists() and not folder.is_dir():
        raise InputError(
            folder, problem="a file", expected="a folder for the training checkpoint, or a new one"
        )
    if splits[1] not in collection.splits:
        others = ", ".join(collection.splits)
        expected = f"one of {others} (`aptool data folds` splits questions into train and dev)"
        raise InputError(collection.path, problem=f"split {splits[1]!r}", expected=expected)
    collection.qrels(splits[1])
    check_sources(collection, recipe, splits[0])
    return recipe, training_key(collection, recipe, seed, splits, torch.device(device).type)


def _check_no_teacher(recipe: Recipe) -> None:
    """Checks that nothing is set of a teacher that is not there."""
    for option in fields(TeacherOptions):
        value = getattr(recipe.teacher, option.name)
        if value != option.default:
            place = f"teacher.{option.name}"
            raise InputError(
                recipe.preset, place=place, value=value, expected="a teacher: --teacher or teacher.run"
            )


def _with_measure(recipe: Recipe) -> Recipe:
    """The recipe with its dev measure checked: one known measure."""
    asked = recipe.training.dev_measure
    names = measure_names([asked])
    if len(names) > 1:
        several = ", ".join(names[:3])
        raise UsageError(f"training.dev_measure {asked!r}: expected one measure, not {several}, …")
    return replace(recipe, training=replace(recipe.training, dev_measure=names[0]))
