"""Settings of PyTorch in the user's process change no result, and are the same afterwards."""

import json
import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from process_settings import SETTINGS, state
from tiny import options

import aptool as library
from aptool import plugins
from aptool.models.build import POOLINGS
from aptool.models.pooling import MeanPooling

QUESTION = "where is the river with the window"
ANSWERS = ["the garden near the letter is silver", "the river near the window is silver", ""]
TINY = list(options("ap-cnn", "training.epochs=2", "training.dropout=0.1"))


def results(model):
    """All results of a model, as plain values."""
    encoded = model.encode(ANSWERS)
    explained = model.explain(QUESTION, ANSWERS[1])
    return [
        model.score([(QUESTION, answer) for answer in ANSWERS]).tolist(),
        model.rank(QUESTION, ANSWERS),
        model.rank(QUESTION, encoded),
        explained.score,
        explained.question.weights.tolist(),
    ]


def all_results():
    """Results of a loaded model, of files, and the bytes of a run file."""
    values = results(library.load("models/tiny", device="cpu"))
    pools = "data/wikiqa/dev.pools.parquet"
    library.encode(pools, model="models/tiny", output="store", device="cpu")
    library.score(pools, model="models/tiny", output="a.run", device="cpu", overwrite=True)
    library.score(pools, model="models/tiny", output="b.run", encoded="store", device="cpu", overwrite=True)
    return [*values, Path("a.run").read_bytes(), Path("b.run").read_bytes()]


@pytest.mark.parametrize("setting", SETTINGS)
def test_no_setting_changes_a_result(setting, folder):
    expected = all_results()
    kept = library.load("models/tiny", device="cpu")
    shutil.rmtree("store")

    with SETTINGS[setting]():
        before = state()
        assert all_results() == expected
        assert results(kept) == expected[:5]
        assert results(pickle.loads(pickle.dumps(kept))) == expected[:5]
        assert state() == before


@pytest.mark.parametrize("setting", SETTINGS)
def test_no_setting_changes_a_trained_model(setting, data, trained_weights):
    with SETTINGS[setting]():
        before = state()
        library.train(data, preset="ap-cnn", set=TINY, output="trained", device="cpu")
        assert state() == before

    assert Path("trained/model.safetensors").read_bytes() == trained_weights


@pytest.fixture(scope="module")
def trained_weights(tmp_path_factory, collection_folder):
    output = tmp_path_factory.mktemp("expected") / "model"
    library.train(collection_folder, preset="ap-cnn", set=TINY, output=output, device="cpu")
    return (output / "model.safetensors").read_bytes()


def test_a_plugin_that_changes_a_setting_when_it_is_imported_changes_no_weight(
    data, monkeypatch, tmp_path, trained_weights
):
    """The same pooling, under another name, of a plugin that sets float64 and another device."""
    plugin = tmp_path / "changing.py"
    plugin.write_text(
        "import torch\nfrom aptool.models.build import POOLINGS\n"
        "torch.set_default_dtype(torch.float64)\ntorch.set_default_device('meta')\n"
        "POOLINGS['mine'] = POOLINGS['attentive']\n"
    )
    monkeypatch.setenv(plugins.VARIABLE, str(plugin))
    monkeypatch.setattr(plugins, "_loaded", set())
    monkeypatch.setitem(POOLINGS, "other", MeanPooling)  # restores the registry

    try:
        library.train(data, preset="ap-cnn", set=[*TINY, "pooling.type=mine"], output="m", device="cpu")
        after = state()[:2]
    finally:
        POOLINGS.pop("mine", None)
        torch.set_default_dtype(torch.float32)
        torch.set_default_device("cpu")

    assert after == (torch.float32, torch.device("cpu"))
    assert Path("m/model.safetensors").read_bytes() == trained_weights
    assert json.loads(Path("m/config.json").read_text())["recipe"]["pooling"]["type"] == "mine"


def test_threads_restore_the_setting_that_the_process_had(model):
    expected = model.score([(QUESTION, answer) for answer in ANSWERS]).tolist()
    with SETTINGS["float64"](), ThreadPoolExecutor(4) as pool:
        scores = pool.map(lambda _: model.score([(QUESTION, text) for text in ANSWERS]).tolist(), range(40))

        assert all(score == expected for score in scores)
        assert torch.get_default_dtype() == torch.float64
