"""A scoring driver that kills itself where it is told to."""

import json
import os
import shutil
import signal
import sys

from slow import SlowSystem, opener

from aptool.cluster import score as distributed
from aptool.cluster.connection import connect
from aptool.errors import AptoolError
from aptool.formats.pools import list_units
from aptool.scoring import parts


def die(*arguments, **more):
    os.kill(os.getpid(), signal.SIGKILL)


def die_after(calls, function):
    def called(*arguments, **more):
        nonlocal calls
        calls -= 1
        if calls < 0:
            die()
        return function(*arguments, **more)

    return called


def main(address, pools, output, notes, phase="", seconds=0.0, workers=None):
    with connect(address) as cluster:
        report = die_after(3, lambda *progress: None) if phase == "scoring" else lambda *progress: None
        if phase == "beginning":
            distributed.map_units = die
        if phase == "before merging":
            distributed.merge = die
        if phase == "merging":
            parts._copy = die_after(5, parts._copy)
        if phase == "renaming":
            os.replace = replace_but(output)
        if phase == "removing":
            shutil.rmtree = remove_two_and_die
        try:
            scored = distributed.score_pools(
                list_units([pools]),
                SlowSystem(notes, 0).fingerprint,
                opener(notes, seconds),
                output,
                cluster=cluster,
                tag="slow",
                workers=workers,
                report=report,
            )
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


def remove_two_and_die(folder):
    for path in sorted(folder.glob("*.part"))[:2]:
        path.unlink()
    die()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
