"""From a collection and a recipe to a model folder; after an interruption, from the last epoch."""

import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

from aptool.config import Recipe
from aptool.errors import AptoolError, InputError, UsageError
from aptool.evaluation.measures import measure_names
from aptool.formats.atomic import check_folder
from aptool.formats.collection import Collection
from aptool.models.encoder import Corpus
from aptool.models.model import CONFIG, WEIGHTS, save_model
from aptool.models.ranker import Ranker, build_ranker, check_recipe, initialize
from aptool.training.checkpoint import (
    STATE,
    VECTORS,
    load_state,
    remove_leftovers,
    remove_state,
    save_state,
    trained_key,
    training_folder,
    training_key,
)
from aptool.training.data import read_texts, split_texts, tokenized
from aptool.training.dev import DevSet
from aptool.training.loop import State, train
from aptool.training.process_group import SINGLE_PROCESS, ProcessGroup

logger = logging.getLogger(__name__)

T = TypeVar("T")

# How far the dev figures of a restored state may be from those written down with it. On the same machine they
# are equal; on another one two candidates with almost the same score may change places.
RESTORED_WITHIN = 2e-3


class Fit(NamedTuple):
    """What came of training."""

    best_epoch: int
    dev: dict[str, float]  # of the best epoch; of the system as it began, if there was none
    history: list[dict[str, Any]]
    words: int  # in the vocabulary
    words_with_vectors: int
    dev_words_unknown: float  # share of dev's running words that are not in the vocabulary

    @property
    def seconds(self) -> float:
        """What all epochs took, before and after interruptions."""
        return float(
            sum(sum(entry["seconds"].values()) - entry["seconds"]["mining"] for entry in self.history)
        )


def fit(
    collection: Collection,
    recipe: Recipe,
    output: str | Path,
    *,
    seed: int = 0,
    train_split: str = "train",
    dev_split: str = "dev",
    vectors_cache: Path | None = None,
    device: torch.device | str = "cpu",
    group: ProcessGroup = SINGLE_PROCESS,
) -> Fit:
    """Trains a system on a collection and writes its model folder.

    The state after each epoch stands in ``OUTPUT.training`` until the model is whole. Called again with the
    same arguments it goes on from there, and where the model is whole it trains nothing.

    Args:
        collection: with a split to train on and a split to pick the best epoch by.
        recipe: the system and the procedure.
        output: the model folder.
        seed: of everything that is drawn.
        train_split: the split to train on.
        dev_split: the split to judge epochs by.
        vectors_cache: a folder for learned vectors, so that systems that start from the same ones learn
            them once.
        device: where to train.
        group: the processes that train together; each calls this with the same arguments, and the first one
            writes.

    Raises:
        InputError: a file or the recipe is not what it should be, or the output cannot be written.
        UsageError: the dev measure is not one.
        AptoolError: what was restored of an earlier training does not do what it did then.
    """
    splits = (train_split, dev_split)
    recipe, key = _together(group, lambda: check_training(collection, recipe, output, seed, splits, device))
    folder = training_folder(output)
    done = group.broadcast(
        _together(group, lambda: already_trained(output, key) if group.rank == 0 else None)
    )
    if done is not None:
        return done
    if group.rank == 0:
        if (Path(output) / WEIGHTS).is_file():
            logger.info(
                f"{output}: the model there, of another recipe, seed, collection or version, is replaced"
            )
        remove_leftovers(output)
    texts = _together(group, lambda: read_texts(collection, train_split))
    torch.manual_seed(seed)
    cache = vectors_cache if vectors_cache is not None else folder / VECTORS
    corpus = Corpus(texts.all(), partial(_every_text, collection), seed, cache)
    initial = _in_turn(group, lambda: initialize(recipe, corpus))
    tokenizer, recipe = initial.tokenizer, initial.recipe
    examples = tokenized(texts, tokenizer, recipe.text)
    dev = _together(group, lambda: DevSet(collection, dev_split, tokenizer, recipe.text))
    ranker = build_ranker(recipe, *initial.shape)
    known = initial.load_weights(ranker)
    ranker.load_state_dict(group.broadcast(ranker.state_dict()))
    ranker.to(device)

    def evaluate(ranker: Ranker) -> dict[str, float]:
        return dev.measures(ranker, recipe.training.dev_measure, group)

    def keep(state: State) -> None:
        _together(group, lambda: save_state(folder, key, state) if group.rank == 0 else None)

    state = group.broadcast(_together(group, lambda: load_state(folder, key) if group.rank == 0 else None))
    if state is not None:
        ranker.load_state_dict(state.weights)
        _verify_restored(evaluate(ranker.eval()), state, folder)
        logger.info(f"{folder}: going on after epoch {len(state.history)} of {recipe.training.epochs}")
    elif (folder / STATE).is_file():
        logger.info(
            f"{folder}: left by another training (recipe, seed, collection or versions differ): "
            "training from the beginning"
        )
    logger.info(
        f"training {recipe.preset} on {len(examples.pairs)} pairs of {len(examples.questions)} questions, "
        f"{len(examples.answers)} answers ({examples.answers.truncated} cut at "
        f"{recipe.text.max_answer_tokens} tokens), {len(tokenizer)} {tokenizer.unit} ({known} with vectors)"
    )
    result = train(
        ranker,
        examples,
        recipe.training,
        seed=seed,
        evaluate=evaluate,
        start=state,
        keep=keep,
        group=group,
    )
    # Where no epoch was asked for, of the system as it comes.
    best = result.best_epoch
    figures = result.history[best - 1]["dev"] if best else evaluate(ranker.eval())
    facts = {
        "collection": collection.name,
        "fingerprint": collection.fingerprint,
        "seed": seed,
        "key": key,
        "best_epoch": best,
        "dev": figures,
        "words_with_vectors": known,
        "dev_words_unknown": dev.unknown,
    }

    def save() -> None:
        if group.rank == 0:
            save_model(output, ranker, tokenizer, recipe, facts, result.history)
            remove_state(output)

    _together(group, save)
    return Fit(best, figures, result.history, len(tokenizer), known, dev.unknown)


def check_training(
    collection: Collection,
    recipe: Recipe,
    output: str | Path,
    seed: int,
    splits: tuple[str, str] = ("train", "dev"),
    device: torch.device | str = "cpu",
) -> tuple[Recipe, str]:
    """Finds out before any work whether training can begin.

    Returns:
        The recipe with its dev measure under the name that trec_eval prints, and the training's key.

    Raises:
        InputError: a split, the recipe or the output is not what it should be.
        UsageError: the dev measure is not one.
    """
    check_recipe(recipe)
    recipe = _with_measure(recipe)
    options = recipe.training
    if options.shared_draw and options.negatives == "pool":
        wanted = "training.negatives=corpus or mix: draws from a question's own pool cannot be shared"
        raise InputError(recipe.preset, place="training.shared_draw", value=True, expected=wanted)
    check_folder(output, WEIGHTS)
    folder = training_folder(output)
    if folder.exists() and not folder.is_dir():
        raise InputError(
            folder, problem="a file", expected="a folder for the state of training, or nothing yet"
        )
    for split in splits:
        collection.qrels(split)
    return recipe, training_key(collection, recipe, seed, splits, torch.device(device).type)


def already_trained(output: str | Path, key: str) -> Fit | None:
    """What came of an earlier training with this key, if its model folder is whole, which is said."""
    path = Path(output)
    if trained_key(path) != key or not (path / WEIGHTS).is_file():
        return None
    config = json.loads((path / CONFIG).read_text(encoding="utf-8"))
    training = config["training"]
    lines = (path / "training" / "history.jsonl").read_text(encoding="utf-8").splitlines()
    remove_state(path)
    logger.info(
        f"{output}: already trained, by this recipe on this collection; remove the folder to train anew"
    )
    return Fit(
        training["best_epoch"],
        training["dev"],
        [json.loads(line) for line in lines],
        config["vocabulary"],
        training["words_with_vectors"],
        training["dev_words_unknown"],
    )


def _every_text(collection: Collection) -> Iterator[str]:
    for split in collection.splits:
        yield from split_texts(collection, split)


def _verify_restored(figures: dict[str, float], state: State, folder: Path) -> None:
    """Holds the dev figures of restored weights against those written down with them."""
    recorded = state.history[-1]["dev"]
    for name, value in recorded.items():
        if not abs(figures[name] - value) <= RESTORED_WITHIN:
            raise AptoolError(
                f"{folder}: the weights of epoch {len(state.history)} have dev {name} {figures[name]:.4f}: "
                f"expected {value:.4f} as recorded with them; remove the folder to train from the beginning"
            )


def _together(group: ProcessGroup, work: Callable[[], T]) -> T:
    """Does a piece of work in every process; what goes wrong in one of them is raised in all."""
    problem, result = None, None
    try:
        result = work()
    except AptoolError as error:
        problem = error
    group.check(problem)
    return result  # type: ignore[return-value]  # there is one where there was no problem


def _in_turn(group: ProcessGroup, work: Callable[[], T]) -> T:
    """Does it in the first process before the others, which then find what it left on disk."""
    result = _together(group, lambda: work() if group.rank == 0 else None)
    after = _together(group, lambda: work() if group.rank > 0 else None)
    return result if result is not None else after  # type: ignore[return-value]


def _with_measure(recipe: Recipe) -> Recipe:
    """The recipe with its dev measure under the name that trec_eval prints."""
    asked = recipe.training.dev_measure
    names = measure_names([asked])
    if len(names) > 1:
        several = ", ".join(names[:3])
        raise UsageError(f"training.dev_measure {asked!r}: expected one measure, not {several}, …")
    return replace(recipe, training=replace(recipe.training, dev_measure=names[0]))
