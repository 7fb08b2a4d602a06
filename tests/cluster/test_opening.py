"""A driver describes a system as the process does that scores with it."""

import pickle
from dataclasses import replace

import pytest
from one_node import OneNode
from scene import write_row_groups

from aptool.errors import UsageError
from aptool.formats.pools import list_units
from aptool.models.model import load_model
from aptool.scoring.encode import encode
from aptool.scoring.model_system import ModelLoader, ModelSystem
from aptool.scoring.passages import PassageLoader
from aptool.scoring.server import RerankServer
from aptool.scoring.systems import BaselineLoader, RandomSystem
from aptool.text.passages import Passages

pytest.importorskip("ray", reason="the extra `cluster` is not installed")


@pytest.fixture
def pools(tmp_path):
    return write_row_groups(tmp_path / "test.pools.parquet", "test", 12, 6)


@pytest.fixture
def executor():
    from aptool.cluster.score import ClusterExecutor

    return ClusterExecutor(OneNode())


@pytest.fixture
def store(pools, model_folder, tmp_path):
    """A store with the answers of the pools, in fp16."""
    encode([str(pools)], str(tmp_path / "store"), model=str(model_folder), precision="fp16", device="cpu")
    return str(tmp_path / "store")


def systems(model_folder, store):
    model = ModelLoader(str(model_folder), "cpu", tokens_per_batch=64)
    return {
        "model": model,
        "encoded": replace(model, encoded=store),
        "passages": PassageLoader(model, Passages(5, 3)),
        "bm25": BaselineLoader("bm25"),
        "server": RerankServer("http://localhost:1/rerank", model="m"),
        "passages of a server": PassageLoader(RerankServer("http://localhost:1/rerank"), Passages(5, 3)),
    }


@pytest.mark.parametrize("name", ["model", "encoded", "passages", "bm25", "server", "passages of a server"])
def test_a_worker_and_one_process_have_the_same_system(executor, pools, model_folder, store, name):
    system, units = systems(model_folder, store)[name], list_units([pools])

    remote = executor.open(system, units, None)

    local = system.load(units, None)
    on_worker = pickle.loads(pickle.dumps(remote.load))("cpu")
    for other in (local, on_worker):
        assert (remote.fingerprint, remote.tag) == (other.fingerprint, other.tag)
        assert remote.describe() == other.describe()
        assert remote.max_answer_tokens == other.max_answer_tokens
        assert remote.scored_texts == other.scored_texts
    if name == "encoded":
        assert remote.describe()["encoded"] == {"store": store, "precision": "fp16"}


def test_a_model_is_sent_by_its_folder(executor, pools, model_folder, store):
    remote = executor.open(ModelLoader(str(model_folder), "cpu", encoded=store), list_units([pools]), None)

    weights = next(load_model(model_folder).ranker.parameters()).detach().numpy().tobytes()
    assert weights[:64] not in pickle.dumps(remote)
    assert remote.paths == (str(model_folder), store)
    assert hash(remote.load) == hash(pickle.loads(pickle.dumps(remote.load)))


def test_a_driver_without_a_gpu_describes_workers_with_a_gpu(pools, model_folder):
    from aptool.cluster.score import ClusterExecutor

    loader = ModelLoader(str(model_folder), precision="bf16")
    remote = ClusterExecutor(OneNode(gpus=1)).open(loader, list_units([pools]), None)

    same = ModelSystem(load_model(model_folder), "cuda", precision="bf16")
    assert (remote.fingerprint, remote.describe()) == (same.fingerprint, same.describe())
    assert (remote.describe()["device"], remote.resources.gpus) == ("cuda", 1)


def test_a_system_of_the_user_is_refused_in_one_line(executor, pools):
    with pytest.raises(UsageError, match=r"^cluster: RandomSystem: expected a model folder, a Model with"):
        executor.open(RandomSystem(), list_units([pools]), None)
