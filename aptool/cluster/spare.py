"""The last units of a run, scored a second time by workers that have nothing else to do.

A unit may take long because its worker is slow: its machine is busy, or about to be taken away. A worker
without work waits as long as its own units took it, and then scores what is still missing. The first part
that is written stands, as all would be equal; the driver does not wait for the other.
"""

import time
from collections.abc import Sequence

from aptool.cluster.worker import ScoringJob, Worker, is_begun, is_current
from aptool.formats.stores import store_of
from aptool.scoring.parts import Part
from aptool.scoring.record import UnitRecord

# The least seconds for which a missing part is waited for.
PATIENCE_SECONDS = 2.0

# Seconds between two looks at the parts.
POLL_SECONDS = 0.5

# The most seconds for which a worker without work is held back while units wait for others. What holds it
# back takes a core, which a unit may need that has to be read again.
QUEUE_SECONDS = 300.0


def wait_until_begun(job: ScoringJob, parts: Sequence[Part]) -> None:
    """Waits until no more parts are to be begun than may stand behind those that workers have begun.

    Until then no worker has too little to do. Where units are read for the workers by others, a row without a
    unit needs no reading, and would overtake the last rows with one.
    """
    store, folder = store_of(parts[0].path.parent)
    until = time.monotonic() + QUEUE_SECONDS
    while time.monotonic() < until and is_current(job):
        there = set(store.names(folder))
        missing = [part for part in parts if part.path.name not in there]
        begun = sum(is_begun(part, there) for part in missing)
        if len(missing) - begun <= begun:
            break
        time.sleep(POLL_SECONDS)


def score_late(worker: Worker, parts: Sequence[Part]) -> list[UnitRecord]:
    """Scores the parts that are late, until all are there or others score them too.

    Args:
        worker: that has no work.
        parts: of the run, all of which have been given to workers.

    Returns:
        The parts that were scored here; errors are left to the workers that they were given to.
    """
    done: list[UnitRecord] = []
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
        record = worker.score_again(number, part)
        if record is not None:
            done.append(record)
    return done
