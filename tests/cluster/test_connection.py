"""Addresses, errors and output of a connection, and resources of nodes, without a cluster."""

import pytest
from recorded import recorded

from aptool.cluster.connection import check_address, connection_error
from aptool.cluster.resources import Cluster, Resources, Wait, worker_resources
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


def test_capacity_of_a_node():
    assert Resources(4).capacity(Resources(1)) == 4
    assert Resources(4, 1).capacity(Resources(1, 0.5)) == 2
    assert Resources(4, 1).capacity(Resources(3, 0.5)) == 1
    assert Resources(4).capacity(Resources(1, 1)) == 0
    # Ten tenths fit, despite rounding.
    assert Resources(1, 1).capacity(Resources(0.1, 0.1)) == 10


def node(cpus, gpus=0.0):
    return Resources(cpus, gpus, 8e9)


class FakeCluster(Cluster):
    """A cluster of given nodes."""

    def __init__(self, *nodes, wait=None):
        super().__init__("head:1", "logs", wait)
        object.__setattr__(self, "given", nodes)

    def nodes(self):
        return list(self.given)


def test_capacity_is_counted_node_by_node():
    """Two nodes of three cores have room for two workers with two cores, not for three."""
    cluster = FakeCluster(node(3), node(3), wait=0)

    assert cluster.capacity(Resources(2)) == 2
    Wait(cluster, 2, Resources(2)).poll()
    with pytest.raises(AptoolError) as error:
        Wait(cluster, 3, Resources(2)).poll()
    assert str(error.value) == (
        "--cluster head:1: 6 CPUs and 0 GPUs, on 2 nodes: room for 2; "
        "expected room for 3 workers with 2 CPUs and 0 GPUs each"
    )


@pytest.fixture
def clock(monkeypatch):
    """A function that sets the time of a wait."""
    from aptool.cluster import resources

    now = [0.0]
    monkeypatch.setattr(resources.time, "monotonic", lambda: now[0])
    return lambda second: now.__setitem__(0, second)


def test_missing_resources_are_named_every_half_minute_until_the_wait_ends(clock):
    """A wait of 65 s has lines at 0, 30 and 60 s."""
    wait = Wait(FakeCluster(node(2), wait=65), 3, Resources(1))

    with recorded() as records:
        for second in range(65):
            clock(second)
            wait.poll()
    clock(65)
    with pytest.raises(AptoolError, match=r"room for 2; expected room for 3 workers .* within 65 s"):
        wait.poll()
    line = "waiting for 3 workers with 1 CPU and 0 GPUs each; the cluster has 2 CPUs and 0 GPUs, on 1 node"
    assert records.messages == [line] * 3


def test_a_wait_for_other_work_is_named_every_half_minute(clock):
    wait = Wait(FakeCluster(node(2), wait=0), 1, Resources(1))

    with recorded() as records:
        for second in range(65):
            clock(second)
            wait.poll(has_begun=False)
    line = "waiting for 1 worker with 1 CPU and 0 GPUs each, while other work uses the cluster"
    assert records.messages == [line] * 2


def test_memory_is_named_if_it_is_the_reason():
    with pytest.raises(AptoolError, match=r"1 worker with 1 CPU and 0 GPUs each, 9\.0 GB of memory"):
        Wait(FakeCluster(node(2), wait=0), 1, Resources(1, memory=9e9)).poll()


def test_a_wait_begins_again_after_room_was_found(clock):
    """The limit is for each loss of a node."""
    cluster = FakeCluster(node(2), wait=10)
    wait = Wait(cluster, 2, Resources(1))

    clock(100)
    wait.poll()
    object.__setattr__(cluster, "given", (node(1),))
    clock(105)
    wait.poll()
    clock(110)
    with pytest.raises(AptoolError, match="room for 1; expected room for 2 workers"):
        wait.poll()


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


@pytest.mark.parametrize(
    ("address", "message", "phrases"),
    [
        ("head:1", MISMATCH, ["Ray: 2.52.0 Python: 3.9.1 This process", "Ray: 2.60.0 Python: 3.11.7"]),
        ("head:1", "failed", ["--cluster head:1: failed: expected the head of", "set RAY_AUTH_MODE=token"]),
        ("auto", "failed", ["failed: expected a cluster on this machine", "`ray start --head` starts one"]),
        ("local", "failed", ["failed: expected Ray to start; RAY_TMPDIR names a writable folder"]),
    ],
)
def test_error_of_a_failed_connection_is_one_line(address, message, phrases):
    line = str(connection_error(address, ConnectionError(message)))

    assert "\n" not in line
    for phrase in phrases:
        assert phrase in line


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


def test_error_names_the_environment_variable_of_an_address():
    with pytest.raises(
        UsageError, match=r"^RAY_ADDRESS 'nonsense': expected host:port of the head, auto or local$"
    ):
        check_address("nonsense", "RAY_ADDRESS")
