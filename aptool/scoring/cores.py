"""Work on a CPU with one core per thread, so that results do not depend on the number of threads.

torch has a number of cores per operation for each thread, and a default for new threads;
``torch.set_num_threads`` sets both. Several threads may score at the same time, so the last thread must not
restore a temporary value of another thread.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier, Lock
from typing import Any, TypeAlias

import torch

# Maps a function over items, in order.
ForEach: TypeAlias = Callable[[Callable[[Any], Any], list[Any]], Iterator[Any]]


class _Cores:
    """The number of cores per operation before any thread of this process set it to one."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._number = 1

    def enter(self) -> int:
        """Set the calling thread to one core; return the number of cores to restore."""
        with self._lock:
            number = torch.get_num_threads()
            if self._users == 0:
                self._number = number
            if number == 1:  # the default of a new thread while another thread scores
                number = self._number
            self._users += 1
            if number > 1:
                torch.set_num_threads(1)
            return number

    def leave(self, number: int) -> None:
        """Restore the number of cores of the calling thread and of new threads."""
        with self._lock:
            self._users -= 1
            if number > 1:
                torch.set_num_threads(number)


_CORES = _Cores()
_POOLS: dict[int, ThreadPoolExecutor] = {}
_POOLS_LOCK = Lock()


@contextmanager
def one_core_per_thread(device: torch.device, items: int) -> Iterator[ForEach]:
    """Yield a function that maps work over items, on one thread per core of torch.

    Most matrix products are too small to be split among cores, and an item that one core computes does not
    depend on the number of threads. On a GPU, items are computed one after the other.
    """
    if device.type != "cpu":
        yield map
        return
    number = _CORES.enter()

    def for_each(work: Callable[[Any], Any], inputs: list[Any]) -> Iterator[Any]:
        if min(number, items, len(inputs)) <= 1:
            return map(work, inputs)
        return _pool(number).map(torch.inference_mode()(work), inputs)

    try:
        yield for_each
    finally:
        _CORES.leave(number)


def _pool(threads: int) -> ThreadPoolExecutor:
    """Return a reused pool: every new thread allocates an arena, so new pools would take ever more memory."""
    with _POOLS_LOCK:
        if threads not in _POOLS:
            # All threads start now, while the default for new threads is known.
            started = Barrier(threads + 1)
            _POOLS[threads] = ThreadPoolExecutor(threads, initializer=_start_thread)
            for _ in range(threads):
                _POOLS[threads].submit(started.wait)
            started.wait()
        return _POOLS[threads]


def _start_thread() -> None:
    """Set a thread of a pool to one core, after torch has set its default."""
    torch.get_num_threads()
    torch.set_num_threads(1)
