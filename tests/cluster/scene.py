"""Pools to score on a cluster, and the expected run file."""

import hashlib
import time

from aptool.formats.atomic import atomic_file
from aptool.formats.outputs import MANIFEST
from aptool.scoring.parts import parts_folder, plan, write_part
from aptool.scoring.score import score_files
from slow import ONE_CORE, SlowSystem, executor_of
from tiny import labelled_pools, row, write_pools

from aptool.formats.pools import list_units, read_pools
from aptool.scoring.pipeline import prepare, score

UNITS = 8


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def pools_of(split, path):
    """Write eight row groups of two pools, with six candidates per pool."""
    with atomic_file(path) as temporary:
        write_row_groups(temporary, split, 2 * UNITS, 2)
    return path


def write_row_groups(path, split, count, size):
    """Write ``count`` labelled pools, ``size`` per row group; return the path."""
    pools = labelled_pools(split, count)
    rows = [row(p.question_id, p.question, list(zip(p.answer_ids, p.texts, strict=True))) for p in pools]
    return write_pools(path, *(rows[start : start + size] for start in range(0, count, size)))


class Scene:
    """Pools, the run file of one process, and functions to score the pools on a cluster."""

    def __init__(self, folder, notes):
        self.notes = notes
        self.notes.mkdir()
        self.pools = pools_of("test", folder / "test.pools.parquet")
        self.output = folder / "out.run"
        self.parts = parts_folder(self.output)

    @property
    def units(self):
        return list_units([self.pools])

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

    def make_parts(self):
        """Write every part, like a driver that is killed before the merge."""
        self.parts.mkdir(exist_ok=True)
        quiet = SlowSystem(notes=str(self.notes)).open()
        parts = plan(self.units, quiet, self.output, "slow")
        for part in parts:
            write_part(part, *score([prepare(part.unit, read_pools(part.unit), quiet)], quiet), 0)
        (self.notes / "scored").unlink()
        return [part.path for part in parts]

    def assert_complete(self):
        """Check that the run file equals that of one process, and that no other file is left."""
        assert sha256(self.output) == self.expected
        names = {path.name for path in self.output.parent.iterdir()}
        assert names - {"notes"} == {MANIFEST, "test.pools.parquet", "out.run", "out.run.ir-metadata.yml"}


def wait_for(condition, seconds=600):  # long enough for a busy machine
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition was not met in time"
        time.sleep(0.02)
