"""Parts of training on a cluster that need no cluster: resources and checks of workers."""

from pathlib import Path

import pytest

from aptool.cluster.connection import Cluster, Resources
from aptool.environment import versions_of
from aptool.errors import AptoolError


@pytest.fixture
def train():
    # Ray reads the environment on import.
    pytest.importorskip("ray")
    from aptool.cluster import train

    return train


@pytest.fixture
def workers():
    pytest.importorskip("ray")
    from aptool.cluster import workers

    return workers


class FreeCluster(Cluster):
    """Nodes with the given cores and GPUs."""

    def __init__(self, *totals):
        super().__init__("here", "logs")
        object.__setattr__(self, "totals", totals)

    def nodes(self):
        return [Resources(*total) for total in self.totals]


@pytest.mark.parametrize(
    ("totals", "gpus", "minibatch", "expected"),
    [
        (((8, 0),), 0, 16, 1),
        (((8, 0), (6, 0), (0, 0)), 0, 16, 2),
        (((16, 2), (16, 2), (4, 0)), 1, 16, 4),
        (((16, 2),), 0.5, 16, 4),
        (((16, 2), (16, 2)), 1, 3, 3),
        ((), 1, 16, 1),  # an autoscaler may add a node
    ],
)
def test_one_worker_per_gpu_or_per_node_without_gpus(train, totals, gpus, minibatch, expected):
    assert train.default_workers(FreeCluster(*totals), Resources(1, gpus), minibatch) == expected


@pytest.mark.parametrize(
    ("totals", "workers", "gpus", "expected"),
    [
        (((8, 0),), 1, 0, 8),
        (((8, 0), (6, 0)), 2, 0, 6),  # if nodes differ, the smallest decides
        (((8, 0), (8, 0)), 3, 0, 4),  # two of them on one node of 8
        (((16, 2), (16, 2), (4, 0)), 4, 1, 8),
        (((16, 2),), 4, 0.5, 4),
        (((1, 0), (1, 0)), 4, 0, 1),  # more workers than room
    ],
)
def test_cores_are_divided_among_workers(train, totals, workers, gpus, expected):
    assert train.with_cores(FreeCluster(*totals), workers, Resources(1, gpus)) == Resources(expected, gpus)


def test_a_node_that_does_not_see_the_output_is_an_error(workers, tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    workers.check_worker(tmp_path, (), tmp_path)
    assert Path.cwd() == tmp_path
    with pytest.raises(AptoolError, match=r"^none: not found: expected an output on storage that all nodes"):
        workers.check_worker(tmp_path, (), Path("none"))


def test_a_worker_with_another_torch_is_an_error(workers):
    workers.check_versions(tuple(versions_of("torch").items()))
    with pytest.raises(AptoolError, match=r"torch \d.* there, 1\.0 here: expected the same versions"):
        workers.check_versions((("torch", "1.0"),))
