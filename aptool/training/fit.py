"""From a collection and a recipe to a model folder."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from aptool.config import Recipe
from aptool.errors import UsageError
from aptool.evaluation.metrics import measure_names
from aptool.formats.atomic import check_folder
from aptool.formats.collection import Collection
from aptool.models.checkpoint import WEIGHTS, save_model
from aptool.models.ranker import build_ranker, check_recipe
from aptool.training.dev import DevSet
from aptool.training.examples import read_texts, tokenized
from aptool.training.loop import Progress, train
from aptool.training.vocabulary import embed, make_vocabulary


class Fit(NamedTuple):
    """What came of training."""

    best_epoch: int
    dev: dict[str, float]  # of the best epoch
    history: list[dict[str, Any]]
    words: int  # in the vocabulary
    words_with_vectors: int


def fit(
    collection: Collection,
    recipe: Recipe,
    output: str | Path,
    *,
    seed: int = 0,
    train_split: str = "train",
    dev_split: str = "dev",
    vectors_cache: Path | None = None,
    say: Callable[[str], None] = lambda line: None,
    progress: Callable[[Progress], None] = lambda progress: None,
    epoch_done: Callable[[dict[str, Any]], None] = lambda entry: None,
) -> Fit:
    """Trains a system on a collection and writes its model folder.

    Args:
        collection: with a split to train on and a split to pick the best epoch by.
        recipe: the system and the procedure.
        output: the model folder.
        seed: of everything that is drawn.
        train_split: the split to train on.
        dev_split: the split to judge epochs by.
        vectors_cache: a folder for learned vectors, so that systems that start from the same ones learn
            them once.
        say: told in a line what is being done.
        progress: told how far an epoch is.
        epoch_done: told the history's entry of each epoch.

    Raises:
        InputError: a file or the recipe is not what it should be, or the output cannot be written.
        UsageError: the dev measure is not one.
    """
    check_recipe(recipe)
    recipe = _with_measure(recipe)
    check_folder(output, WEIGHTS)
    collection.qrels(dev_split)  # there is such a split
    texts = read_texts(collection, train_split)
    torch.manual_seed(seed)
    tokenizer, vectors, recipe = make_vocabulary(collection, texts, recipe, seed, say, vectors_cache)
    examples = tokenized(texts, tokenizer, recipe.text)
    dev = DevSet(collection, dev_split, tokenizer, recipe.text)
    ranker = build_ranker(recipe, len(tokenizer), recipe.vectors.dim)
    known = embed(ranker, tokenizer, vectors, recipe.vectors)
    say(
        f"training {recipe.preset} on {len(examples.pairs)} pairs of {len(examples.questions)} questions, "
        f"{len(examples.answers)} answers ({examples.answers.truncated} cut at "
        f"{recipe.text.max_answer_tokens} tokens), {len(tokenizer)} words ({known} with vectors)"
    )
    result = train(
        ranker,
        examples,
        recipe.training,
        seed=seed,
        evaluate=lambda ranker: dev.measures(ranker, recipe.training.dev_measure),
        report=progress,
        finished=epoch_done,
    )
    figures = result.history[result.best_epoch - 1]["dev"] if result.best_epoch else {}
    facts = {
        "collection": collection.name,
        "fingerprint": collection.fingerprint,
        "seed": seed,
        "best_epoch": result.best_epoch,
        "dev": figures,
    }
    save_model(output, ranker, tokenizer, recipe, facts, result.history)
    return Fit(result.best_epoch, figures, result.history, len(tokenizer), known)


def _with_measure(recipe: Recipe) -> Recipe:
    """The recipe with its dev measure under the name that trec_eval prints."""
    asked = recipe.training.dev_measure
    names = measure_names([asked])
    if len(names) > 1:
        several = ", ".join(names[:3])
        raise UsageError(f"training.dev_measure {asked!r}: expected one measure, not {several}, …")
    return replace(recipe, training=replace(recipe.training, dev_measure=names[0]))
