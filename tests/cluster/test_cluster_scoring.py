"""Scoring on a cluster: the same bytes as one process, whatever workers and nodes are lost or slow."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from recorded import recorded
from scene import UNITS, wait_for
from slow import remote_system, scored

from aptool.cluster.resources import Cluster, Resources
from aptool.errors import AptoolError
from aptool.formats.pools import list_units
from aptool.scoring.score import score


def test_two_workers_write_what_one_process_writes(cluster, anywhere):
    with recorded() as told:
        result = anywhere.score(cluster, seconds=0.2)

    anywhere.assert_whole()
    assert (result.pairs, result.units, result.resumed, result.retried) == (96, UNITS, 0, 0)
    assert result.workers == 2
    pairs = range(0, 97, 96 // UNITS)
    assert [update[:3] for update in told.updates_of["score"]] == [(done, 96, "pairs") for done in pairs]


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
        # At least that one; also those that waited behind it, or whose parts were still being written.
        assert 1 <= result.run_twice < UNITS
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
    """The third node is lost while its worker scores; the other nodes score the rest."""
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
