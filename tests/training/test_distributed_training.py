"""Parts of training on a cluster that need no cluster: resources, checks and messages of workers."""

from dataclasses import replace
from pathlib import Path

import pytest
from tiny import recipe

from aptool.cluster.resources import Cluster, Node, Resources
from aptool.environment import versions_of
from aptool.errors import AptoolError


@pytest.fixture
def distributed():
    # Ray reads the environment on import.
    pytest.importorskip("ray")
    from aptool.cluster import train

    return train


@pytest.fixture
def worker():
    """The module that a worker runs."""
    pytest.importorskip("ray")
    from aptool.cluster import train_worker

    return train_worker


class FreeCluster(Cluster):
    """Nodes with the given cores and GPUs, all free."""

    def __init__(self, *totals):
        super().__init__("here", "logs")
        object.__setattr__(self, "totals", totals)

    def nodes(self):
        return [Node(str(i), Resources(*total)) for i, total in enumerate(self.totals)]

    def free(self):
        return self.total()


@pytest.mark.parametrize(
    ("totals", "workers", "gpus", "expected"),
    [
        # One worker per node, with all its cores; if nodes differ, the smallest decides.
        (((8, 0),), None, 0, (1, 8)),
        (((1, 0), (1, 0)), None, 0, (2, 1)),
        (((8, 0), (6, 0), (0, 0)), None, 0, (2, 6)),
        # The requested number: three workers share 16 cores, two of them on one node of 8.
        (((8, 0), (8, 0)), 3, 0, (3, 4)),
        (((8, 0), (8, 0)), 1, 0, (1, 8)),
        # One worker per GPU, or two with half a GPU each.
        (((16, 2), (16, 2), (4, 0)), None, 1, (4, 8)),
        (((16, 2),), None, 0.5, (4, 4)),
        # A minimum and a maximum: as many as fit.
        (((8, 0), (6, 0)), (1, 4), 0, (4, 3)),
        (((1, 0), (1, 0)), (1, 4), 0, (2, 1)),
        (((16, 2), (16, 2)), (2, 3), 1, (3, 8)),
    ],
)
def test_number_and_cores_of_workers_by_hand(distributed, totals, workers, gpus, expected):
    number, each = distributed.allocate_workers(FreeCluster(*totals), workers, Resources(1, gpus))

    assert (number, each.cpus) == expected
    assert each.gpus == gpus


@pytest.fixture
def job(worker, collection_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.training").mkdir()
    (tmp_path / "model.training" / "driver").write_text('{"token": "mine"}')
    tiny_recipe = recipe("ap-cnn")
    return worker.TrainingJob(
        *(tmp_path, collection_folder, tiny_recipe, Path("model"), 0, "key", "mine"),
        versions=tuple(versions_of("torch").items()),
        gpu=False,
    )


def test_a_worker_opens_the_files_of_the_driver(worker, job):
    assert worker.open_collection(job).name == "tiny"


def test_a_worker_on_another_disk_is_an_error(worker, job, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "model.training").mkdir(parents=True)
    (elsewhere / "model.training" / "driver").write_text('{"token": "another"}')
    for other in (replace(job, output=Path("none")), replace(job, start=elsewhere)):
        with pytest.raises(
            AptoolError, match=r"\.training: not found, or not the driver's folder: expected an"
        ):
            worker.open_collection(other)


def test_a_worker_without_the_collection_is_an_error(worker, job):
    with pytest.raises(AptoolError, match="none: folder not found"):
        worker.open_collection(replace(job, collection=Path("none")))


def test_a_worker_with_another_torch_is_an_error(worker, job):
    other = replace(job, versions=(("torch", "1.0"),))

    with pytest.raises(AptoolError, match=r"torch \d.* there, 1\.0 here: expected the same versions"):
        worker.open_collection(other)


@pytest.mark.parametrize(
    ("free", "placed", "ends"), [((1, 0), 1, True), ((1, 0), 0, False), ((0.5, 0), 1, False)]
)
def test_a_training_grows_if_the_scheduler_has_room(monkeypatch, free, placed, ends):
    """Enough free cores on all nodes together may be too few on each of them."""
    cluster = FreeCluster((1, 0), (1, 0))
    monkeypatch.setattr(FreeCluster, "free", lambda self: Resources(*free))
    monkeypatch.setattr(FreeCluster, "reserve", lambda self, requested, each: requested[:placed])

    assert cluster.has_room(Resources(1)) == ends
