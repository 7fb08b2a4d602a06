"""Pools to score on a cluster, and the expected run file; the signals that interrupt a command."""

import hashlib
import signal
import time

import pytest
from slow import ONE_CORE, SlowSystem, executor_of
from tiny import labelled_pools, row, write_pools

from aptool.data.pools import list_units
from aptool.files import expand
from aptool.outputs import output_file
from aptool.scoring.run import parts_folder, score_files

UNITS = 8

# A signal, and the exit code and the last line of a command that it interrupts.
by_signal = pytest.mark.parametrize(
    ("number", "code", "line"),
    [
        (signal.SIGINT, 130, "aptool: interrupted; the same command resumes"),
        (signal.SIGTERM, 143, "aptool: terminated; the same command resumes"),
    ],
    ids=["Ctrl-C", "SIGTERM"],
)


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def pools_of(split, folder):
    """Write eight files of two pools, with six candidates per pool; each file is a unit."""
    pools = rows_of(split, 2 * UNITS)
    for number in range(UNITS):
        with output_file(folder / f"{number}.pools.parquet") as temporary:
            write_pools(temporary, pools[2 * number : 2 * number + 2])
    return folder


def units_of(folder):
    return list_units(expand([str(folder)], ".pools.parquet"))


def rows_of(split, count):
    pools = labelled_pools(split, count)
    return [row(p.question_id, p.question, list(zip(p.answer_ids, p.texts, strict=True))) for p in pools]


def write_row_groups(path, split, count, size):
    """Write ``count`` labelled pools, ``size`` per row group; return the path."""
    rows = rows_of(split, count)
    return write_pools(path, *(rows[start : start + size] for start in range(0, count, size)))


class Scene:
    """Pools, the run file of one process, and functions to score the pools on a cluster."""

    def __init__(self, folder, notes):
        self.notes = notes
        self.notes.mkdir()
        self.pools = pools_of("test", folder / "pools")
        self.output = folder / "out.run"
        self.parts = parts_folder(self.output)

    @property
    def units(self):
        return units_of(self.pools)

    @property
    def expected(self):
        """The hash of the run file of this process."""
        quiet = self.notes / "alone"
        quiet.mkdir(exist_ok=True)
        alone = quiet / "alone.run"
        score_files(self.units, SlowSystem(notes=str(quiet)), alone, tag="slow")
        return sha256(alone)

    def score(self, cluster, seconds=0.0, each=ONE_CORE, **more):
        system, executor = (
            SlowSystem(notes=str(self.notes), seconds=seconds),
            executor_of(cluster, each, **more),
        )
        return score_files(self.units, system, self.output, executor, tag="slow")

    def arguments(self, address, **more):
        """Arguments of a driver in another process."""
        return {
            "address": address,
            "pools": str(self.pools),
            "output": str(self.output),
            "notes": str(self.notes),
        } | more

    def assert_complete(self):
        """Check that the run file equals that of one process, and that no other file is left."""
        assert sha256(self.output) == self.expected
        names = {path.name for path in self.output.parent.iterdir()}
        assert names - {"notes"} == {"pools", "out.run", "out.run.json"}


def node_ids():
    """The ids of the nodes of the cluster that this process is connected to."""
    import ray

    return {node["NodeID"] for node in ray.nodes() if node["Alive"]}


def wait_for(condition, seconds=600):  # long enough for a busy machine
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition was not met in time"
        time.sleep(0.02)
