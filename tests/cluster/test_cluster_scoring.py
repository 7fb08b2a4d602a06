"""Scoring on a cluster, with lost and slow workers and nodes."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from recorded import recorded
from scene import UNITS, node_ids, wait_for
from slow import ONE_CORE, SlowSystem, executor_of, scored

from aptool.cluster.connection import Resources
from aptool.scoring.run import score_files


def test_two_workers_write_the_run_of_one_process(cluster, anywhere):
    with recorded() as records:
        result = anywhere.score(cluster, seconds=0.2)

    anywhere.assert_complete()
    assert (result.pairs, result.units, result.resumed) == (96, UNITS, 0)
    assert len({process for process, _ in scored(anywhere.notes)} - {os.getpid()}) == 2
    pairs = range(96 // UNITS, 97, 96 // UNITS)
    assert [update[:3] for update in records.updates["score"]] == [(done, 96, "pairs") for done in pairs]


@pytest.mark.parametrize("name", ["out/", "out.parquet"])
def test_other_forms_of_a_run_are_those_of_one_process(cluster, scene, name):
    written = []
    for executor in (executor_of(cluster, ONE_CORE, workers=2), None):
        output = scene.output.parent / str(len(written))
        output.mkdir()
        system = SlowSystem(notes=str(scene.notes))
        score_files(scene.units, system, f"{output}/{name}", executor, tag="slow")
        files = [path for path in output.rglob("*") if path.is_file() and path.suffix != ".json"]
        written.append({path.relative_to(output): path.read_bytes() for path in files})

    assert len(written[0]) == (UNITS if name == "out/" else 1)
    assert written[0] == written[1]


def test_workers_with_a_gpu_write_the_run_of_one_process(nodes, cluster, scene):
    """The GPU is only a resource of the scheduler."""
    node = nodes.add_node(num_cpus=2, num_gpus=1, object_store_memory=80 << 20)
    try:
        wait_for(lambda: cluster.total().gpus == 1)
        result = scene.score(cluster, seconds=0.2, workers=2, each=Resources(cpus=0, gpus=0.5))
    finally:
        nodes.remove_node(node)

    scene.assert_complete()
    assert (result.pairs, result.units) == (96, UNITS)


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

    _, lost = score_and_meanwhile(cluster, anywhere, kill, workers=2)

    anywhere.assert_complete()
    begun = scored(anywhere.notes)
    assert len(begun) > UNITS
    # Another process started the lost unit again.
    assert len({process for process, question in begun if question == lost}) >= 2


@pytest.mark.parametrize("announced", [False, True], ids=["lost", "preempted"])
def test_units_of_a_removed_node_are_scored_again(nodes, cluster, scene, preempt, announced):
    """The third node is lost while its worker scores."""
    before = node_ids()
    node = nodes.add_node(num_cpus=1, object_store_memory=80 << 20)
    wait_for(lambda: cluster.capacity(Resources(cpus=1)) == 3)
    raylet = node.all_processes["raylet"][0].process.pid

    def remove():
        wait_for(lambda: any(_parent(process) == raylet for process, _ in scored(scene.notes)))
        process, question = next(unit for unit in scored(scene.notes) if _parent(unit[0]) == raylet)
        if announced:
            (new,) = node_ids() - before
            preempt(new)
        os.kill(process, signal.SIGKILL)  # the unit must not be completed before
        nodes.remove_node(node, allow_graceful=False)
        return process, question

    _, (gone, lost) = score_and_meanwhile(cluster, scene, remove, workers=3)

    scene.assert_complete()
    begun = scored(scene.notes)
    assert len(begun) > UNITS
    assert [process for process, question in begun if question == lost][-1] != gone


def _parent(process):
    """The id of the parent of a process, or None if the process has ended."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[1])
    except OSError:
        return None
