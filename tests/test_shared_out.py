"""How many workers train on a cluster, and how its cores are shared out among them."""

import pytest

from aptool.scoring.cluster import Cluster, Node, Share


class FreeCluster(Cluster):
    """Nodes of the given free cores and GPUs."""

    def __init__(self, *free):
        object.__setattr__(self, "address", "here")
        object.__setattr__(self, "free", free)

    def nodes(self):
        shares = [Share(*free) for free in self.free]
        return [Node(str(i), f"host{i}", share, share, 0.0) for i, share in enumerate(shares)]

    def grows(self):
        return False


@pytest.mark.parametrize(
    ("free", "workers", "gpus", "expected"),
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
    ],
)
def test_shares_by_hand(free, workers, gpus, expected):
    # Ray reads the environment when it is imported: not before a test wants it.
    pytest.importorskip("ray")
    from aptool.training.distributed import shared_out

    number, each = shared_out(FreeCluster(*free), workers, Share(1, gpus))

    assert (number, each.cpus) == expected
    assert each.gpus == gpus
