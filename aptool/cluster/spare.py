"""The last units of a run, scored a second time by workers that have nothing else to do.

A unit may take long because its worker is slow: its machine is busy, or about to be taken away. A worker
without work waits as long as its own units took it, and then scores what is still missing. The first part
that is written stands, as all would be equal; the driver does not wait for the other.
"""

import time
from collections.abc import Sequence

from aptool.cluster.worker import Outcome, Worker
from aptool.formats.stores import store_of
from aptool.scoring.parts import Part

# The least seconds for which a missing part is waited for.
PATIENCE_SECONDS = 2.0

# Seconds between two looks at the parts.
POLL_SECONDS = 0.5


def score_late(worker: Worker, parts: Sequence[Part]) -> list[Outcome]:
    """Scores the parts that are late, until all are there or others score them too.

    Args:
        worker: that has no work.
        parts: of the run, all of which have been given to workers.

    Returns:
        The parts that were scored here; errors are left to the workers that they were given to.
    """
    done: list[Outcome] = []
    tried: set[int] = set()
    store, folder = store_of(parts[0].path.parent)
    since = time.monotonic()
    while worker.is_current():
        there = set(store.names(folder))
        late = [
            (number, part)
            for number, part in enumerate(parts)
            if number not in tried and part.path.name not in there
        ]
        if not late:
            break
        if time.monotonic() - since < max(PATIENCE_SECONDS, worker.seconds_a_unit):
            time.sleep(POLL_SECONDS)
            continue
        number, part = late[0]
        tried.add(number)
        outcome = worker.score_again(number, part)
        if outcome is not None:
            done.append(outcome)
    return done
