"""The node that a process of the cluster is on, and whether it has the driver's versions."""

import socket

import torch

from aptool.errors import AptoolError
from aptool.version import __version__

# Package names and versions.
Versions = tuple[tuple[str, str], ...]


def host() -> str:
    """The name of this node."""
    return socket.gethostname()


def versions() -> Versions:
    """Of the packages that must be the same on all nodes; a build of torch for another device is the same."""
    return ("aptool", __version__), ("torch", torch.__version__.partition("+")[0])


def check_versions(wanted: Versions) -> None:
    """Checks that this node has the driver's versions.

    Raises:
        AptoolError: it has others.
    """
    here = dict(versions())
    differ = [f"{name} {here[name]} there, {one} here" for name, one in wanted if here[name] != one]
    if differ:
        raise AptoolError(f"{'; '.join(differ)}: expected the same versions")
