"""One recipe trained with several seeds: a model folder for each, and a summary of their dev figures."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from aptool.config import Recipe
from aptool.errors import InputError
from aptool.evaluation.evaluation import MeasureValues
from aptool.evaluation.power import Spread, mean_and_sd
from aptool.formats.atomic import atomic_file
from aptool.formats.location import Location, PathOrUrl, location
from aptool.models.model import has_model
from aptool.training.fit import Fit

SUMMARY = "seeds.json"


class Seeds(NamedTuple):
    """The results of all seeds.

    Attributes:
        fits: by seed.
        measures: mean and standard deviation of the best epochs' dev measures.
        best: the seed with the best figure of the recipe's dev measure; the first of equal ones.
    """

    fits: dict[int, Fit]
    measures: dict[str, Spread]
    best: int


def seed_folder(output: PathOrUrl, seed: int) -> Location:
    """The model folder of one of several seeds."""
    return location(output) / f"seed{seed}"


def fit_seeds(
    fit_one: Callable[[int, Location], Fit], recipe: Recipe, output: PathOrUrl, seeds: list[int]
) -> Seeds:
    """Trains a model for each seed in a folder of its own, and writes ``OUTPUT/seeds.json``.

    Called again it resumes: a seed whose model is complete is not trained again.

    Args:
        fit_one: trains a seed into a folder.
        recipe: with the dev measure that picks the best seed.
        output: the folder of the model folders.
        seeds: distinct seeds.
    """
    check_seeds_folder(output)
    fits = {seed: fit_one(seed, seed_folder(output, seed)) for seed in seeds}
    summary = summarize(fits, recipe.training.dev_measure)
    with atomic_file(location(output) / SUMMARY) as temporary:
        temporary.write_text(json.dumps(to_dict(summary), indent=2) + "\n", encoding="utf-8")
    return summary


def check_seeds_folder(output: PathOrUrl) -> None:
    """Checks, before any work, that ``output`` can hold the model folders of several seeds."""
    if has_model(output):
        expected = "another folder for the models of several seeds, or a new one"
        raise InputError(output, problem="a model", expected=expected)


def summarize(fits: dict[int, Fit], dev_measure: str) -> Seeds:
    """Mean and standard deviation of the best epochs' dev figures, and the best seed."""
    values = {name: [fit.dev[name] for fit in fits.values()] for name in next(iter(fits.values())).dev}
    spreads = {name: mean_and_sd(found) for name, found in values.items()}
    best = max(fits, key=lambda seed: MeasureValues.from_any_names(fits[seed].dev)[dev_measure])
    return Seeds(fits, spreads, best)


def to_dict(summary: Seeds) -> dict[str, Any]:
    """The summary as plain values, for JSON."""
    return {
        "best_seed": summary.best,
        "dev": {name: spread._asdict() for name, spread in summary.measures.items()},
        "seeds": {
            str(seed): {"best_epoch": fit.best_epoch, "epochs": len(fit.history), "dev": fit.dev}
            for seed, fit in summary.fits.items()
        },
    }
