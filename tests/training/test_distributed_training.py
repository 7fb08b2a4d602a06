"""Training on a cluster, as far as it goes without one: resources, checks of the workers, their messages."""

from dataclasses import replace
from pathlib import Path

import pytest
from tiny import recipe

from aptool.cluster.resources import Cluster, Node, Resources
from aptool.cluster.worker import versions
from aptool.errors import AptoolError


@pytest.fixture
def distributed():
    # Ray reads the environment when it is imported: not before a test wants it.
    pytest.importorskip("ray")
    from aptool.cluster import train

    return train


@pytest.fixture
def worker():
    """What a worker runs."""
    pytest.importorskip("ray")
    from aptool.cluster import train_worker

    return train_worker


class FreeCluster(Cluster):
    """Nodes with the given cores and GPUs, all of them free."""

    def __init__(self, *totals):
        super().__init__("here", "logs")
        object.__setattr__(self, "totals", totals)

    def nodes(self):
        return [Node(str(i), f"host{i}", Resources(*total)) for i, total in enumerate(self.totals)]

    def free(self):
        return self.total()


@pytest.mark.parametrize(
    ("totals", "workers", "gpus", "expected"),
    [
        # One worker a node, with all its cores; where nodes differ the smallest decides.
        (((8, 0),), None, 0, (1, 8)),
        (((1, 0), (1, 0)), None, 0, (2, 1)),
        (((8, 0), (6, 0), (0, 0)), None, 0, (2, 6)),
        # As many as asked for: three share sixteen cores, two of them one node of eight.
        (((8, 0), (8, 0)), 3, 0, (3, 4)),
        (((8, 0), (8, 0)), 1, 0, (1, 8)),
        # One a GPU; half a GPU each makes twice as many.
        (((16, 2), (16, 2), (4, 0)), None, 1, (4, 8)),
        (((16, 2),), None, 0.5, (4, 4)),
        # At least and at most: as many as there is room for in between.
        (((8, 0), (6, 0)), (1, 4), 0, (4, 3)),
        (((1, 0), (1, 0)), (1, 4), 0, (2, 1)),
        (((16, 2), (16, 2)), (2, 3), 1, (3, 8)),
    ],
)
def test_cores_are_shared_out_by_hand(distributed, totals, workers, gpus, expected):
    number, each = distributed.shared_out(FreeCluster(*totals), workers, Resources(1, gpus))

    assert (number, each.cpus) == expected
    assert each.gpus == gpus


@pytest.fixture
def job(worker, collection_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.training").mkdir()
    (tmp_path / "model.training" / "driver").write_text('{"token": "mine"}')
    asked = recipe("ap-cnn")
    return worker.TrainingJob(
        *(tmp_path, collection_folder, asked, Path("model"), 0, "mine"), versions=versions(), gpu=False
    )


def test_a_worker_that_sees_what_the_driver_sees_begins(worker, job):
    assert worker.opened(job).name == "tiny"


def test_a_worker_on_another_disk_says_so(worker, job, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "model.training").mkdir(parents=True)
    (elsewhere / "model.training" / "driver").write_text('{"token": "another"}')
    for other in (replace(job, output=Path("none")), replace(job, start=elsewhere)):
        with pytest.raises(
            AptoolError, match=r"\.training: not found, or not the driver's folder: expected an"
        ):
            worker.opened(other)


def test_a_worker_without_the_collection_says_which(worker, job):
    with pytest.raises(AptoolError, match=r"none: no collection\.json in it"):
        worker.opened(replace(job, collection=Path("none")))


def test_a_worker_with_another_torch_says_so(worker, job):
    other = replace(job, versions=(("torch", "1.0"),))

    with pytest.raises(AptoolError, match=r"torch \d.* there, 1\.0 here: expected the same versions"):
        worker.opened(other)


def test_only_the_latest_progress_is_kept(distributed):
    from aptool.cluster.messages import MessageBoard

    board = MessageBoard()
    posted = [(0, "log", "a"), (0, "progress", 1), (0, "progress", 2), (1, "progress", 3), (0, "epoch", {})]
    for message in posted:
        board.post(*message)

    assert board.take() == [posted[0], *posted[2:]]
    assert board.take() == []


@pytest.mark.parametrize(
    ("free", "placed", "ends"), [((1, 0), 1, True), ((1, 0), 0, False), ((0.5, 0), 1, False)]
)
def test_a_training_grows_where_the_scheduler_has_room(worker, monkeypatch, free, placed, ends):
    """Enough free cores on all nodes together may be too few on each of them."""
    cluster = FreeCluster((1, 0), (1, 0))
    monkeypatch.setattr(FreeCluster, "free", lambda self: Resources(*free))
    monkeypatch.setattr(FreeCluster, "placed", lambda self, wanted, each: wanted[:placed])
    growth = worker.Growth(cluster, Resources(1))

    if ends:
        with pytest.raises(AptoolError, match="room for more workers"):
            growth.check()
    else:
        growth.check()

    assert growth.ended == ends
