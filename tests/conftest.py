"""Fixtures that several test files share."""

import gc
import os
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings

# Without deadlines, since machines may be slow, and with the same examples in each run.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")

# Tests compute on the CPU, and simulate GPUs, also where there is one. PyTorch reads it when it is imported.
os.environ["CUDA_VISIBLE_DEVICES"] = ""

# Tests run in one process per core, so each process uses one thread by default.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect without garbage collection, in two thirds of the time: tests import much and free little."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


class Finished(NamedTuple):
    """Exit code and output lines of a command."""

    code: int
    out: list[str]
    err: list[str]


@pytest.fixture
def aptool(monkeypatch, capsys):
    """Run a command of aptool in this process."""
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
    """The tiny collection: 40 training questions, 20 in dev and in test, 6 candidates each. Read only."""
    from tiny import labelled_pools

    from aptool.data.writing import write_collection

    folder = tmp_path_factory.mktemp("tiny") / "collection"
    splits = {
        split: labelled_pools(split, size) for split, size in (("train", 40), ("dev", 20), ("test", 20))
    }
    write_collection(folder, splits, name="tiny", source="made for tests")
    return folder


@pytest.fixture
def collection(collection_folder):
    from aptool.data.collection import Collection

    return Collection(collection_folder)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory, collection_folder) -> Path:
    """A tiny AP-CNN trained on the tiny collection. Read only."""
    from tiny import recipe

    from aptool.data.collection import Collection
    from aptool.training.fit import fit

    folder = tmp_path_factory.mktemp("tiny") / "model"
    fit(Collection(collection_folder), recipe("ap-cnn"), folder, seed=1)
    return folder


@pytest.fixture
def encoder_folder(tmp_path):
    """A random two-layer BERT of width 16."""
    from networks import write_network

    return write_network(tmp_path / "encoder")


@pytest.fixture(scope="session")
def s3_server():
    """An S3 server on loopback; skips where none is installed."""
    import s3

    s3.require()
    with s3.server() as url:
        yield url


@pytest.fixture
def s3_at(monkeypatch):
    """Direct this process and its child processes to an S3 server or a proxy."""
    import s3

    from aptool.paths import open_store

    def direct(url):
        for name, value in {**s3.CREDENTIALS, "AWS_ENDPOINT_URL": url}.items():
            monkeypatch.setenv(name, value)
        open_store.cache_clear()

    yield direct
    open_store.cache_clear()


@pytest.fixture
def bucket(s3_server, s3_at):
    """The URL of a new bucket."""
    import s3

    s3_at(s3_server)
    return s3.new_bucket(s3_server)


@pytest.fixture(params=["disk", "s3"])
def folder(request, tmp_path):
    """An empty folder on a disk, then on S3, as a location."""
    from aptool.paths import Url

    return tmp_path if request.param == "disk" else Url(request.getfixturevalue("bucket"))


@pytest.fixture
def s3_proxy(s3_server, bucket, s3_at):
    """A proxy of the server of ``bucket``; see ``s3.Proxy``."""
    import s3

    with s3.proxy(s3_server) as started:
        s3_at(started.url)
        yield started
