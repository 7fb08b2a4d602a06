"""Scoring on a Ray cluster: Ray Data distributes the units of a run over a pool of workers.

Ray retries a unit when its worker or node is lost; a unit that is scored twice counts once (see
``cluster.worker``). Workers read texts from files and write scores to files; the driver gets a record per
unit.
"""

import contextlib
import logging
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
import torch
from typing_extensions import override

from aptool.cluster.messages import ray_failures
from aptool.cluster.nodes import leaving_out
from aptool.cluster.ray_data import map_units
from aptool.cluster.resources import Cluster, Resources, log_missing_resources, worker_resources
from aptool.cluster.worker import ScoringJob
from aptool.environment import versions_of
from aptool.errors import AptoolError, counted
from aptool.formats.atomic import remove_leftovers, remove_matching
from aptool.formats.claim import Claim
from aptool.formats.inputs import Input, check_unchanged
from aptool.formats.location import Location, is_remote
from aptool.formats.pools import Unit, read_answers
from aptool.formats.runs import Shard
from aptool.models.hub import is_url, pinned_name
from aptool.models.model import load_model
from aptool.progress import Bar
from aptool.scoring.merge import RepeatedQuestionError, ShardTask, write_shard
from aptool.scoring.model_system import CACHE_BYTES, ModelScorer, ModelSystem, sample_units
from aptool.scoring.parts import ATTEMPTS, Part, digest_of, file_names, parts_folder
from aptool.scoring.pipeline import UnitRecord
from aptool.scoring.ranker_scorer import Precision
from aptool.scoring.score import Executor, ScoredRun, input_files
from aptool.scoring.sentence_transformers import (
    SentenceTransformers,
    SentenceTransformersScorer,
    load_checkpoint,
)
from aptool.scoring.systems import Scorer, System

logger = logging.getLogger(__name__)

# Number of failed units after which the run stops.
MAX_FAULTS = 10

# Timeout for the files of workers to appear on this node of a shared file system.
TIMEOUT_SECONDS = 60.0

ONE_CORE = Resources(cpus=1)

# Estimated memory of a worker: a process with torch, and copies of the model's weights.
WORKER_BYTES = 512 << 20
MODEL_COPIES = 3


class ClusterExecutor(Executor):
    """Workers of a Ray cluster that score units into parts on shared storage."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        workers: int | None = None,
        gpus_per_worker: float | None = None,
        debug: bool = False,
    ) -> None:
        """Set the cluster, the number of workers (default: as many as fit) and their GPUs.

        By default a worker has one GPU if the cluster has GPUs; fractions are possible. Workers with a GPU
        only score; other processes read and tokenize for them.
        """
        self.cluster = cluster
        self._workers = workers
        self._gpus_per_worker = gpus_per_worker
        self._debug = debug
        self._claim: Claim | None = None
        self._units = 0  # number of units of the run
        self._answers: Input | None = None
        self._each = ONE_CORE  # resources of a worker

    @override
    def open(self, system: System, units: Sequence[Unit], answers: Input | None) -> Scorer:
        """Open a system as workers do, but in this process; the weights of a model are on the CPU."""
        self._units, self._answers = len(units), answers
        if isinstance(system, ModelSystem):
            return self._open_model(system, units, answers)
        if isinstance(system, SentenceTransformers):
            return self._open_checkpoint(system)
        self._each = worker_resources(self.cluster, "cpu")._replace(memory=WORKER_BYTES)
        return system.open(units, read_answers(*answers) if answers is not None else None, "cpu")

    def _open_model(self, system: ModelSystem, units: Sequence[Unit], answers: Input | None) -> ModelScorer:
        cluster, folder = self.cluster, absolute_path(pinned_name(system.folder))
        model = load_model(folder)
        each = self._reserve(system.device, model.ranker)
        # On a GPU, each worker derives the size of its cache from the free memory.
        cache_bytes = None if each.gpus else min(CACHE_BYTES, cluster.memory(each) // 3)
        system = replace(system, folder=folder, cache_bytes=cache_bytes)
        precision: Precision = "fp32" if system.precision == "auto" else system.precision
        if system.precision == "auto" and each.gpus:
            # One worker tries the precision for all workers.
            trial: Any = ray.remote(_try_precision).options(**each.options)
            sample = [_absolute(unit) for unit in sample_units(units)]
            shared = _absolute_input(answers) if answers is not None else None
            with ray_failures(cluster.address):
                precision = ray.get(trial.remote(system, sample, shared))
        return ModelScorer(system, model, "cuda" if each.gpus else "cpu", precision)

    def _open_checkpoint(self, system: SentenceTransformers) -> SentenceTransformersScorer:
        system = replace(system, folder=absolute_path(pinned_name(system.folder)))
        model = load_checkpoint(system)
        each = self._reserve(system.open_device, model)
        return SentenceTransformersScorer(system, model, "cuda" if each.gpus else "cpu")

    def _reserve(self, device: str, network: torch.nn.Module) -> Resources:
        """Set and return the resources of a worker with a network; raise if no worker has room."""
        each = worker_resources(self.cluster, device, self._gpus_per_worker)
        weights = sum(tensor.nbytes for tensor in network.state_dict().values())
        each = each._replace(memory=WORKER_BYTES + MODEL_COPIES * weights)
        self.cluster.check_room(1, each, self._workers)  # including a core for reading
        if each.gpus:
            # Cores are left to the reading tasks: workers on all cores would wait for them forever.
            each = each._replace(cpus=0)
        self._each = each
        return each

    @contextlib.contextmanager
    @override
    def claim(self, output: Location) -> Iterator[Claim]:
        with super().claim(output.absolute()) as claim:
            self._claim = claim
            # Files of a killed driver, whose workers add none after the claim.
            remove_leftovers(output)
            remove_matching(parts_folder(output), ATTEMPTS)
            yield claim

    @override
    def run(self, missing: Sequence[Part], scorer: Scorer, bar: Bar) -> Generator[UnitRecord]:
        assert self._claim is not None
        each, workers = self._each, self._workers
        room = self.cluster.check_room(1, each, workers)
        job = scoring_job(missing, scorer, self._answers, self._claim)
        remaining = [part._replace(unit=_absolute(part.unit), path=part.path.absolute()) for part in missing]
        faults: dict[int, str] = {}
        scored: set[int] = set()

        with (
            leaving_out(self.cluster, job.requirements) as cluster,
            log_missing_resources(lambda: cluster.missing(1, each)),
            contextlib.ExitStack() as opened,
        ):
            if cluster.left_out:
                room = cluster.check_room(1, each, workers)
            logger.info(describe_workers(cluster, workers, room, each))
            scored_units = map_units(remaining, job, workers, room, each, cluster, self._debug)
            for record in opened.enter_context(contextlib.closing(scored_units)):
                if record.fatal:
                    raise AptoolError(f"--cluster {cluster.address}: {record.error}")
                number = record.number
                if not record.error:
                    if number not in scored:
                        bar.update(missing[number].pairs)
                    scored.add(number)
                    faults.pop(number, None)
                    yield record._replace(gpu_seconds=record.seconds * each.gpus)
                elif number not in scored:
                    faults[number] = record.error
                if len(faults) == MAX_FAULTS or len(scored) + len(faults) == len(remaining):
                    break  # do not wait for stragglers
        if faults:
            first, *rest = faults.values()
            more = f" (and {len(rest)} more like it)" if rest else ""
            done = self._units - len(missing) + len(scored)
            raise AptoolError(
                f"{first}{more}; {done} of {self._units} row groups are scored and kept: "
                "run the same command again after fixing it"
            )
        _wait_for_parts(missing)
        self._claim.reissue()  # from here on, workers write nothing

    @override
    def write_shards(self, tasks: Sequence[ShardTask]) -> Sequence[Shard]:
        """Write the shards of a run in tasks of the cluster; Ray retries those of lost workers."""
        remote: Any = ray.remote(write_or_name_question).options(num_cpus=1)
        absolute = [
            task._replace(
                path=task.path.absolute(),
                sources=tuple(source._replace(path=source.path.absolute()) for source in task.sources),
            )
            for task in tasks
        ]
        with ray_failures(self.cluster.address):
            shards = ray.get([remote.remote(task) for task in absolute])
        for shard in shards:
            if isinstance(shard, str):
                raise RepeatedQuestionError(shard)
        return shards

    @override
    def log_summary(self, scored: ScoredRun) -> None:
        logger.info(
            f"score: {counted(scored.units, 'row group')}, {scored.resumed} resumed, "
            f"{scored.retried} retried, {scored.run_twice} run twice, by "
            f"{counted(scored.workers, 'worker')} in {scored.seconds:.0f} s: "
            f"{scored.core_seconds:.0f} core-seconds, {scored.gpu_seconds:.0f} GPU-seconds"
        )


def write_or_name_question(task: ShardTask) -> Shard | str:
    """Write a shard; return the question that is in two parts, if there is one."""
    try:
        return write_shard(task)
    except RepeatedQuestionError as error:
        return str(error)


def scoring_job(missing: Sequence[Part], scorer: Scorer, answers: Input | None, claim: Claim) -> ScoringJob:
    """Return the settings of the workers that write the missing parts; raise if an input was replaced.

    ``scorer`` is equal to those of the workers.
    """
    inputs = input_files([part.unit for part in missing], answers)
    paths = [absolute_path(file.path) for file in inputs if not is_remote(file.path)]
    job = ScoringJob(
        system=scorer.system,
        device=scorer.device,
        fingerprint=scorer.fingerprint,
        folder=claim.path.parent,
        owner=claim.token,
        answers=_absolute_input(answers) if answers is not None else None,
        paths=(*(path for path in scorer.system.paths if not is_url(path)), *paths),
        versions=tuple(versions_of("torch").items()),
        contents=tuple((path, digest_of(path)) for path in paths),
        prepare_fingerprint=scorer.prepare_fingerprint,
    )
    check_unchanged(inputs)  # after the digests
    return job


def describe_workers(cluster: Cluster, workers: int | None, room: int, each: Resources) -> str:
    """A log line with the cluster, the number of workers and their resources."""
    described = f"room for {counted(room, 'worker')}"
    if workers is not None:
        described = counted(workers, "worker") + (f", {described} now," if room < workers else "")
    return cluster.describe(described, each)


def absolute_path(path: str | Path) -> str:
    """An absolute path as a string; URLs do not change."""
    return str(path) if is_remote(path) else str(Path(path).absolute())


def _absolute(unit: Unit) -> Unit:
    file = _absolute_input(Input(unit.path, unit.version))
    return unit._replace(path=file.path, version=file.version)


def _absolute_input(file: Input) -> Input:
    """A file for workers, and no version of a local file: copies on nodes may have other times."""
    return file if is_remote(file.path) else Input(absolute_path(file.path), None)


def _try_precision(system: ModelSystem, units: Sequence[Unit], answers: Input | None) -> Precision:
    """Pick the precision on a worker with a GPU."""
    texts = read_answers(*answers) if answers is not None else None
    precision: Any = system.open(units, texts, "cuda").system.precision
    return precision


def _wait_for_parts(parts: Sequence[Part]) -> None:
    """Wait until the parts of workers are visible on this node of a shared file system."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        names = file_names(parts)
        absent = [part.path for part in parts if part.path.name not in names]
        if not absent:
            return
        if time.monotonic() > deadline:
            raise AptoolError(
                f"{absent[0]}: written by a worker and not visible here: "
                "expected an output on storage that all nodes share"
            )
        time.sleep(0.2)
