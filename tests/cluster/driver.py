"""A scoring driver that kills itself at a given point."""

import json
import os
import sys
from contextlib import nullcontext

from dying import die, die_after, die_before_completing_uploads
from slow import ONE_CORE, SlowSystem, executor_of

from aptool.cli.tables import messages_on_stderr
from aptool.cluster.connection import connect
from aptool.cluster.resources import Resources
from aptool.errors import AptoolError
from aptool.formats.pools import list_units
from aptool.progress import LogLines
from aptool.scoring import merge, score


class DyingBar(LogLines):
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
            score.progress = DyingBar
        if phase == "beginning":
            executor.run = die
        if phase == "before merging":
            score.merge = die
        if phase == "merging":
            merge.read_chunk = die_after(5, merge.read_chunk)
        if phase == "completing":
            os.replace = replace_but(output)
            die_before_completing_uploads()
        if phase == "removing":
            merge.remove_parts = remove_two_and_die
        try:
            system = SlowSystem(notes=notes, seconds=seconds)
            scored = score.score_files(list_units([pools]), system, output, executor, tag="slow")
        except AptoolError as error:
            sys.exit(str(error))
        sys.stdout.write(f"{scored}\n")


def replace_but(output):
    replace = os.replace

    def called(source, target):
        if str(target) == output:
            die()
        replace(source, target)

    return called


def remove_two_and_die(parts, folder):
    for path in sorted(path for path in folder.iterdir() if path.suffix == ".part")[:2]:
        path.unlink()
    die()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
