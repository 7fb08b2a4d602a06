"""Training one recipe with several seeds: a model folder per seed, and a summary of their dev measures."""

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
    """The results of all seeds."""

    fits: dict[int, Fit]  # by seed
    measures: dict[str, Spread]  # mean and standard deviation of the best epochs' dev measures
    best: int  # the seed with the best dev measure; the first of equal ones


def fit_seeds(
    fit_seed: Callable[[int, Location], Fit], recipe: Recipe, output: PathOrUrl, seeds: list[int]
) -> Seeds:
    """Train a model per seed into ``OUTPUT/seedN``, and write ``OUTPUT/seeds.json``.

    Called again it resumes: a seed whose model is complete is not trained again.
    """
    check_seeds_folder(output)
    fits = {seed: fit_seed(seed, location(output) / f"seed{seed}") for seed in seeds}
    summary = summarize(fits, recipe.training.dev_measure)
    with atomic_file(location(output) / SUMMARY) as temporary:
        temporary.write_text(json.dumps(to_dict(summary), indent=2) + "\n", encoding="utf-8")
    return summary


def check_seeds_folder(output: PathOrUrl) -> None:
    """Raise if ``output`` is itself a model."""
    if has_model(output):
        expected = "another folder for the models of several seeds, or a new one"
        raise InputError(output, problem="a model", expected=expected)


def summarize(fits: dict[int, Fit], dev_measure: str) -> Seeds:
    """Return mean and standard deviation of the best epochs' dev measures, and the best seed."""
    names = next(iter(fits.values())).dev
    spreads = {name: mean_and_sd([fit.dev[name] for fit in fits.values()]) for name in names}
    best = max(fits, key=lambda seed: MeasureValues.from_any_names(fits[seed].dev)[dev_measure])
    return Seeds(fits, spreads, best)


def to_dict(summary: Seeds) -> dict[str, Any]:
    """Return the summary as JSON values."""
    return {
        "best_seed": summary.best,
        "dev": {name: spread._asdict() for name, spread in summary.measures.items()},
        "seeds": {
            str(seed): {"best_epoch": fit.best_epoch, "epochs": len(fit.history), "dev": fit.dev}
            for seed, fit in summary.fits.items()
        },
    }
