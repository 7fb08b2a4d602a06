"""The way to a cluster, as far as it needs no cluster: addresses, shares, versions."""

import platform

import pytest

from aptool.cluster.connection import check_versions, checked_address
from aptool.cluster.resources import Cluster, Node, Resources, count, worker_resources
from aptool.errors import AptoolError, UsageError


@pytest.mark.parametrize(
    "address",
    ["auto", "local", "127.0.0.1:6379", "head.example.org:6379", "ray://head:10001", "[::1]:6379"],
)
def test_addresses(address):
    assert checked_address(address) == address


@pytest.mark.parametrize("address", ["pools.parquet", "head", "head:", "http://head:8265", "s3://a/b", "--x"])
def test_no_addresses(address):
    with pytest.raises(UsageError) as error:
        checked_address(address)

    assert repr(address) in str(error.value)


NOTHING = Resources(0, 0)


def node(cpus, gpus=0.0, taken=NOTHING):
    free = Resources(cpus - taken.cpus, gpus - taken.gpus)
    return Node("id", "host", free, Resources(cpus, gpus), memory=8e9)


def test_what_fits_on_a_node():
    assert node(4).fits(Resources(1)) == 4
    assert node(4, 1).fits(Resources(1, 0.5)) == 2
    assert node(4, 1).fits(Resources(3, 0.5)) == 1
    assert node(4).fits(Resources(1, 1)) == 0
    assert node(4, taken=Resources(3, 0)).fits(Resources(1)) == 1
    # Ten tenths are one, whatever floating point says of three of them.
    assert node(1, 1).fits(Resources(0.1, 0.1)) == 10


class Some(Cluster):
    """A cluster of given nodes."""

    def __init__(self, *nodes, limit=None):
        super().__init__("head:1", "logs")
        object.__setattr__(self, "given", nodes)
        object.__setattr__(self, "limit", limit)

    def nodes(self):
        return list(self.given)

    def gpus(self):
        return sum(node.all.gpus for node in self.given)

    def grows(self):
        return self.limit is not None


def test_room_is_counted_node_by_node():
    """Two nodes of three cores have room for two workers of two, not for three."""
    cluster = Some(node(3), node(3))

    assert cluster.check_room(2, Resources(2)) == 2
    with pytest.raises(AptoolError) as error:
        cluster.check_room(3, Resources(2))
    line = str(error.value)
    assert "6 CPUs and 0 GPUs free, of 6 CPUs and 0 GPUs, on 2 nodes" in line
    assert "3 workers with 2 CPUs and 0 GPUs each asked for" in line


def test_what_is_taken_is_waited_for_and_what_is_not_there_is_not():
    taken = Some(node(2, taken=Resources(2, 0)))

    with pytest.raises(AptoolError, match="0 CPUs and 0 GPUs free, of 2 CPUs"):
        taken.check_room(1, Resources(1), patience=0)
    assert Some(node(2, taken=Resources(2, 0)), limit={"CPU": 64}).check_room(1, Resources(1)) == 0


def test_a_gpu_each_where_there_are_any():
    with_gpus, without = Some(node(8, 2)), Some(node(8))

    assert worker_resources(with_gpus) == Resources(1, 1)
    assert worker_resources(with_gpus, "cpu") == Resources(1, 0)
    assert worker_resources(with_gpus, gpus=0.25) == Resources(1, 0.25)
    assert worker_resources(without) == Resources(1, 0)
    with pytest.raises(AptoolError, match="no GPU in the cluster, 1 GPU a worker asked for"):
        worker_resources(without, "cuda")
    with pytest.raises(UsageError, match="--device cpu with --gpus-per-worker 1"):
        worker_resources(with_gpus, "cpu", 1)
    with pytest.raises(UsageError, match="'cuda:1': expected auto, cpu or cuda"):
        worker_resources(with_gpus, "cuda:1")


def test_memory_of_a_worker_is_its_share_of_the_fullest_node():
    """8 GB for four workers on one node, for two on the other."""
    assert Some(node(4), node(2)).memory(Resources(1)) == 2e9


def test_versions_that_differ_are_all_named():
    here = {"ray_version": "2.60.0", "python_version": platform.python_version()}
    check_versions("head:1", here, "2.60.0")

    with pytest.raises(AptoolError) as error:
        check_versions("head:1", here | {"ray_version": "2.52.0", "python_version": "3.9.1"}, "2.60.0")

    assert "Ray 2.52.0 there, 2.60.0 here; Python 3.9.1 there, " in str(error.value)


@pytest.mark.parametrize(("number", "words"), [(1, "1 CPU"), (2, "2 CPUs"), (0.5, "0.5 CPUs"), (0, "0 CPUs")])
def test_counts(number, words):
    assert count(number, "CPU") == words
