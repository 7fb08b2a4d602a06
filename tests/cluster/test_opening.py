"""A driver describes a system as the process does that scores with it."""

import pickle

import pytest
from one_node import OneNode
from scene import write_row_groups

from aptool.data.pools import list_units
from aptool.models.model import load_model
from aptool.scoring.model_system import ModelScorer, ModelSystem
from aptool.scoring.systems import Bm25, RandomScores

pytest.importorskip("ray", reason="the extra `cluster` is not installed")


@pytest.fixture
def pools(tmp_path):
    return write_row_groups(tmp_path / "test.pools.parquet", "test", 12, 6)


@pytest.fixture
def executor():
    from aptool.cluster.score import ClusterExecutor

    return ClusterExecutor(OneNode())


def systems(model_folder):
    return {
        "model": ModelSystem(str(model_folder), "cpu", tokens_per_batch=64),
        "bm25": Bm25(),
        "random": RandomScores(3),
    }


@pytest.mark.parametrize("name", systems(""))
def test_a_worker_and_one_process_open_the_same_system(executor, pools, model_folder, name):
    system, units = systems(model_folder)[name], list_units([pools])

    remote = executor.open(system, units, None)

    local = system.open(units)
    on_worker = pickle.loads(pickle.dumps(remote.system)).open(device="cpu")
    for other in (local, on_worker):
        assert (remote.fingerprint, remote.tag) == (other.fingerprint, other.tag)
        assert remote.description == other.description
        assert remote.max_answer_tokens == other.max_answer_tokens


def test_a_model_is_sent_by_its_folder(executor, pools, model_folder):
    loaded = load_model(model_folder)
    system = ModelSystem(str(model_folder), "cpu", model=loaded)
    remote = executor.open(system, list_units([pools]), None)

    weights = next(loaded.ranker.parameters()).detach().numpy().tobytes()
    assert weights[:64] not in pickle.dumps(remote.system)


def test_a_driver_without_a_gpu_describes_workers_with_a_gpu(pools, model_folder):
    from aptool.cluster.score import ClusterExecutor

    executor = ClusterExecutor(OneNode(gpus=1))
    remote = executor.open(ModelSystem(str(model_folder), precision="bf16"), list_units([pools]), None)

    same = ModelScorer(ModelSystem("m"), load_model(model_folder), "cuda", "bf16")
    assert (remote.fingerprint, remote.description) == (same.fingerprint, same.description)
    assert (remote.device, executor._each.gpus) == ("cuda", 1)
