"""Scoring in this process: every unit in turn."""

from collections.abc import Callable, Sequence
from pathlib import Path

from aptool.formats.atomic import check_writable
from aptool.formats.pools import Answers, Unit
from aptool.scoring.shards import System, is_done, merge, parts_folder, plan, score_unit


def score_pools(
    units: Sequence[Unit],
    system: System,
    output: str | Path,
    *,
    tag: str,
    answers: Answers | None = None,
    report: Callable[[int, int], None] = lambda done, pairs: None,
) -> int:
    """Scores pools into a run file; goes on from the parts that an interrupted call left.

    Args:
        units: the row groups to score.
        system: what scores them.
        output: the run file; gzip if its name ends in ``.gz``.
        tag: the run's name, one word.
        answers: where texts that are not in the pools are looked up.
        report: told the units done and the pairs that the last of them had.

    Returns:
        How many pairs the run file has.

    Raises:
        InputError: an input or the output is not what it should be.
    """
    check_writable(output)
    parts = plan(units, system, output, answers)
    parts_folder(output).mkdir(exist_ok=True)
    for done, part in enumerate(parts, start=1):
        if not is_done(part):
            score_unit(part, system, answers)
        report(done, part.pairs)
    return merge(parts, output, tag)
