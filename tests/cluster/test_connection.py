"""Addresses, errors and output of a connection, and resources of nodes, without a cluster."""

import itertools
import threading

import pytest
from recorded import recorded

from aptool.cluster.connection import check_address, connection_error
from aptool.cluster.resources import (
    Cluster,
    Node,
    Resources,
    Wait,
    capacity,
    wait_until_free,
    worker_resources,
)
from aptool.errors import AptoolError, UsageError, counted


@pytest.mark.parametrize(
    "address",
    ["auto", "local", "127.0.0.1:6379", "head.example.org:6379", "[::1]:6379"],
)
def test_valid_addresses_are_accepted(address):
    check_address(address)


@pytest.mark.parametrize(
    "address", ["pools.parquet", "head", "head:", "http://head:8265", "ray://head:10001", "s3://a/b", "--x"]
)
def test_invalid_addresses_are_refused(address):
    with pytest.raises(UsageError) as error:
        check_address(address)

    assert repr(address) in str(error.value)


NOTHING = Resources(0, 0)
NUMBERS = itertools.count()


def node(cpus, gpus=0.0):
    return Node(f"node-{next(NUMBERS)}", Resources(cpus, gpus, 8e9))


def test_capacity_of_a_node():
    assert capacity(Resources(4), Resources(1)) == 4
    assert capacity(Resources(4, 1), Resources(1, 0.5)) == 2
    assert capacity(Resources(4, 1), Resources(3, 0.5)) == 1
    assert capacity(Resources(4), Resources(1, 1)) == 0
    # Ten tenths fit, despite rounding.
    assert capacity(Resources(1, 1), Resources(0.1, 0.1)) == 10


class FakeCluster(Cluster):
    """A cluster of given nodes; ``taken`` are the resources that other drivers use."""

    def __init__(self, *nodes, taken=NOTHING, wait=None):
        super().__init__("head:1", "logs", wait)
        object.__setattr__(self, "given", nodes)
        object.__setattr__(self, "taken", taken)

    def nodes(self):
        return list(self.given)

    def free(self):
        total = self.total()
        return Resources(total.cpus - self.taken.cpus, total.gpus - self.taken.gpus, total.memory)


def test_room_is_counted_node_by_node():
    """Two nodes of three cores have room for two workers with two cores, not for three."""
    cluster = FakeCluster(node(3), node(3), wait=0)

    assert cluster.room(Resources(2)) == 2
    assert Wait(cluster, 2, Resources(2)).is_over()
    with pytest.raises(AptoolError) as error:
        Wait(cluster, 3, Resources(2)).is_over()
    line = str(error.value)
    assert "6 CPUs and 0 GPUs free, of 6 CPUs and 0 GPUs, on 2 nodes" in line
    assert "room for 2; expected room for 3 workers with 2 CPUs and 0 GPUs each" in line


def test_cluster_waits_for_used_resources():
    with pytest.raises(AptoolError, match="0 CPUs and 0 GPUs free, of 2 CPUs"):
        wait_until_free(FakeCluster(node(2), taken=Resources(2, 0), wait=0), 1, Resources(1))
    taken = FakeCluster(node(2), taken=Resources(2, 0))
    threading.Timer(0.3, lambda: object.__setattr__(taken, "taken", NOTHING)).start()

    wait_until_free(taken, 2, Resources(1))

    assert taken.room(Resources(1)) == 2


def test_resources_that_the_nodes_lack_are_waited_for_by_ray():
    wait_until_free(FakeCluster(node(2)), 3, Resources(1))


def test_missing_resources_are_named_every_half_minute_until_the_wait_ends(monkeypatch):
    """A wait of 65 s with a fake clock has lines at 0, 30 and 60 s."""
    from aptool.cluster import resources

    now = [0.0]
    monkeypatch.setattr(resources.time, "monotonic", lambda: now[0])
    wait = Wait(FakeCluster(node(2), wait=65), 3, Resources(1))

    with recorded() as records:
        for second in range(65):
            now[0] = second
            assert not wait.is_over()
    now[0] = 65
    with pytest.raises(AptoolError, match=r"room for 2; expected room for 3 workers .* within 65 s"):
        wait.is_over()
    line = "waiting for 3 workers with 1 CPU and 0 GPUs each; the cluster has 2 CPUs and 0 GPUs"
    assert records.messages == [line] * 3


def test_memory_is_named_if_it_is_the_reason():
    with pytest.raises(AptoolError, match=r"1 worker with 1 CPU and 0 GPUs each, 9\.0 GB of memory"):
        Wait(FakeCluster(node(2), wait=0), 1, Resources(1, memory=9e9)).is_over()


def test_a_wait_begins_again_after_room_was_found():
    """The limit is for each loss of a node."""
    cluster = FakeCluster(node(2), wait=0)
    wait = Wait(cluster, 2, Resources(1))

    assert wait.is_over()
    object.__setattr__(cluster, "given", (node(1),))
    with pytest.raises(AptoolError, match="room for 1; expected room for 2 workers"):
        wait.is_over()


def test_workers_get_a_gpu_if_the_cluster_has_gpus():
    with_gpus, without = FakeCluster(node(8, 2)), FakeCluster(node(8))

    assert worker_resources(with_gpus) == Resources(1, 1)
    assert worker_resources(with_gpus, "cpu") == Resources(1, 0)
    assert worker_resources(with_gpus, gpus=0.25) == Resources(1, 0.25)
    assert worker_resources(without) == Resources(1, 0)
    assert worker_resources(without, "cuda") == Resources(1, 1)  # an autoscaler may add one
    with pytest.raises(UsageError, match="--device cpu with --gpus-per-worker 1"):
        worker_resources(with_gpus, "cpu", 1)
    with pytest.raises(UsageError, match="'cuda:1': expected auto, cpu or cuda"):
        worker_resources(with_gpus, "cuda:1")


def test_memory_of_a_worker_is_the_minimum_over_nodes():
    """8 GB for four workers on one node, and for two workers on the other."""
    assert FakeCluster(node(4), node(2)).memory(Resources(1)) == 2e9


MISMATCH = """Version mismatch: The cluster was started with:
    Ray: 2.52.0
    Python: 3.9.1
This process on node 10.0.0.1 was started with:
    Ray: 2.60.0
    Python: 3.11.7
"""


def test_different_versions_are_named():
    assert str(connection_error("head:1", RuntimeError(MISMATCH))) == (
        "--cluster head:1: Ray 2.52.0 and Python 3.9.1 there, Ray 2.60.0 and Python 3.11.7 here: expected "
        "the same versions"
    )


@pytest.mark.parametrize(
    ("address", "message", "phrase"),
    [
        ("head:1", "RPC error: InvalidAuthToken: ...", "the token is missing or refused: set RAY_AUTH_MODE"),
        ("head:1", "failed to connect", "failed to connect: expected the head of a Ray cluster"),
        ("auto", "failed to connect", "no Ray cluster answers on this machine"),
        ("auto", "Unauthenticated", "the token is missing or refused"),
        ("local", "failed to connect", "RAY_TMPDIR to name a writable folder with a short path"),
    ],
)
def test_error_names_the_reason_of_a_failed_connection(address, message, phrase):
    assert phrase in str(connection_error(address, ConnectionError(message)))


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (1, "1 CPU"),
        (2.0, "2 CPUs"),
        (0.5, "0.5 CPUs"),
        (0, "0 CPUs"),
        (1_234_567, "1,234,567 CPUs"),
    ],
)
def test_a_number_is_counted_with_its_plural(number, words):
    assert counted(number, "CPU") == words


@pytest.mark.parametrize(
    ("address", "server"), [("ray://head:10001", "client server"), ("http://head:8265", "jobs server")]
)
def test_address_of_another_server_of_ray_names_the_job_to_submit(address, server):
    with pytest.raises(UsageError) as error:
        check_address(address)

    assert str(error.value) == (
        f"--cluster {address!r}: the address of Ray's {server}; expected host:port of the head, or "
        "`ray job submit -- aptool ... --cluster`, which runs the command there"
    )


def test_error_names_the_environment_variable_of_an_address():
    with pytest.raises(UsageError, match=r"^RAY_ADDRESS 'nonsense': expected host:port, .* or local$"):
        check_address("nonsense", "RAY_ADDRESS")
