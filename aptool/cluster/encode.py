"""Encode answers on a Ray cluster: one task per chunk, which adds its answers to the store.

Ray retries a task whose worker or node was lost; answers in the store are not encoded again. All nodes see
the inputs, the model and the store.
"""

import contextlib
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import ray

from aptool.cluster.messages import ray_failures
from aptool.cluster.resources import Cluster, Resources, logged_while_missing
from aptool.cluster.score import absolute_path, starting_line
from aptool.cluster.worker import Versions, check_versions, host, versions
from aptool.errors import AptoolError
from aptool.formats.location import location
from aptool.formats.urls import is_remote
from aptool.models.checkpoints.files import pinned_name
from aptool.scoring.answer_store import MANIFEST
from aptool.scoring.encode import Chunk, Encoded, EncodeJob, encode_chunk

logger = logging.getLogger(__name__)

# Retries of a task whose worker was lost.
RESTARTS = 4

# Queued tasks per worker.
AHEAD = 2


class ClusterEncoding:
    """Encodes chunks in tasks of a cluster; see ``scoring.encode.EncodeBackend``."""

    def __init__(self, cluster: Cluster, each: Resources, workers: int | None = None) -> None:
        """Prepare tasks with the resources ``each``, at most ``workers`` at a time; None is no limit."""
        self._cluster = cluster
        self._each = each
        self._workers = workers

    def __call__(self, job: EncodeJob, chunks: Sequence[Chunk]) -> Iterator[Encoded]:
        """Yield the result of each chunk; after an error, answers of other chunks stay in the store."""
        cluster, each = self._cluster, self._each
        room = cluster.check_room(None, each, self._workers)
        logger.info(starting_line(cluster, self._workers, room, each))
        model = absolute_path(pinned_name(job.model))
        job = job._replace(model=model, store=absolute_path(job.store))
        task: Any = ray.remote(_encode).options(**each.options, max_retries=RESTARTS, name="aptool encode")
        device = "cuda" if each.gpus else "cpu"
        # The cluster may grow: Ray starts as many tasks as fit.
        limit = self._workers if self._workers is not None else AHEAD * max(room, len(cluster.nodes()))
        waiting = iter([_absolute(chunk) for chunk in chunks])
        running: list[Any] = []
        try:
            with logged_while_missing(lambda: cluster.missing(1, each)):
                while True:
                    while len(running) < limit and (chunk := next(waiting, None)) is not None:
                        running.append(task.remote(job, chunk, device, versions()))
                    if not running:
                        return
                    ended, running = ray.wait(running, num_returns=1)
                    with ray_failures(cluster.address):
                        encoded: Encoded = ray.get(ended[0])
                    yield encoded
        finally:
            for reference in running:
                with contextlib.suppress(ray.exceptions.RayError):
                    ray.cancel(reference, force=True)


def _absolute(chunk: Chunk) -> Chunk:
    """A chunk with absolute paths. Nodes may have copies of a local file with other times, so no version."""
    shared = absolute_path(chunk.shared) if chunk.shared is not None else None
    version = chunk.version if is_remote(chunk.path) else None
    return chunk._replace(path=absolute_path(chunk.path), version=version, shared=shared)


def _encode(job: EncodeJob, chunk: Chunk, device: str, expected: Versions) -> Encoded:
    """Encode a chunk on a worker."""
    try:
        check_versions(expected)
    except AptoolError as error:
        raise AptoolError(f"node {host()}: {error}") from error
    if not (location(job.store) / MANIFEST).is_file():
        raise AptoolError(
            f"{job.store}: not found on node {host()}: expected a store on storage that all nodes share"
        )
    return encode_chunk(job, chunk, device)
