"""An input of the campaign, and helpers of the surfaces."""

import functools
import gzip
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import readers
from mutators import NASTY_TEXTS, flip, mutate_bytes
from world import World, command

from aptool.formats.outputs import MANIFEST

Surface = Callable[["Case"], None]
SURFACES: dict[str, tuple[int, Surface]] = {}  # weight (relative number of inputs) and function


class Case:
    """An input: its random numbers, and the command that it runs in the current folder."""

    def __init__(self, world: World, random_: random.Random) -> None:
        self.world = world
        self.random = random_
        self.ended = "-"  # exit code of the command

    def run(self, *arguments: Any, outputs: tuple[str, ...] = ()) -> str | None:
        """Run a command; return its stdout, or None if it ended with an error of one line.

        Args:
            arguments: arguments of the command.
            outputs: names that the command may write.
        """
        here = Path.cwd()
        before = readers.listing(here)
        done = command(*arguments)
        self.ended = str(done.code)
        after = readers.listing(here)
        names = [name for name in before | after if not name.endswith(MANIFEST)]
        changed = {name for name in names if before.get(name) != after.get(name)}
        foreign = [name for name in changed if name.partition("/")[0] not in outputs]
        assert not foreign, f"wrote or changed {sorted(foreign)[:5]}"
        assert done.code in (0, 1, 2), f"exit code {done.code}"
        if done.code == 0:
            return done.out
        half = [name for name in changed if "/" not in name and not name.endswith((".parts", ".training"))]
        assert not half, f"failed and left {half[:5]}"
        errors = [line for line in done.err if line.startswith("aptool: ")]
        faults = [line for line in done.err if line.endswith(" invalid")]
        assert len(errors) + len(faults) == 1, f"{len(errors)} lines of errors: {done.err[:3]}"
        assert len("".join(errors)) < 2100, "a line of more than 2,100 characters"
        assert not any("Traceback" in line for line in done.err)
        return None

    def nasty(self) -> str:
        return self.random.choice(NASTY_TEXTS)


def surface(weight: int) -> Callable[[Surface], Surface]:
    def add(function: Surface) -> Surface:
        SURFACES[function.__name__] = (weight, function)
        return function

    return add


@functools.cache
def content(path: Path) -> bytes:
    """The cached content of a file of the world."""
    return path.read_bytes()


def packed(case: Case, name: str, data: bytes) -> str:
    """Write a file, sometimes as gzip or damaged gzip; return its name."""
    if case.random.random() < 0.8:
        Path(name).write_bytes(data)
        return name
    data = gzip.compress(data, 1, mtime=0)
    name = f"{name}.gz"
    Path(name).write_bytes(mutate_bytes(case.random, data) if case.random.random() < 0.4 else data)
    return name


def flipped_or_worse(case: Case, data: bytes) -> bytes:
    return flip(case.random, data) if case.random.random() < 0.7 else mutate_bytes(case.random, data)


def unpacked(name: str) -> bytes:
    data = Path(name).read_bytes()
    return gzip.decompress(data) if name.endswith(".gz") else data


def score_with_model(case: Case) -> None:
    """Score the test pools with the folder ``m``; a run must have the pairs of the undisturbed run."""
    outputs = ("x.run", "x.run.parts", "x.run.ir-metadata.yml")
    pools = case.world.collection / "test.pools.parquet"
    if case.run("score", pools, "--model", "m", "--output", "x.run", outputs=outputs) is not None:
        actual, expected = (
            readers.scores(data) for data in (Path("x.run").read_bytes(), content(case.world.run))
        )
        assert {q: set(actual[q]) for q in actual} == {q: set(expected[q]) for q in expected}
