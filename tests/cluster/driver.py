"""A scoring driver that kills itself at a given point."""

import json
import sys
from contextlib import nullcontext

from dying import die
from scene import units_of
from slow import ONE_CORE, SlowSystem, executor_of

from aptool.cli.tables import messages_on_stderr
from aptool.cluster.connection import Resources, connect
from aptool.errors import AptoolError
from aptool.progress import Bar
from aptool.scoring import run


class DyingBar(Bar):
    """Kills this process after three of eight units."""

    def update(self, n):
        super().update(n)
        if self._done >= self._total // 2 - 12:
            die()


def main(address, pools, output, notes, phase="", seconds=0.0, workers=None, gpus=0.0, verbose=False):
    messages = messages_on_stderr() if verbose else nullcontext()
    with messages, connect(address) as cluster:
        executor = executor_of(cluster, Resources(0, gpus) if gpus else ONE_CORE, workers=workers)
        if phase == "scoring":
            run.progress = DyingBar
        if phase == "beginning":
            executor.run = die
        if phase == "before joining":
            run.join_parts = die
        if phase == "completing":
            run.write_sidecar = die
        if phase == "removing":
            run.outputs.delete = remove_two_and_die
        try:
            system = SlowSystem(notes=notes, seconds=seconds)
            scored = run.score_files(units_of(pools), system, output, executor, tag="slow")
        except AptoolError as error:
            sys.exit(str(error))
    sys.stdout.write(f"{scored}\n")  # what is printed while connected is dropped


def remove_two_and_die(paths):
    for path in list(paths)[:2]:
        path.unlink()
    die()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
