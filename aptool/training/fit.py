"""Trains a model folder from a collection and a recipe; an interrupted training resumes."""

import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch

from aptool.config import CHECKPOINT_MINUTES, Recipe
from aptool.documents import parse_json, read_json
from aptool.errors import AptoolError
from aptool.formats.claim import claimed_folder
from aptool.formats.collection import CollectionFiles
from aptool.formats.location import Location, PathOrUrl
from aptool.models.build import build_ranker
from aptool.models.device import pick_device, to_device
from aptool.models.initialization import Corpus
from aptool.models.model import CONFIG, has_model, opened_folder, save_model
from aptool.models.ranker import Ranker
from aptool.models.start import initial_system
from aptool.progress import get_progress
from aptool.text.tokenizer import TextTokenizer
from aptool.training.checkpoint import (
    STATE,
    VECTORS,
    TrainingState,
    clean_up,
    load_state,
    remove_state,
    save_state,
    trained_key,
    training_folder,
)
from aptool.training.checks import check_training
from aptool.training.data import TrainingSet, tokenize
from aptool.training.dev import DevSet
from aptool.training.frozen_states import keep_states
from aptool.training.loop import train
from aptool.training.negatives import read_teacher
from aptool.training.process_group import SINGLE_PROCESS, ProcessGroup
from aptool.training.texts import all_texts, read_mixture

logger = logging.getLogger(__name__)

# Largest difference between the dev figures of restored weights and those recorded with them. On the same
# machine they are equal; on another one, candidates with almost equal scores may swap ranks.
RESTORED_TOLERANCE = 2e-3


class Fit(NamedTuple):
    """The result of training.

    Attributes:
        best_epoch: from 1; 0 if there was no epoch; with ``training.average_epochs``, the last one.
        dev: measures of the model, which is the initial weights if there was no epoch.
        history: one entry an epoch.
        words: size of the vocabulary.
        words_with_vectors: words that started from a vector.
        dev_words_unknown: fraction of the dev split's tokens that are not in the vocabulary.
    """

    best_epoch: int
    dev: dict[str, float]
    history: list[dict[str, Any]]
    words: int
    words_with_vectors: int
    dev_words_unknown: float

    @property
    def seconds(self) -> float:
        """Duration of all epochs, before and after interruptions."""
        return float(
            sum(sum(entry["seconds"].values()) - entry["seconds"]["mining"] for entry in self.history)
        )


def fit(
    collection: CollectionFiles,
    recipe: Recipe,
    output: PathOrUrl,
    *,
    seed: int = 0,
    train_split: str = "train",
    dev_split: str = "dev",
    vectors_cache: Location | None = None,
    device: torch.device | str = "auto",
    checkpoint_minutes: float = CHECKPOINT_MINUTES,
    group: ProcessGroup = SINGLE_PROCESS,
    check_claim: Callable[[], None] | None = None,
    after_checkpoint: Callable[[], None] | None = None,
) -> Fit:
    """Trains a system on a collection and writes its model folder.

    The last state is kept in ``OUTPUT.training`` until the model is saved. Called again with the same
    arguments, training resumes from there; if the model is complete, nothing is trained.

    Args:
        collection: with a training split and a dev split.
        recipe: the system and the training procedure.
        output: the model folder.
        seed: random seed of initialization, shuffling, sampling and dropout.
        train_split: the split to train on.
        dev_split: the split that picks the best epoch.
        vectors_cache: a folder for learned vectors, so that systems with the same ones learn them once.
        device: ``auto`` is a GPU where there is one.
        checkpoint_minutes: time between two states that are saved within an epoch, besides those after each
            epoch; 0 saves none.
        group: the processes that train together; each calls this with the same arguments, process 0 writes.
        check_claim: where another process has claimed the output for these, raises if it no longer holds the
            claim: called before a checkpoint or the model is written. None claims the output here.
        after_checkpoint: called in process 0 after each checkpoint but that of the last epoch; an
            ``AptoolError`` that it raises ends the training there, in all processes.
    """
    with group.together():
        device = pick_device(str(device))
        splits = (train_split, dev_split)
        recipe, key = check_training(collection, recipe, output, seed, splits, device)
    with contextlib.ExitStack() as claims:
        if check_claim is None:
            check_claim = claims.enter_context(claimed_folder(training_folder(output), output)).check
        run = _Run(
            collection=collection,
            recipe=recipe,
            output=output,
            key=key,
            seed=seed,
            splits=splits,
            vectors_cache=vectors_cache,
            device=device,
            checkpoint_minutes=checkpoint_minutes,
            group=group,
            check_claim=check_claim,
            after_checkpoint=after_checkpoint,
        )
        return _fit(run)


class _Run(NamedTuple):
    """A call of ``fit`` after ``check_training``, which gives its key, to an output that is claimed."""

    collection: CollectionFiles
    recipe: Recipe
    output: PathOrUrl
    key: str
    seed: int
    splits: tuple[str, str]
    vectors_cache: Location | None
    device: torch.device
    checkpoint_minutes: float
    group: ProcessGroup
    check_claim: Callable[[], None]
    after_checkpoint: Callable[[], None] | None

    @property
    def folder(self) -> Location:
        """Where checkpoints are."""
        return training_folder(self.output)


class _Prepared(NamedTuple):
    """What is trained, on what; the recipe as the vectors or the model that training starts from have it."""

    ranker: Ranker
    recipe: Recipe
    tokenizer: TextTokenizer
    words_with_vectors: int
    examples: TrainingSet
    dev: DevSet


def _fit(run: _Run) -> Fit:
    group = run.group
    with group.together():
        trained = already_trained(run.output, run.key) if group.rank == 0 else None
        if trained is None and group.rank == 0:
            _prepare_output(run.output)
    trained = group.broadcast(trained)
    if trained is not None:
        return trained

    ranker, recipe, tokenizer, with_vectors, examples, dev = _prepare(run)

    def evaluate(ranker: Ranker) -> dict[str, float]:
        return dev.measures(ranker, recipe.training.dev_measure, group)

    def save(state: TrainingState) -> None:
        with group.together():
            if group.rank == 0:
                run.check_claim()
                save_state(run.folder, run.key, state)

    def after_saving() -> None:
        if run.after_checkpoint is not None:
            with group.together():
                if group.rank == 0:
                    run.after_checkpoint()

    state = _restore(run, ranker, evaluate)
    logger.info(
        f"training {recipe.preset} on {len(examples.pairs)} pairs of {len(examples.questions)} questions, "
        f"{len(examples.answers)} answers ({examples.answers.truncated} truncated at "
        f"{recipe.text.max_answer_tokens} tokens), {len(tokenizer)} {tokenizer.unit} "
        f"({with_vectors} with vectors)"
    )
    best_epoch, history, figures = train(
        ranker,
        examples,
        recipe.training,
        seed=run.seed,
        evaluate=evaluate,
        resume_from=state,
        save=save,
        after_saving=after_saving,
        checkpoint_minutes=run.checkpoint_minutes,
        group=group,
    )
    facts = {
        "collection": run.collection.name,
        "fingerprint": run.collection.fingerprint,
        "seed": run.seed,
        "key": run.key,
        "best_epoch": best_epoch,
        "dev": figures,
        "words_with_vectors": with_vectors,
        "dev_words_unknown": dev.unknown,
    }
    with group.together():
        if group.rank == 0:
            run.check_claim()
            save_model(run.output, ranker, tokenizer, recipe, facts, history)
            remove_state(run.output)
    return Fit(best_epoch, figures, history, len(tokenizer), with_vectors, dev.unknown)


def _prepare(run: _Run) -> _Prepared:
    """Reads and tokenizes the collection, and builds the ranker with its initial weights, on its device."""
    group, (train_split, dev_split) = run.group, run.splits
    with group.together(), get_progress().task("reading"):
        texts = read_mixture(run.collection, run.recipe, train_split)
        teacher = read_teacher(run.collection, run.recipe, train_split)
    torch.manual_seed(run.seed)
    cache = run.vectors_cache if run.vectors_cache is not None else run.folder / VECTORS
    corpus = Corpus(texts.all(), partial(all_texts, run.collection, run.recipe), run.seed, cache)
    with group.first_process_first(), get_progress().task("loading model"):
        # The other processes find the vectors of the first in the cache.
        initial = initial_system(run.recipe, corpus)
    tokenizer, recipe = initial.tokenizer, initial.recipe
    with get_progress().task("tokenizing"):
        examples = tokenize(texts, tokenizer, recipe.text, teacher)
    with group.together(), get_progress().task("tokenizing"):
        dev = DevSet(run.collection, dev_split, tokenizer, recipe.text)

    ranker = build_ranker(recipe, *initial.spec)
    with_vectors = initial.load_weights(ranker)
    ranker.load_state_dict(group.broadcast(ranker.state_dict()))
    to_device(ranker, run.device)
    with group.together(), get_progress().task("encoding texts"):
        keep_states(ranker, [examples.questions, examples.answers, *dev.texts])
    return _Prepared(ranker, recipe, tokenizer, with_vectors, examples, dev)


def _restore(
    run: _Run, ranker: Ranker, evaluate: Callable[[Ranker], dict[str, float]]
) -> TrainingState | None:
    """The state that this training was interrupted in; weights of a whole epoch are evaluated again."""
    group, folder = run.group, run.folder
    with group.together():
        state = load_state(folder, run.key) if group.rank == 0 else None
    state = group.broadcast(state)
    if state is not None:
        place = f"after epoch {len(state.history)} of {run.recipe.training.epochs}"
        if state.within is None:
            ranker.load_state_dict(state.weights)
            _verify_restored(evaluate(ranker.eval()), state, folder)
        else:
            place = f"in epoch {len(state.history) + 1} of {run.recipe.training.epochs}"
            place += f", after {state.within.pairs:,} pairs"
        logger.info(f"{folder}: resuming {place}")
    elif (folder / STATE).is_file():
        logger.info(
            f"{folder}: left by another training (recipe, seed, collection or versions differ): "
            "training from the beginning"
        )
    return state


def already_trained(output: PathOrUrl, key: str, *, log: bool = True) -> Fit | None:
    """The result of an earlier training with this key; None if there is no such complete model."""
    if trained_key(output) != key or not has_model(output):
        return None
    with opened_folder(output) as path:
        config = read_json(path / CONFIG)
        lines = (path / "training" / "history.jsonl").read_text(encoding="utf-8").splitlines()
    training = config["training"]
    remove_state(output)
    if log:
        logger.info(
            f"{output}: already trained, by this recipe on this collection; remove the folder to train anew"
        )
    return Fit(
        training["best_epoch"],
        training["dev"],
        [parse_json(line, path) for line in lines],
        config["vocabulary"],
        training["words_with_vectors"],
        training["dev_words_unknown"],
    )


def _prepare_output(output: PathOrUrl) -> None:
    """Announces that another model is replaced, and removes temporary files of a killed training."""
    if has_model(output):
        logger.info(f"{output}: replacing its model, of another recipe, seed, collection or version")
    clean_up(output)


def _verify_restored(figures: dict[str, float], state: TrainingState, folder: Location) -> None:
    """Compares the dev figures of restored weights with those recorded with them."""
    recorded = state.history[-1]["dev"]
    for name, value in recorded.items():
        if not abs(figures[name] - value) <= RESTORED_TOLERANCE:
            raise AptoolError(
                f"{folder}: the weights of epoch {len(state.history)} have dev {name} {figures[name]:.4f}; "
                f"expected {value:.4f} as recorded with them; remove the folder to train from the beginning"
            )
