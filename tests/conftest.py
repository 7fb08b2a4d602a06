"""Fixtures that several test files share."""

import os
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings

# A slow machine is no failure, and the examples are the same each time.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")

# Test processes run side by side, one on each core; none should claim the others' before a test asks for it.
os.environ.setdefault("OMP_NUM_THREADS", "1")


class Finished(NamedTuple):
    """How a command ended; its output line by line."""

    code: int
    out: list[str]
    err: list[str]


@pytest.fixture
def aptool(monkeypatch, capsys):
    """Runs the real command in this process."""
    from aptool.cli.main import main

    def run(*arguments: object) -> Finished:
        monkeypatch.setattr(sys, "argv", ["aptool", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        return Finished(end.value.code or 0, captured.out.splitlines(), captured.err.splitlines())

    return run


@pytest.fixture(scope="session")
def collection_folder(tmp_path_factory) -> Path:
    """The tiny collection: 40 questions to train on, 20 in dev and in test, 6 candidates each. Read only."""
    from tiny import labelled_pools

    from aptool.formats.collection import CollectionWriter

    folder = tmp_path_factory.mktemp("tiny") / "collection"
    with CollectionWriter(folder, name="tiny", source="made for tests") as writer:
        for split, questions in (("train", 40), ("dev", 20), ("test", 20)):
            writer.add_split(split, labelled_pools(split, questions))
    return folder


@pytest.fixture
def collection(collection_folder):
    from aptool.formats.collection import Collection

    return Collection(collection_folder)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory, collection_folder) -> Path:
    """A tiny AP-CNN trained on the tiny collection. Read only."""
    from tiny import recipe

    from aptool.formats.collection import Collection
    from aptool.training.fit import fit

    folder = tmp_path_factory.mktemp("tiny") / "model"
    fit(Collection(collection_folder), recipe("ap-cnn"), folder, seed=1)
    return folder
