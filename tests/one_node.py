"""A cluster of one node without Ray, to open systems as a driver does."""

from aptool.cluster.resources import Cluster, Node, Resources


class OneNode(Cluster):
    """Four cores and some GPUs, all free."""

    def __init__(self, gpus=0):
        super().__init__("head:1", "logs")
        object.__setattr__(self, "_all", Resources(4, gpus, 64 << 30))

    def nodes(self):
        return [Node("node", self._all)]

    def free(self):
        return self._all
