"""Scoring in this process: every unit in turn, the next one read and the last one written meanwhile."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from aptool.formats.atomic import check_writable
from aptool.formats.pools import Answers, Unit
from aptool.scoring.parts import Merged, Part, is_done, merge, parts_folder, write_part
from aptool.scoring.shards import System, plan, read_task, score_task


def score_pools(
    units: Sequence[Unit],
    system: System,
    output: str | Path,
    *,
    tag: str,
    answers: Answers | None = None,
    report: Callable[[int, int], None] = lambda done, pairs: None,
) -> Merged:
    """Scores pools into a run file; goes on from the parts that an interrupted call left.

    At most three units are in memory: one being read, one being scored, one being written.

    Args:
        units: the row groups to score.
        system: what scores them.
        output: the run file; gzip if its name ends in ``.gz``.
        tag: the run's name, one word.
        answers: where texts that are not in the pools are looked up.
        report: told the units done and the pairs that the last of them had.

    Returns:
        What the run file has in it.

    Raises:
        InputError: an input or the output is not what it should be.
    """
    check_writable(output)
    parts = plan(units, system, output, tag, answers)
    parts_folder(output).mkdir(exist_ok=True)
    try:
        missing = [part for part in parts if not is_done(part)]
        for done, part in enumerate(_scored(missing, system, answers), start=1 + len(parts) - len(missing)):
            report(done, part.pairs)
        return merge(parts, output)
    finally:
        with contextlib.suppress(OSError):
            parts_folder(output).rmdir()  # only if nothing is in it: the input was at fault from the start


def _scored(parts: list[Part], system: System, answers: Answers | None) -> Iterator[Part]:
    """Scores units; each comes when its part is written."""
    with ThreadPoolExecutor(1) as reader, ThreadPoolExecutor(1) as writer:
        reads = (reader.submit(read_task, part, system, answers) for part in parts)
        coming = next(reads, None)
        leaving: list[tuple[Part, Future[None]]] = []
        for part in parts:
            assert coming is not None
            task, coming = coming.result(), next(reads, None)
            frame = score_task(task, system)
            yield from _written(leaving)
            leaving = [(part, writer.submit(write_part, part, frame, system.truncated(task.prepared)))]
        yield from _written(leaving)


def _written(leaving: list[tuple[Part, Future[None]]]) -> Iterator[Part]:
    for part, writing in leaving:
        writing.result()
        yield part
