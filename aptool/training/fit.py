"""Training of a model folder; an interrupted training resumes."""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch

from aptool.config import CHECKPOINT_MINUTES, Recipe
from aptool.data.collection import Collection
from aptool.documents import parse_json
from aptool.errors import InputError
from aptool.evaluation.names import measure_names
from aptool.models.build import check_recipe
from aptool.models.device import (
    check_precision,
    exact_products,
    memory_for,
    pick_device,
    seed_generators,
    to_device,
)
from aptool.models.hub import CONFIG
from aptool.models.initialization import TrainingTexts, check_start, initialize
from aptool.models.model import opened_folder, read_config, save_model
from aptool.outputs import EXPECTED, check_apart, check_output_folder, lock
from aptool.paths import Location, PathOrUrl, location
from aptool.progress import progress
from aptool.training.checkpoint import (
    VECTORS,
    CheckpointTimer,
    load_state,
    remove_state,
    save_state,
    stored_key,
    trained_key,
    training_folder,
    training_key,
)
from aptool.training.data import TRAIN, DevSet, all_texts, keep_states, read_training_texts, tokenize
from aptool.training.loop import MEMORY_HINT, Training
from aptool.training.process_group import SINGLE_PROCESS, ProcessGroup

logger = logging.getLogger(__name__)

DEV = "dev"  # the split that picks the best epoch


class Fit(NamedTuple):
    """The result of training."""

    best_epoch: int  # from 1; 0 without an epoch; with ``training.average_epochs``, the last epoch
    dev: dict[str, float]  # measures of the model
    history: list[dict[str, Any]]  # one entry per epoch

    @property
    def seconds(self) -> float:
        """Duration of all epochs, before and after interruptions."""
        return float(
            sum(sum(entry["seconds"].values()) - entry["seconds"]["mining"] for entry in self.history)
        )


def fit(
    collection: Collection,
    recipe: Recipe,
    output: PathOrUrl,
    *,
    seed: int = 0,
    vectors_cache: Location | None = None,
    device: torch.device | str = "auto",
    checkpoint_minutes: float = CHECKPOINT_MINUTES,
    overwrite: bool = False,
) -> Fit:
    """Train a system on the split train and write its model folder; the split dev picks the best epoch.

    The checkpoint is in ``OUTPUT.training`` until the model is saved. Called again with the same arguments,
    training resumes from the checkpoint; if the model is complete, nothing is trained. Another model or
    checkpoint there is an error, or replaced with ``overwrite``. Systems share learned
    vectors in the folder ``vectors_cache``. Within an epoch, a checkpoint is saved every
    ``checkpoint_minutes``; 0 saves none.
    """
    device = pick_device(str(device))
    task = check_training(collection, recipe, output, seed, device.type, overwrite=overwrite)
    with lock(training_folder(output)):
        return fit_in_group(
            task,
            device,
            vectors_cache=vectors_cache,
            checkpoint_minutes=checkpoint_minutes,
        )


class TrainingTask(NamedTuple):
    """A training that can start; see `check_training`."""

    collection: Collection
    recipe: Recipe
    output: PathOrUrl
    seed: int
    key: str  # hash of everything that decides the result


def fit_in_group(
    task: TrainingTask,
    device: torch.device,
    group: ProcessGroup = SINGLE_PROCESS,
    *,
    vectors_cache: Location | None = None,
    checkpoint_minutes: float = CHECKPOINT_MINUTES,
    is_preempted: Callable[[], bool] | None = None,
) -> Fit:
    """Train as ``fit`` does, in each process of a group; process 0 writes.

    ``is_preempted`` returns whether a machine of the group is about to be taken away.
    """
    collection, recipe, output, seed, key = task
    folder = training_folder(output)
    with group.together():
        check_precision("encoder.precision", recipe.encoder.get("precision", "fp32"), device)
    finished = group.in_first(already_trained, output, key)
    if finished is not None:
        return finished

    with group.together(), progress("reading"):
        texts = read_training_texts(collection, recipe)
    seed_generators(seed, device)
    exact_products()
    cache = vectors_cache if vectors_cache is not None else folder / VECTORS
    initial_texts = TrainingTexts(texts.all(), partial(all_texts, collection), seed, cache)
    with group.first_process_first(), progress("loading model"):
        # The other processes read the vectors that the first process learned.
        ranker, tokenizer, recipe, with_vectors = initialize(recipe, initial_texts)
    with group.together(), progress("tokenizing"):
        examples = tokenize(texts, tokenizer, recipe.text)
        dev = DevSet(collection, DEV, tokenizer, recipe.text)

    ranker.load_state_dict(group.broadcast(ranker.state_dict()))
    to_device(ranker, device)
    with (
        group.together(),
        progress("encoding texts"),
        memory_for("encoding the training texts", MEMORY_HINT),
    ):
        keep_states(ranker, [examples.questions, examples.answers, *dev.texts])

    epochs = recipe.training.epochs
    state = group.in_first(load_state, folder)
    if state is not None:
        position = f"after epoch {len(state.history)} of {epochs}"
        if state.within is not None:
            pairs = f"after {state.within.pairs:,} pairs"
            position = f"in epoch {len(state.history) + 1} of {epochs}, {pairs}"
        logger.info(f"{output}: resuming {position}")
    logger.info(
        f"{'training' if epochs else 'initialized'} {recipe.preset} on {len(examples.pairs)} pairs of "
        f"{len(examples.questions)} questions, {len(examples.answers)} answers "
        f"({examples.answers.truncated} truncated at "
        f"{recipe.text.max_answer_tokens} tokens), {len(tokenizer)} {tokenizer.unit} "
        f"({with_vectors} with vectors)"
    )
    timer = CheckpointTimer(checkpoint_minutes, is_preempted)
    training = Training(
        ranker, examples, dev, recipe.training, seed, resume_from=state, group=group, timer=timer
    )
    with timer.deferring_termination():
        for state in training.states():
            group.in_first(save_state, folder, key, state)
            timer.restart()
            timer.terminate()
    measures = training.finish()
    metadata = {
        "collection": collection.name,
        "fingerprint": collection.fingerprint,
        "seed": seed,
        "key": key,
        "best_epoch": training.best_epoch,
        "dev": measures,
        "words_with_vectors": with_vectors,
        "dev_words_unknown": dev.unknown,
    }
    group.in_first(save_model, output, ranker, tokenizer, recipe, metadata, training.history)
    group.in_first(remove_state, output)
    return Fit(training.best_epoch, measures, training.history)


def check_training(
    collection: Collection,
    recipe: Recipe,
    output: PathOrUrl,
    seed: int,
    device_type: str = "cpu",
    *,
    overwrite: bool = False,
) -> TrainingTask:
    """Raise, before any work, if training cannot start on any device of a type, or would replace an output.

    The recipe of the result has the printed name of its dev measure.
    """
    check_recipe(recipe)
    if recipe.start.model:
        check_start(recipe)
        check_apart(location(output) / CONFIG, [location(recipe.start.model) / CONFIG])
    (name,) = measure_names([recipe.training.dev_measure])
    folder = training_folder(output)
    if DEV not in collection.splits:
        names_of_splits = ", ".join(collection.splits)
        expected = f"one of {names_of_splits} (`aptool data folds` splits questions into train and dev)"
        raise InputError(collection.path, problem=f"split {DEV!r}", expected=expected)
    collection.qrels_file(DEV)
    collection.qrels_file(TRAIN)
    recipe = replace(recipe, training=replace(recipe.training, dev_measure=name))
    key = training_key(collection, recipe, seed, device_type)
    if trained_key(output) != key:
        check_output_folder(output, overwrite=overwrite)
        if stored_key(folder) not in (None, key):
            if not overwrite:
                problem = "the checkpoint of another training (recipe, seed, collection or versions differ)"
                raise InputError(folder, problem=problem, expected=EXPECTED)
            remove_state(output)
    return TrainingTask(collection, recipe, output, seed, key)


def already_trained(output: PathOrUrl, key: str) -> Fit | None:
    """Return the result of a completed training with this key, or None."""
    if trained_key(output) != key:
        return None
    with opened_folder(output) as path:
        config = read_config(path / CONFIG)
        lines = (path / "training" / "history.jsonl").read_text(encoding="utf-8").splitlines()
    training = config["training"]
    remove_state(output)
    logger.info(f"{output}: up to date: same recipe, data and seed. Delete the folder to train again.")
    return Fit(training["best_epoch"], training["dev"], [parse_json(line, path) for line in lines])
