"""Scoring on a cluster, with lost and slow workers and nodes."""

import contextlib
import ctypes
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from aptool.scoring.score import score_files
from recorded import recorded
from scene import UNITS, sha256, wait_for
from slow import ONE_CORE, SlowSystem, executor_of, scored

from aptool.cluster.resources import Resources
from aptool.formats.runs import read_run, write_run


def test_two_workers_write_the_run_of_one_process(cluster, anywhere):
    with recorded() as records:
        result = anywhere.score(cluster, seconds=0.2)

    anywhere.assert_complete()
    assert (result.pairs, result.units, result.resumed, result.retried) == (96, UNITS, 0, 0)
    assert result.workers == 2
    pairs = range(96 // UNITS, 97, 96 // UNITS)
    assert [update[:3] for update in records.updates["score"]] == [(done, 96, "pairs") for done in pairs]


@pytest.fixture
def other_code(tmp_path):
    """A folder with an aptool of another version, which lacks the modules of this one."""
    (tmp_path / "code" / "aptool").mkdir(parents=True)
    (tmp_path / "code" / "aptool" / "__init__.py").write_text("")
    (tmp_path / "code" / "aptool" / "version.py").write_text("__version__ = '0.1.0'")
    return tmp_path / "code"


@pytest.mark.parametrize("joins", [False, True], ids=["before", "meanwhile"])
def test_node_with_another_version_is_left_out_with_one_warning(
    nodes, cluster, scene, driver, address, other_code, surroundings, joins
):
    """The run goes on without the node, which has most of the cores."""
    paths = os.pathsep.join([str(other_code), surroundings["PYTHONPATH"]])
    other = {"num_cpus": 4, "object_store_memory": 80 << 20, "env_vars": {"PYTHONPATH": paths}}
    node = None if joins else nodes.add_node(**other)
    try:
        # Not in this process, whose folder Ray adds to the path of all workers.
        process = driver(**scene.arguments(address, seconds=3.0 if joins else 0.2, verbose=True))
        if joins:
            wait_for(lambda: scored(scene.notes) or process.poll() is not None)
            node = nodes.add_node(**other)
        lines, _ = process.communicate(timeout=600)
    finally:
        if node is not None:
            nodes.remove_node(node)

    assert process.returncode == 0, lines
    scene.assert_complete()
    assert lines.count("left out") == 1, lines
    assert "aptool 0.1.0 there, " in lines
    assert "room for 2 workers" in lines


@contextlib.contextmanager
def hidden(folder):
    """Processes that this thread starts see an empty folder: they have a mount namespace of their own."""
    libc, new_mounts, own_folder = ctypes.CDLL(None), 0x20000, 0x200  # CLONE_NEWNS, CLONE_FS
    current, before = Path.cwd(), os.open("/proc/thread-self/ns/mnt", os.O_RDONLY)
    if libc.unshare(new_mounts):
        pytest.skip("only root has mount namespaces")
    try:
        subprocess.run(["mount", "--make-rprivate", "/"], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
        yield
    finally:
        assert (libc.unshare(own_folder), libc.setns(before, new_mounts)) == (0, 0)  # not that of new threads
        os.chdir(current)
        os.close(before)


def test_node_that_does_not_see_the_pools_is_left_out(nodes, cluster, scene, driver, address):
    with hidden(scene.pools.parent):
        node = nodes.add_node(num_cpus=4, object_store_memory=80 << 20)
    try:
        process = driver(**scene.arguments(address, seconds=0.2, verbose=True))
        lines, _ = process.communicate(timeout=600)
    finally:
        nodes.remove_node(node)

    assert process.returncode == 0, lines
    scene.assert_complete()
    assert lines.count("left out") == 1, lines
    assert f"{scene.pools}: file not found; expected a path that every node sees; the node is" in lines
    assert "room for 2 workers" in lines


@pytest.mark.parametrize("name", ["out", "out.parquet"])
def test_shards_of_workers_are_those_of_one_process(cluster, scene, monkeypatch, name):
    """The tasks of a cluster write the shards, with the names and bytes of the shards of this process."""
    monkeypatch.setattr("aptool.scoring.merge.SHARD_BYTES", 1000)
    folder = scene.output.parent / name
    written = []
    for executor in (
        executor_of(cluster, ONE_CORE, workers=2),
        executor_of(cluster, ONE_CORE, workers=1),
        None,
    ):
        system = SlowSystem(notes=str(scene.notes))
        score_files(scene.units, system, f"{folder}/", executor, tag="slow")
        written.append({path.name: path.read_bytes() for path in folder.glob("*[a-z]")})

    assert len(written[0]) > 3
    assert written[0] == written[1] == written[2]
    write_run(scene.output, *read_run(folder))
    assert sha256(scene.output) == scene.expected


def test_other_processes_read_for_workers_with_a_gpu(nodes, cluster, scene):
    """The GPU is only a resource of the scheduler."""
    node = nodes.add_node(num_cpus=2, num_gpus=1, object_store_memory=80 << 20)
    try:
        wait_for(lambda: cluster.total().gpus == 1)
        assert cluster.check_room(1, Resources(1, 0.5)) == 2
        result = scene.score(cluster, seconds=0.2, workers=2, each=Resources(cpus=0, gpus=0.5))
    finally:
        nodes.remove_node(node)

    scene.assert_complete()
    assert (result.pairs, result.workers) == (96, 2)


def score_and_meanwhile(cluster, scene, act, **more):
    """Score, and call ``act`` while every worker is in the middle of a unit; return both results."""
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


def test_unit_of_a_killed_worker_is_scored_again(cluster, anywhere):
    def kill():
        wait_for(lambda: len(scored(anywhere.notes)) == 2)
        process, question = scored(anywhere.notes)[-1]
        os.kill(process, signal.SIGKILL)
        return question

    result, lost = score_and_meanwhile(cluster, anywhere, kill, workers=2)

    anywhere.assert_complete()
    assert result.retried + result.run_twice >= 1  # by a new worker or by the other worker
    begun = scored(anywhere.notes)
    assert len(begun) > UNITS
    # Another process started the lost unit again.
    assert len({process for process, question in begun if question == lost}) >= 2


def test_idle_worker_scores_the_unit_of_a_slow_worker(cluster, anywhere):
    """The run ends before the slow worker."""
    stuck = anywhere.notes / "stuck"
    stuck.write_text("test-q6")  # in the fourth row group
    try:
        with recorded() as records:
            result = anywhere.score(cluster, workers=2)

        anywhere.assert_complete()
        assert (result.pairs, result.retried) == (96, 0)
        # Possibly also units that were queued or being written.
        assert 1 <= result.run_twice < UNITS
        assert f"{result.run_twice} run twice, by " in records.messages[-1]
        assert len({process for process, question in scored(anywhere.notes) if question == "test-q6"}) == 2
    finally:
        stuck.unlink()
    # The slow worker does not change the run file later.
    wait_for(lambda: cluster.free().cpus == cluster.total().cpus)
    anywhere.assert_complete()


def test_idle_worker_with_a_gpu_scores_the_unit_of_a_slow_worker(nodes, cluster, scene):
    """The GPU is only a resource of the scheduler."""
    stuck = scene.notes / "stuck"
    stuck.write_text("test-q6")  # in the fourth row group
    node = nodes.add_node(num_cpus=2, num_gpus=1, object_store_memory=80 << 20)
    try:
        wait_for(lambda: cluster.total().gpus == 1)
        result = scene.score(cluster, workers=2, each=Resources(cpus=0, gpus=0.5))

        scene.assert_complete()
        assert (result.pairs, result.retried) == (96, 0)
        assert 1 <= result.run_twice <= UNITS // 2  # the units that the slow worker held
    finally:
        stuck.unlink()
        nodes.remove_node(node)


@pytest.mark.parametrize("announced", [False, True], ids=["lost", "preempted"])
def test_units_of_a_removed_node_are_scored_again(nodes, cluster, scene, preempt, announced):
    """The third node is lost while its worker scores."""
    before = {node.node_id for node in cluster.nodes()}
    node = nodes.add_node(num_cpus=1, object_store_memory=80 << 20)
    wait_for(lambda: cluster.check_room(1, Resources(cpus=1)) == 3)
    raylet = node.all_processes["raylet"][0].process.pid

    def remove():
        wait_for(lambda: any(_parent(process) == raylet for process, _ in scored(scene.notes)))
        process, question = next(unit for unit in scored(scene.notes) if _parent(unit[0]) == raylet)
        if announced:
            (new,) = {node.node_id for node in cluster.nodes()} - before
            preempt(new)
        os.kill(process, signal.SIGKILL)  # the unit must not be completed before
        nodes.remove_node(node, allow_graceful=False)
        return process, question

    result, (gone, lost) = score_and_meanwhile(cluster, scene, remove, workers=3)

    scene.assert_complete()
    assert result.retried + result.run_twice >= 1
    begun = scored(scene.notes)
    assert len(begun) > UNITS
    assert [process for process, question in begun if question == lost][-1] != gone


def _parent(process):
    """The id of the parent of a process, or None if the process has ended."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return None
