"""Training from Python: a collection and a preset in, a model out."""

import contextlib
import json
import logging
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from aptool.config import CHECKPOINT_MINUTES, Recipe
from aptool.errors import InputError
from aptool.formats.collection import CollectionFiles
from aptool.formats.location import Location, location
from aptool.library.arguments import (
    LONGEST_SECONDS,
    PathLike,
    check_choice,
    check_device,
    check_integer,
    check_list,
    check_number,
    check_path,
    check_text,
)
from aptool.library.where import Address, Where
from aptool.models.build import check_recipe
from aptool.models.device import pick_device
from aptool.models.model import check_model_folder
from aptool.models.start import training_recipe
from aptool.options import expected_without
from aptool.training.fit import Fit
from aptool.training.recorders import LOGS, Log, OnEpoch, fit_with_callbacks
from aptool.training.seeds import Seeds, check_seeds_folder, fit_seeds, summarize

if TYPE_CHECKING:
    from aptool.library.collection import Collection
    from aptool.library.model import Model

logger = logging.getLogger(__name__)

Value: TypeAlias = str | int | float | bool
Overrides: TypeAlias = Mapping[str, Value | Mapping[str, Value]] | Iterable[str]


def train(
    collection: "Collection | PathLike",
    preset: str | None = None,
    *,
    start: PathLike | None = None,
    teacher: PathLike | None = None,
    mixture: Iterable[PathLike] = (),
    seed: int = 0,
    output: PathLike | None = None,
    vectors: PathLike | None = None,
    set: Overrides = (),  # noqa: A002 - the option's name on the command line
    log: Log | None = None,
    on_epoch: OnEpoch | None = None,
    device: str = "auto",
    cluster: Address = None,
    workers: int | tuple[int, int] | None = None,
    gpus_per_worker: float | None = None,
    wait: float | None = None,
    checkpoint_minutes: float = CHECKPOINT_MINUTES,
) -> "Model":
    """Trains a system on a collection, as ``aptool train`` does.

    Args:
        collection: with the splits train and dev, by which the best epoch is picked; or its folder.
        preset: a system by name (``aptool.config.preset_names``), or a recipe file; None is ``ap-cnn``, or
            the recipe of the model to start from.
        start: a trained model of the same system whose weights training starts from; its vocabulary is grown
            by the new words.
        teacher: a run file with scores of the training pools, to learn from beside the labels;
            ``teacher.loss``, ``.weight`` and ``.scale`` of ``set`` say how.
        mixture: folders of further collections to train on.
        seed: random seed.
        output: the model folder. Called again with the same arguments after an interruption, training
            continues from its last checkpoint; where the model is whole, it is loaded. None is a temporary
            folder, removed with the model; ``Model.save`` keeps it.
        vectors: word vectors: a file, a folder or a hub name; ``learned`` or ``random``.
        set: options of the recipe to change: ``{"training.epochs": 5}``, ``{"training": {"epochs": 5}}`` or
            ``["training.epochs=5"]``.
        log: ``tensorboard``, ``mlflow`` or ``wandb``: record every epoch in files in ``logs``, for this tool.
        on_epoch: called after each epoch with its ``number``, ``loss``, ``dev`` (measures by name) and
            ``figures`` (every figure of the training history by name, such as ``seconds/train``). Epochs
            before an interruption are reported after training. An exception ends the training.
        device: ``auto`` (a GPU where there is one), ``cpu``, ``cuda`` or one such as ``cuda:1``.
        cluster: the address of a Ray cluster, True for that of RAY_ADDRESS (else ``auto``); None is this
            process.
        workers: number of worker processes of the cluster, or the least and the most, if nodes may leave and
            join; None is one per GPU, or one per node.
        gpus_per_worker: GPUs per worker; may be fractional. None is 1 on a cluster with GPUs, else 0.
        wait: seconds to wait for nodes or resources of the cluster; None is without end.
        checkpoint_minutes: time between two checkpoints within an epoch, beside those after each epoch; 0 is
            those alone.

    Returns:
        The model of the best epoch, on ``device`` (with a cluster, on what ``auto`` is here).

    Raises:
        AptoolError: the collection, the recipe, the device or the output is not what it should be.
    """
    from aptool.library.collection import Collection
    from aptool.library.model import Model

    opened = collection if isinstance(collection, Collection) else Collection(collection)
    recipe = build_recipe(preset, set=set, start=start, teacher=teacher, mixture=mixture, vectors=vectors)
    check_integer("seed", seed, 0, 1 << 63)
    if log is not None:
        check_choice("log", log, LOGS)
    if on_epoch is not None and not callable(on_epoch):
        raise InputError("on_epoch", value=on_epoch, expected="a function of an epoch")
    if output is not None:
        check_path("output", output, "a folder to write to (str or os.PathLike)")
    where = Where(check_device(device), cluster, workers, gpus_per_worker, wait)
    if where.on_cluster and output is None:
        raise InputError("output", value=None, expected="a folder on storage that all nodes share")
    check_number("checkpoint_minutes", checkpoint_minutes, 0, LONGEST_SECONDS // 60)
    with _folder(output) as folder:
        train_models(
            lambda: opened.opened,
            recipe,
            folder,
            where,
            seed=seed,
            log=log,
            on_epoch=on_epoch,
            checkpoint_minutes=checkpoint_minutes,
        )
        # The workers' device may not exist in this process.
        model = Model(folder, "auto" if where.on_cluster else where.device)
    if output is None:
        weakref.finalize(model, shutil.rmtree, str(folder.parent), ignore_errors=True)
    return model


def build_recipe(
    preset: str | None,
    *,
    set: Overrides = (),  # noqa: A002 - as ``train``
    start: PathLike | None = None,
    teacher: PathLike | None = None,
    mixture: Iterable[PathLike] = (),
    vectors: PathLike | None = None,
) -> Recipe:
    """The checked recipe of a training; see ``train`` for the arguments."""
    recipe = training_recipe(
        None if preset is None else check_text("preset", preset),
        _overrides(set),
        None if start is None else check_path("start", start, "a model folder (str or os.PathLike)"),
    )
    if mixture:
        recipe = recipe.with_mixture(_further(mixture))
    if vectors is not None:
        recipe = recipe.with_vectors(check_path("vectors", vectors))
    if teacher is not None:
        recipe = recipe.with_teacher(check_path("teacher", teacher, "a run file"))
    check_recipe(recipe)
    return recipe


def train_models(
    open_collection: Callable[[], CollectionFiles],
    recipe: Recipe,
    output: Location,
    where: Where,
    *,
    seed: int,
    seeds: int | None = None,
    log: Log | None = None,
    on_epoch: OnEpoch | None = None,
    checkpoint_minutes: float = CHECKPOINT_MINUTES,
) -> Seeds:
    """Trains a model into a folder, or one model per seed into ``OUTPUT/seedN``.

    Args:
        open_collection: opens the collection; called after the checks of the device and the output.
        recipe: from ``build_recipe``.
        output: the model folder, or the folder of the model folders.
        where: a device or a cluster.
        seed: the first seed.
        seeds: number of consecutive seeds; None trains one model into ``output`` itself.
        log: see ``train``.
        on_epoch: see ``train``.
        checkpoint_minutes: see ``train``.

    Returns:
        The result per seed, and their summary.
    """
    if not where.on_cluster:
        pick_device(where.device)
    if seeds is None:
        check_model_folder(output)
    else:
        check_seeds_folder(output)
    collection = open_collection()
    with where.connected() as place:
        trainer = place.trainer(checkpoint_minutes)

        def fit_seed(seed: int, folder: Location) -> Fit:
            if seeds is not None:
                logger.info(f"seed {seed}: {folder}")
            fit = partial(trainer, collection, recipe, folder, seed=seed)
            return fit_with_callbacks(fit, on_epoch, log, str(folder), recipe, seed)

        if seeds is None:
            return summarize({seed: fit_seed(seed, output)}, recipe.training.dev_measure)
        return fit_seeds(fit_seed, recipe, output, list(range(seed, seed + seeds)))


@contextlib.contextmanager
def _folder(output: PathLike | None) -> Iterator[Location]:
    """The model folder; a temporary one is removed if training fails."""
    if output is not None:
        yield location(check_path("output", output))
        return
    temporary = Path(tempfile.mkdtemp(prefix="aptool-"))
    try:
        yield temporary / "model"
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _further(mixture: object) -> list[str]:
    """The collections of ``mixture`` as a recipe has them."""
    if isinstance(mixture, Mapping):
        raise InputError(
            "mixture", problem="a dict of shares", expected=expected_without("a list of folders")
        )
    what = "the folder of a collection (str or os.PathLike)"
    folders = check_list("mixture", mixture, "a list of folders")
    return [str(check_path("mixture", folder, what)) for folder in folders]


def _overrides(options: object) -> list[str]:
    """Changes of a recipe as ``section.key=value``.

    Raises:
        InputError: they have another form.
    """
    form = "a dict {'section.key': value} or a list of 'section.key=value'"
    if not isinstance(options, Mapping):
        if isinstance(options, tuple | list) and not options:
            return []
        items = check_list("set", options, form)
        return [check_text("set", item, f"item {number}") for number, item in enumerate(items)]
    found = []
    for key, value in options.items():
        check_text("set", key, expected="a key 'section.key' (str)")
        inner = value.items() if isinstance(value, Mapping) else [(None, value)]
        for name, one in inner:
            whole = (
                key
                if name is None
                else f"{key}.{check_text('set', name, key, 'the name of an option (str)')}"
            )
            found.append(f"{whole}={_toml(whole, one)}")
    return found


def _toml(key: str, value: object) -> str:
    """A plain value as TOML has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(check_text("set", value, key), ensure_ascii=False)
    if isinstance(value, int | float):
        return repr(float(value) if isinstance(value, float) else int(value))
    raise InputError("set", place=key, value=value, expected="a str, an int, a float or a bool")
