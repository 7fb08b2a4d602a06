"""A cluster of one node without Ray, to open systems as a driver does."""

from aptool.cluster.connection import Cluster, Resources


class OneNode(Cluster):
    """Four cores and some GPUs."""

    def __init__(self, gpus=0):
        super().__init__("head:1", "logs")
        object.__setattr__(self, "_all", Resources(4, gpus, 64 << 30))

    def nodes(self):
        return [self._all]
