"""The public functions `score`, `bm25_run` and `train`, and where they run: on a device or a Ray cluster."""

import logging
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from aptool.arguments import (
    LONGEST_SECONDS,
    PathLike,
    check_device,
    check_integer,
    check_number,
    check_one_word,
    check_path,
    check_text,
)
from aptool.config import CHECKPOINT_MINUTES, DEFAULT_PRESET, Overrides, Recipe, load_recipe
from aptool.environment import requiring_torch
from aptool.errors import InputError, UsageError
from aptool.paths import Location, location, with_home

if TYPE_CHECKING:
    from aptool.cluster.connection import Cluster, Resources, Workers
    from aptool.data.collection import Collection
    from aptool.data.pools import AnyPools
    from aptool.data.runs import Run
    from aptool.experiments.side_by_side import Processes
    from aptool.scoring.model import Model
    from aptool.scoring.run import ScoredRun
    from aptool.scoring.systems import System
    from aptool.training.fit import Fit

logger = logging.getLogger(__name__)

# Address of a cluster; True for RAY_ADDRESS (auto if unset), None for this process.
Address: TypeAlias = str | bool | None

# Trials of a matrix at the same time.
Jobs: TypeAlias = int | Literal["auto"] | None

_MODEL = "a model folder (str or os.PathLike) or a Model"


@dataclass(frozen=True)
class Where:
    """Where a job runs: a device of this machine, or workers of a Ray cluster."""

    device: str = "auto"
    cluster: Address = None
    workers: "Workers" = None  # a number, or a minimum and a maximum
    gpus_per_worker: float | None = None  # may be fractional

    def __post_init__(self) -> None:
        workers = self.workers if isinstance(self.workers, tuple) else (self.workers,)
        for number in workers:
            if number is not None:
                check_integer("workers", number, 1)
        if isinstance(self.workers, tuple) and (len(workers) != 2 or self.workers[0] > self.workers[1]):
            value = ":".join(map(str, workers))
            raise UsageError(f"workers {value}: expected a minimum, and a maximum of at least the minimum")
        gpus = self.gpus_per_worker
        if gpus is not None:
            check_number("gpus_per_worker", gpus, 0, 1 << 20)
            if gpus > 1 and gpus != int(gpus):
                raise UsageError(f"gpus_per_worker {gpus:g}: expected at most 1, or a whole number")
        if not self.on_cluster:
            for argument in ("workers", "gpus_per_worker"):
                if getattr(self, argument) is not None:
                    raise UsageError(f"{argument}: requires cluster")

    @property
    def on_cluster(self) -> bool:
        """Whether the job runs on a cluster."""
        return self.cluster is not None and self.cluster is not False

    @contextmanager
    def connected(self) -> "Iterator[Cluster | None]":
        """Connect to the cluster while the block runs, and yield it; None is this process."""
        if not self.on_cluster:
            yield None
            return
        address = ""
        if self.cluster is not True:
            address = check_text("cluster", self.cluster, expected="True or an address (str)")

        from aptool.cluster.connection import connect

        with connect(address) as cluster:
            yield cluster

    def processes(self, cluster: "Cluster | None", jobs: Jobs) -> "Processes | None":
        """The processes of parallel trials, or None for serial trials.

        ``auto`` is one trial per core or GPU of this machine, None is one. On a cluster both are as many as
        fit.
        """
        if cluster is not None:
            from aptool.cluster.tasks import ClusterProcesses

            return ClusterProcesses(cluster, self.each(cluster), None if jobs == "auto" else jobs)
        if jobs is None or jobs == 1:
            return None
        from aptool.experiments.side_by_side import LocalProcesses, automatic_jobs

        return LocalProcesses(automatic_jobs(self.device) if jobs == "auto" else jobs)

    def each(self, cluster: "Cluster") -> "Resources":
        """The resources of a worker of training, or of a trial."""
        from aptool.cluster.connection import worker_resources

        return worker_resources(cluster, self.device, self.gpus_per_worker)


def score(
    pools: "AnyPools",
    model: "Model | System | PathLike",
    output: PathLike,
    *,
    answers: PathLike | None = None,
    tag: str | None = None,
    device: str = "auto",
    overwrite: bool = False,
    cluster: Address = None,
    workers: "Workers" = None,
    gpus_per_worker: float | None = None,
) -> "ScoredRun":
    """Score pools into a TREC run file, as ``aptool score`` does, a few units of work in memory at a time.

    A unit is consecutive row groups, or a part of a large one. After an interruption, a call with the same
    arguments resumes; a complete run of the same arguments is left as it is.

    Args:
        pools: ``Pools``, a table as for `Pools`, or files, folders, globs or URLs of pools.
        model: a model folder or a name on the Hugging Face hub; a `Model`, for which `load` has further
            settings; another system; or a baseline, ``"bm25"`` (see `bm25_run`) or ``"random"`` (scores from
            the ids, with seed 0). Write ``"./bm25"`` for a model folder with that name.
        output: the run: a TREC file, gzip if the name ends in ``.gz``; a table if it ends in ``.parquet``; a
            folder of parts of either form if it ends in a slash, as for `Run.save`.
        answers: file of the answers that the pools share. Default: ``answers.parquet`` next to the pools.
        tag: the name of the run in the file, one word. Default: the preset of the model.
        device: device of a model folder, as for `load`.
        overwrite: replace an existing run, and remove the parts of other arguments.
        cluster: address of a Ray cluster, or True for RAY_ADDRESS (``auto`` if unset). Default: no cluster.
        workers: number of worker processes of the cluster, or a minimum and a maximum: nodes may join and
            leave. Default: as many as fit.
        gpus_per_worker: GPUs per worker, may be fractional. Default: 1 if the cluster has GPUs, else 0.

    Returns:
        Statistics such as ``pairs`` (number of scores), ``truncated`` (number of truncated answers),
        ``units`` (units of work), ``resumed`` (units of an earlier call) and ``seconds``.

    Example:
        >>> result = aptool.score("data/wikiqa/dev.pools.parquet", "models/wikiqa", "dev.run")
        >>> result.pairs
        120
        >>> aptool.Run.load("dev.run")
        Run('ap-cnn': 20 questions, 120 candidates)
    """
    from aptool.data.pools import as_pools
    from aptool.scoring.run import score_files

    where = Where(check_device(device), cluster, workers, gpus_per_worker)
    path = check_path("output", output)
    if tag is not None:
        check_one_word("tag", check_text("tag", tag))
    pools = as_pools(pools, answers)
    system = _system(model, where)
    with pools.on_disk() as files, where.connected() as ray_cluster:
        executor = None
        if ray_cluster is not None:
            from aptool.cluster.score import ClusterExecutor

            executor = ClusterExecutor(ray_cluster, workers=workers, gpus_per_worker=gpus_per_worker)
        return score_files(
            files.units,
            system,
            path,
            executor,
            tag=tag,
            answers=files.answers,
            overwrite=overwrite,
        )


def _system(model: "Model | System | PathLike", where: Where) -> "System":
    """Return the system that a user means by ``model``."""
    from aptool.scoring.systems import BASELINES, System, baseline

    if isinstance(model, System):
        return model
    if isinstance(model, str) and model in BASELINES:
        if Path(model).exists():
            logger.info(f"{model}: the untrained system; for the model folder write ./{model}")
        return baseline(model)
    with requiring_torch("a model"):
        from aptool.scoring.model import Model
        from aptool.scoring.model_system import model_system

    if not isinstance(model, Model):
        return model_system(check_path("model", model, _MODEL), device=where.device)
    return replace(model.system, device=where.device, model=None) if where.on_cluster else model.system


def bm25_run(pools: "AnyPools") -> "Run":
    """Score pools with BM25 (Lucene's variant, k1 = 1.2, b = 0.75), as a run with the tag ``bm25``.

    Document frequencies are counted over the distinct answers of the pools. ``aptool.score(pools, "bm25",
    "bm25.run")`` writes the same run to a file.

    Args:
        pools: the pools to score, as for `score`.

    Example:
        >>> pool = "who wrote it?", {"a": "Nobody knows.", "b": "She wrote it."}
        >>> aptool.bm25_run(aptool.Pools({"q1": pool})).to_polars()["answer_id"].to_list()
        ['b', 'a']
    """
    from aptool.data.pools import as_pools
    from aptool.data.runs import run_of_scores
    from aptool.scoring.run import score_in_memory
    from aptool.scoring.systems import baseline

    system = baseline("bm25")
    with as_pools(pools).on_disk() as files:
        return run_of_scores(*score_in_memory(files.units, system, answers=files.answers))


def train(
    collection: "Collection | PathLike",
    preset: str | None = None,
    *,
    start: PathLike | None = None,
    seed: int = 0,
    output: PathLike | None = None,
    overwrite: bool = False,
    set: Overrides = (),  # noqa: A002 - the option's name on the command line
    device: str = "auto",
    cluster: Address = None,
    workers: int | tuple[int, int] | None = None,
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
        set: options of the recipe: ``{"training.epochs": 5}`` or ``["training.epochs=5"]``.
            ``vectors.source`` names the word vectors.
        device: ``auto`` (a GPU if there is one), ``cpu``, ``cuda`` or a GPU such as ``cuda:1``.
        cluster: address of a Ray cluster, or True for RAY_ADDRESS (``auto`` if unset). Default: no cluster.
        workers: number of worker processes of the cluster, or a minimum and a maximum for elastic training.
            Default: one per GPU, or one per node without GPUs.

    Returns:
        The model of the best epoch, on ``device`` (after training on a cluster, on ``auto``).

    Example:
        >>> data = aptool.Collection("data/wikiqa")
        >>> model = aptool.train(data, preset="ap-cnn", seed=1, set={"training.epochs": 1})
        >>> model.save("models/mine")
        >>> model.preset, list(model.dev)
        ('ap-cnn', ['MAP', 'MRR', 'P@1'])
    """
    from aptool.data.collection import Collection

    with requiring_torch("aptool.train"):
        from aptool.scoring.model import Model

    opened = collection if isinstance(collection, Collection) else Collection(collection)
    recipe = build_recipe(preset, set=set, start=start)
    where = Where(check_device(device), cluster, workers)
    if output is not None:
        folder = location(check_path("output", output, "a folder to write to (str or os.PathLike)"))
    elif where.on_cluster:
        raise InputError("output", value=None, expected="a folder on storage that all nodes share")
    else:
        folder = Path(tempfile.mkdtemp(prefix="aptool-")) / "model"
    try:
        train_recipe(opened, recipe, folder, where, seed=seed, overwrite=overwrite)
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
    vectors: str | None = None,
) -> Recipe:
    """Build and validate the recipe of a training from the arguments of ``train``, and word vectors."""
    from aptool.models.build import check_recipe

    if preset is not None:
        preset = with_home(check_text("preset", preset))
    if start is None:
        recipe = load_recipe(DEFAULT_PRESET if preset is None else preset, set)
    else:
        from aptool.models.initialization import training_recipe

        folder = check_path("start", start, "a model folder (str or os.PathLike)")
        recipe = training_recipe(preset, set, folder)
    if vectors is not None:
        recipe = replace(recipe, vectors=replace(recipe.vectors, source=check_path("vectors", vectors)))
    check_recipe(recipe)
    return recipe


def train_recipe(
    collection: "Collection",
    recipe: Recipe,
    output: Location,
    where: Where,
    *,
    seed: int,
    checkpoint_minutes: float = CHECKPOINT_MINUTES,
    overwrite: bool = False,
) -> "Fit":
    """Train a model into ``output``; called again, it resumes."""
    check_integer("seed", seed, 0, 1 << 63)
    check_number("checkpoint_minutes", checkpoint_minutes, 0, LONGEST_SECONDS // 60)
    settings: dict[str, Any] = {
        "seed": seed,
        "checkpoint_minutes": checkpoint_minutes,
        "overwrite": overwrite,
    }
    with where.connected() as cluster:
        if cluster is None:
            from aptool.training.fit import fit

            return fit(collection, recipe, output, device=where.device, **settings)
        from aptool.cluster.train import fit_on_cluster

        workers, each = where.workers, where.each(cluster)
        return fit_on_cluster(
            collection, recipe, output, cluster=cluster, workers=workers, each=each, **settings
        )
