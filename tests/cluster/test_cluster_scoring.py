"""Scoring on a cluster: the same bytes as one process, whatever is killed or left behind."""

import hashlib
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
import s3
from recorded import recorded
from slow import ONE_CORE, SlowSystem, remote_system, scored
from tiny import labelled_pools, row, write_pools

from aptool.cluster.resources import Cluster, Resources
from aptool.errors import AptoolError, InputError
from aptool.formats.atomic import atomic_file
from aptool.formats.location import ObjectPath
from aptool.formats.pools import list_units
from aptool.formats.stores import store_of
from aptool.formats.trec import read_run
from aptool.scoring.job import plan, read_task, score_task
from aptool.scoring.parts import parts_folder, write_part
from aptool.scoring.score import score

UNITS = 8
SYSTEM = SlowSystem("/", 0)  # for its fingerprint


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def overwrite(path, data):
    store, key = store_of(path)
    store.delete([key])
    store.create(key, bytes(data))


def pools_of(split, path):
    """Eight row groups of two pools, six candidates each."""
    with atomic_file(path) as temporary:
        _write_pools(split, temporary)
    return path


def _write_pools(split, path):
    pools = labelled_pools(split, 2 * UNITS)
    rows = [row(p.question_id, p.question, list(zip(p.answer_ids, p.texts, strict=True))) for p in pools]
    return write_pools(path, *(rows[start : start + 2] for start in range(0, 2 * UNITS, 2)))


class Scene:
    """Pools, the run file of one undisturbed process, and ways to score them on a cluster."""

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
        """The hash of the run file that this process writes."""
        quiet = self.notes / "alone"
        quiet.mkdir(exist_ok=True)
        alone = quiet / "alone.run"
        score(self.units, SlowSystem(quiet, 0), alone, tag="slow")
        return sha256(alone)

    def score(self, cluster, seconds=0.0, each=ONE_CORE, **more):
        from aptool.cluster.score import ClusterExecutor

        system = remote_system(self.notes, seconds, each)
        return score(self.units, system, self.output, ClusterExecutor(cluster, **more))

    def arguments(self, address, **more):
        """For a driver in another process."""
        return {
            "address": address,
            "pools": str(self.pools),
            "output": str(self.output),
            "notes": str(self.notes),
        } | more

    def make_parts(self):
        """Writes every part, as a driver that was killed before the merge would have left them."""
        self.parts.mkdir(exist_ok=True)
        quiet = SlowSystem(self.notes, 0)
        parts = plan(self.units, quiet, self.output, "slow")
        for part in parts:
            task = read_task(part, quiet, None)
            write_part(part, score_task(task, quiet), quiet.truncated(task.prepared))
        (self.notes / "scored").unlink()
        return [part.path for part in parts]

    def assert_whole(self):
        """The run file is that of one process, and no other file is left."""
        assert sha256(self.output) == self.expected
        names = {path.name for path in self.output.parent.iterdir()}
        assert names - {"notes"} == {"test.pools.parquet", "out.run", "out.run.ir-metadata.yml"}


@pytest.fixture
def scene(tmp_path):
    folder = tmp_path / "scene"
    folder.mkdir()
    return Scene(folder, folder / "notes")


@pytest.fixture(params=["disk", "s3"])
def anywhere(request, tmp_path, object_server):
    """A scene on a disk, or with its pools and its run on an object store."""
    if request.param == "disk":
        return request.getfixturevalue("scene")
    s3.require()
    return Scene(ObjectPath(s3.new_bucket(object_server)), tmp_path / "notes")


def wait_for(condition, seconds=600):  # many times what is needed, also on a busy machine
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition was not met in time"
        time.sleep(0.02)


def test_two_workers_write_what_one_process_writes(cluster, anywhere):
    with recorded() as told:
        result = anywhere.score(cluster, seconds=0.2)

    anywhere.assert_whole()
    assert (result.pairs, result.units, result.resumed, result.retried) == (96, UNITS, 0, 0)
    assert result.workers == 2
    assert [update[:2] for update in told.updates] == [(done, UNITS) for done in range(1, UNITS + 1)]
    assert all("pairs/s" in detail for _, _, detail in told.updates)


def test_reading_apart_from_scoring(nodes, cluster, scene):
    """With a GPU per worker, other processes read and tokenize. This GPU is a resource in name only."""
    node = nodes.add_node(num_cpus=2, num_gpus=1, object_store_memory=80 << 20)
    try:
        wait_for(lambda: cluster.total().gpus == 1)
        assert cluster.check_room(None, Resources(1, 0.5)) == 2
        result = scene.score(cluster, seconds=0.2, workers=2, each=Resources(cpus=0, gpus=0.5))
    finally:
        nodes.remove_node(node)

    scene.assert_whole()
    assert (result.pairs, result.workers) == (96, 2)


def test_driven_from_a_node(cluster, scene, monkeypatch):
    """Ray Data cannot be driven through Ray's client, so a node does it; paths are relative to the driver."""
    from aptool.cluster.score import ClusterExecutor

    monkeypatch.chdir(scene.output.parent)
    units, system = list_units(["test.pools.parquet"]), remote_system(scene.notes)
    outside = Cluster("ray://head:10001", cluster.logs)

    result = score(units, system, "out.run", ClusterExecutor(outside, workers=2))

    scene.assert_whole()
    assert (result.pairs, result.units, result.resumed) == (96, UNITS, 0)
    outside, large = replace(outside, wait=0), remote_system(scene.notes, 0.0, Resources(3))
    with pytest.raises(AptoolError, match="room for 0; expected room for 1 worker with 3 CPUs"):
        score(units, large, "out.run", ClusterExecutor(outside))


def score_and_meanwhile(cluster, scene, act, **more):
    """Scores, calls ``act`` while every worker is in the middle of a unit, and returns both results."""
    hold = scene.notes / "hold"
    hold.touch()

    def meanwhile():
        try:
            return act()
        finally:
            hold.unlink()

    with ThreadPoolExecutor(1) as thread:
        acted = thread.submit(meanwhile)
        return scene.score(cluster, **more), acted.result()


def test_killed_worker(cluster, anywhere):
    """(a)"""

    def kill():
        wait_for(lambda: len(scored(anywhere.notes)) == 2)
        process, question = scored(anywhere.notes)[-1]
        os.kill(process, signal.SIGKILL)
        return question

    result, lost = score_and_meanwhile(cluster, anywhere, kill, workers=2)

    anywhere.assert_whole()
    assert result.retried + result.run_twice >= 1  # by a new worker, or by the other one
    begun = scored(anywhere.notes)
    assert len(begun) > UNITS
    # The unit that was lost was begun again by another process.
    assert len({process for process, question in begun if question == lost}) >= 2


def test_the_unit_of_a_slow_worker_is_scored_by_an_idle_one(cluster, anywhere):
    """The first one never ends, as far as this run is concerned; the run ends without it."""
    stuck = anywhere.notes / "stuck"
    stuck.write_text("test-q6")  # in the fourth row group
    try:
        with recorded() as told:
            result = anywhere.score(cluster, workers=2)

        anywhere.assert_whole()
        assert (result.pairs, result.retried) == (96, 0)
        # At least that one; the unit that waited behind it too.
        assert 1 <= result.run_twice <= 2
        assert f"{result.run_twice} run twice, by " in told.messages[-1]
        assert len({process for process, question in scored(anywhere.notes) if question == "test-q6"}) == 2
    finally:
        stuck.unlink()
    # What the slow worker writes in the end changes nothing.
    wait_for(lambda: cluster.free().cpus == cluster.total().cpus)
    anywhere.assert_whole()


def test_the_unit_of_a_slow_worker_with_a_gpu_is_scored_by_an_idle_one(nodes, cluster, scene):
    """Others read for them. This GPU is a resource in name only."""
    stuck = scene.notes / "stuck"
    stuck.write_text("test-q6")  # in the fourth row group
    node = nodes.add_node(num_cpus=2, num_gpus=1, object_store_memory=80 << 20)
    try:
        wait_for(lambda: cluster.total().gpus == 1)
        result = scene.score(cluster, workers=2, each=Resources(cpus=0, gpus=0.5))

        scene.assert_whole()
        assert (result.pairs, result.retried) == (96, 0)
        assert 1 <= result.run_twice <= 2
    finally:
        stuck.unlink()
        nodes.remove_node(node)


@pytest.mark.parametrize("announced", [False, True], ids=["lost", "preempted"])
def test_removed_node(nodes, cluster, scene, preempt, announced):
    """(b): the third node is lost while its worker scores; the other nodes score the rest."""
    before = {node.node_id for node in cluster.nodes()}
    node = nodes.add_node(num_cpus=1, object_store_memory=80 << 20)
    wait_for(lambda: cluster.check_room(None, Resources(cpus=1)) == 3)
    raylet = node.all_processes["raylet"][0].process.pid

    def remove():
        wait_for(lambda: any(_parent(process) == raylet for process, _ in scored(scene.notes)))
        process, question = next(unit for unit in scored(scene.notes) if _parent(unit[0]) == raylet)
        if announced:
            (new,) = {node.node_id for node in cluster.nodes()} - before
            preempt(new)
        os.kill(process, signal.SIGKILL)  # else it could finish its unit first
        nodes.remove_node(node, allow_graceful=False)
        return process, question

    result, (gone, lost) = score_and_meanwhile(cluster, scene, remove, workers=3)

    scene.assert_whole()
    assert result.retried + result.run_twice >= 1
    begun = scored(scene.notes)
    assert len(begun) > UNITS
    assert [process for process, question in begun if question == lost][-1] != gone


def _parent(process):
    """The process id of a process's parent; None if the process has ended."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return None


# Where the driver is killed, and how many complete parts the next one finds.
PHASES = {
    "beginning": {0},
    "scoring": {3, 4, 5, 6},  # its workers may each finish one more unit, and have begun another
    "before merging": {UNITS},
    "merging": {UNITS},
    "completing": {UNITS},
    "removing": {UNITS - 2},
}


@pytest.mark.parametrize("phase", PHASES)
def test_killed_driver(address, cluster, anywhere, driver, phase):
    """(c): the same command, run again, resumes from the complete parts."""
    first = driver(**anywhere.arguments(address, phase=phase, seconds=0.3))
    output, _ = first.communicate(timeout=600)
    assert first.returncode == -signal.SIGKILL, output
    # A file under the final name is complete.
    if phase == "removing":
        assert sha256(anywhere.output) == anywhere.expected
    else:
        assert not anywhere.output.exists()
    assert anywhere.parts.exists()

    result = anywhere.score(cluster)

    assert result.resumed in PHASES[phase]
    anywhere.assert_whole()
    assert len(set(scored(anywhere.notes))) >= (0 if phase == "beginning" else UNITS)


def test_half_written_part(cluster, anywhere):
    """(d): one part has only its first half, another still has its temporary name."""
    paths = anywhere.make_parts()
    data = paths[0].read_bytes()
    overwrite(paths[0], data[: len(data) // 2])
    overwrite(anywhere.parts / f".{paths[1].name}.abcd_123.part", paths[1].read_bytes())
    paths[1].unlink()

    result = anywhere.score(cluster)

    anywhere.assert_whole()
    assert result.resumed == UNITS - 2
    assert len(scored(anywhere.notes)) == 2


def test_corrupt_part(cluster, anywhere):
    """(e): one byte of a score differs."""
    path = anywhere.make_parts()[3]
    content = bytearray(path.read_bytes())
    content[content.index(b"0.") + 2] ^= 1
    overwrite(path, content)

    result = anywhere.score(cluster)

    anywhere.assert_whole()
    assert result.resumed == UNITS - 1
    assert len(scored(anywhere.notes)) == 1


def test_replaced_input(cluster, anywhere):
    """(f): parts of the former input are not used for the new one."""
    anywhere.make_parts()
    before = anywhere.expected
    pools_of("dev", anywhere.pools)

    result = anywhere.score(cluster)

    anywhere.assert_whole()
    assert anywhere.expected != before
    assert result.resumed == 0
    assert len(scored(anywhere.notes)) == UNITS


def test_a_folder_of_shards_is_the_run_of_one_process(cluster, anywhere):
    """Workers write the shards, the driver the manifest alone."""
    from aptool.cluster.score import ClusterExecutor

    output = f"{anywhere.output}/"
    system = remote_system(anywhere.notes, 0.0, ONE_CORE)
    result = score(anywhere.units, system, output, ClusterExecutor(cluster))

    assert anywhere.expected
    assert read_run(output).frame.equals(read_run(anywhere.notes / "alone" / "alone.run").frame)
    assert result.units == UNITS
    assert len(list(anywhere.output.iterdir())) == UNITS + 1
    assert not anywhere.parts.exists()


def test_second_driver_is_refused(address, cluster, anywhere, driver):
    """A running driver keeps its output; the second ends at once with one line, and changes nothing."""
    first = driver(**anywhere.arguments(address, seconds=0.5, workers=1))
    wait_for(lambda: len(scored(anywhere.notes)) >= 2)

    with pytest.raises(InputError, match=f"being written by process {first.pid} on .*; expected one command"):
        anywhere.score(cluster, workers=1)

    output, _ = first.communicate(timeout=600)
    assert first.returncode == 0, output
    anywhere.assert_whole()
    assert len(scored(anywhere.notes)) == UNITS


def trouble(scene, question, what):
    (scene.notes / "trouble").write_text(f"{question} {what}")


def test_unit_that_kills_its_workers_is_named_and_all_others_are_kept(cluster, scene):
    """A worker that exits in the middle of a unit, as one killed for its memory does."""
    trouble(scene, "test-q6", "exit")  # the fourth row group

    with pytest.raises(AptoolError) as error:
        scene.score(cluster)

    assert "test.pools.parquet: row group 3: 4 workers were lost while scoring it" in str(error.value)
    assert "smaller --tokens-per-batch" in str(error.value)
    assert f"{UNITS - 1} of {UNITS} row groups are scored and kept" in str(error.value)
    # Four times by workers that it was given to; once more by one without work, if it came to that.
    assert [question for _, question in scored(scene.notes)].count("test-q6") in (4, 5)
    (scene.notes / "trouble").unlink()
    assert scene.score(cluster).resumed == UNITS - 1
    scene.assert_whole()


@pytest.mark.parametrize("what", ["memory", "limit"])
def test_unit_without_enough_memory(cluster, scene, what):
    trouble(scene, "test-q6", what)

    with pytest.raises(AptoolError) as error:
        scene.score(cluster)

    assert "test.pools.parquet: row group 3: out of memory on node" in str(error.value)
    assert "a smaller --tokens-per-batch takes less memory" in str(error.value)
    assert len(list(scene.parts.glob("*.part"))) == UNITS - 1
    (scene.notes / "trouble").unlink()
    assert scene.score(cluster).resumed == UNITS - 1
    scene.assert_whole()


def test_unreadable_row_group_is_named_and_all_others_are_kept(cluster, scene):
    """The pages of one row group are overwritten; the footer, which the driver reads, is intact."""
    import pyarrow.parquet as pq

    group = pq.read_metadata(scene.pools).row_group(5).column(0)
    content = bytearray(scene.pools.read_bytes())
    begin = group.dictionary_page_offset or group.data_page_offset
    content[begin : begin + group.total_compressed_size] = b"\xff" * group.total_compressed_size
    scene.pools.write_bytes(content)

    with pytest.raises(AptoolError) as error:
        scene.score(cluster)

    assert "test.pools.parquet: row group 5: " in str(error.value)
    assert "expected a readable Parquet file" in str(error.value)
    assert f"{UNITS - 1} of {UNITS} row groups are scored and kept" in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    assert len(list(scene.parts.glob("*.part"))) == UNITS - 1


def test_every_pools_count_is_checked_against_the_input(scene):
    """A part with the right checksum and number of pairs, in which one pair has moved to another pool."""
    from aptool.cluster.score import check_counts
    from aptool.scoring.job import score_task
    from aptool.scoring.parts import write_part

    part = plan(scene.units, SYSTEM, scene.output, "slow")[1]
    scene.parts.mkdir()
    quiet = SlowSystem(scene.notes, 0)
    frame = score_task(read_task(part, quiet, None), quiet)
    write_part(part, frame, 0)
    check_counts([part])
    questions = frame["question_id"].to_list()
    moved = frame.with_columns(
        question_id=pl.Series([questions[-1] if n == 0 else name for n, name in enumerate(questions)]),
        answer_id=pl.Series([f"a{n}" for n in range(len(frame))]),
    )
    part.path.unlink()  # a whole part is not written over
    write_part(part, moved, 0)

    with pytest.raises(AptoolError, match=r"question 'test-q2': 5 scores: expected 6"):
        check_counts([part])
