"""A training worker of a cluster: runs ``fit`` in a process group, and posts messages to the driver."""

import contextlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ray.train
from ray.train.torch import get_device
from typing_extensions import override

from aptool.cluster.messages import Board
from aptool.cluster.nodes import Versions, check_versions, host
from aptool.config import CHECKPOINT_MINUTES, Recipe
from aptool.errors import AptoolError, located
from aptool.formats.claim import DRIVER, check_held, holds
from aptool.formats.collection import CollectionFiles
from aptool.formats.location import Location
from aptool.models.device import pick_device
from aptool.training.checkpoint import training_folder
from aptool.training.fit import GroupMember, fit_in_group
from aptool.training.process_group import SINGLE_PROCESS, TorchProcessGroup


@dataclass(frozen=True)
class TrainingJob:
    """The settings of a training, the same for every worker."""

    start: Path  # base of relative paths
    collection: Location
    recipe: Recipe
    output: Location
    seed: int
    key: str  # of the training
    owner: str  # token of the driver's claim on the output
    versions: Versions  # versions on the driver
    gpu: bool  # whether workers have GPUs
    checkpoint_minutes: float = CHECKPOINT_MINUTES


def train_worker(config: dict[str, Any]) -> None:
    """Train on this worker, and post its messages or its error."""
    job: TrainingJob = config["job"]
    context = ray.train.get_context()
    rank, size = context.get_world_rank(), context.get_world_size()
    group = TorchProcessGroup(rank, size) if size > 1 else SINGLE_PROCESS
    board: Board = config["board"]
    if board.has_error():
        return  # restarted by Ray after the error
    try:
        with group.together():
            collection = open_collection(job)
            device = pick_device(str(get_device()) if job.gpu else "cpu")
        check_claim = partial(check_held, _claim(job), job.owner, job.output)
        member = GroupMember(group, check_claim, config["has_room"], is_preempted)
        with messages_to(board) if rank == 0 else contextlib.nullcontext():
            result = fit_in_group(
                *(collection, job.recipe, job.output, job.key, member),
                seed=job.seed,
                device=device,
                checkpoint_minutes=job.checkpoint_minutes,
            )
        if result is None and rank == 0:
            board.post("growth", None)
    except AptoolError as error:
        # Ray would restart the workers if this error were raised.
        alone = size > 1 and error is not group.raised
        if rank == 0 or alone:
            board.post("error", located(error, f"node {host()}") if alone else error)
        if alone:  # the other workers wait for this process
            board.flush()
            raise RuntimeError("an error of one worker ends all") from error
    if rank == 0:
        board.flush()


@contextlib.contextmanager
def messages_to(board: Board) -> Iterator[None]:
    """Post the log messages of this process to a board while the block runs."""
    logger, handler = logging.getLogger("aptool"), _BoardHandler(board)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _BoardHandler(logging.Handler):
    def __init__(self, board: Board) -> None:
        super().__init__(logging.INFO)
        self._board = board

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self._board.post("log", record.getMessage())


def is_preempted() -> bool:
    """Whether a node of this training is about to be taken away."""
    return ray.train.get_preemption_info() is not None


def open_collection(job: TrainingJob) -> CollectionFiles:
    """Open the collection; raise unless this node sees the output folder and has the driver's versions."""
    with contextlib.suppress(OSError):  # absolute paths need no current folder
        os.chdir(job.start)
    if not holds(_claim(job), job.owner):
        raise AptoolError(
            f"{training_folder(job.output).absolute()}: not found, or not the driver's folder: "
            "expected an output on storage that all nodes share"
        )
    check_versions(job.versions)
    return CollectionFiles(job.collection)


def _claim(job: TrainingJob) -> Location:
    """The driver's claim on the output."""
    return training_folder(job.output) / DRIVER
