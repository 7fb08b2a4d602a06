"""The surfaces of aptool: for each, an input that differs from a sound one, and what must hold of the result.

A surface is a function of a ``Case``. It writes an input, runs a command on it, and asserts that what came
out is what an independent reader finds in the input, wherever the command was content.
"""

import itertools

from case import SURFACES

from surfaces import (  # noqa: F401 - they register
    checkpoint_keys,
    checkpoints,
    collections,
    defaults,
    existing,
    huge,
    links,
    models,
    options,
    outputs,
    pools,
    published,
    settings,
    stores,
    texts,
    together,
    trec,
)


def schedule() -> list[str]:
    """The surfaces in the order of the inputs, over and over: each as often as its weight."""
    rounds = [[name] * weight for name, (weight, _) in SURFACES.items()]
    return [name for row in itertools.zip_longest(*rounds) for name in row if name is not None]
