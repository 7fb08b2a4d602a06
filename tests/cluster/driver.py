"""A scoring driver that kills itself at a given point."""

import json
import sys

from dying import die
from scene import units_of
from slow import ONE_CORE, SlowSystem, executor_of

from aptool.cluster.connection import connect
from aptool.errors import AptoolError
from aptool.progress import Bar
from aptool.scoring import run


class DyingBar(Bar):
    """Kills this process after three of eight units."""

    def update(self, n):
        super().update(n)
        if self._done >= self._total // 2 - 12:
            die()


def main(address, pools, output, notes, phase, seconds):
    with connect(address) as cluster:
        executor = executor_of(cluster, ONE_CORE)
        if phase == "scoring":
            run.progress = DyingBar
        if phase == "before joining":
            run.join_parts = die
        try:
            system = SlowSystem(notes=notes, seconds=seconds)
            scored = run.score_files(units_of(pools), system, output, executor, tag="slow")
        except AptoolError as error:
            sys.exit(str(error))
    sys.stdout.write(f"{scored}\n")  # what is printed while connected is dropped


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
