"""Model folders: a loaded model has the scores of the saved model; damaged folders are refused."""

import json
from importlib import metadata

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import SYSTEMS, ranker, recipe

from aptool.errors import AptoolError, InputError
from aptool.models.model import load_model, model_fingerprint, save_model
from aptool.scoring.ranker_scorer import RankerScorer
from aptool.text.tokenizer import WordTokenizer

WORDS = [f"w{n}" for n in range(18)]
TRAINING = {
    "collection": "tiny",
    "fingerprint": "0" * 16,
    "seed": 3,
    "best_epoch": 2,
    "dev": {"MAP": 0.71234},
}


def save(folder, system="ap-cnn", seed=1, training=TRAINING):
    made = recipe(system, "encoder.features=8" if system.endswith("cnn") else "encoder.hidden=8")
    tokenizer = WordTokenizer.from_words(WORDS)
    more = {"window": made.encoder["window"]} if system.endswith("cnn") else {}
    weights = ranker(system, words=len(tokenizer), dim=16, size=8, seed=seed, **more)
    save_model(
        folder, weights, tokenizer, made, training, [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25}]
    )
    return weights, tokenizer


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_loaded_model_scores_the_same(tmp_path, system):
    texts = ["w1 w2 w3", "w4", "", "w5 w1 zebra w9", " ".join(WORDS)]
    weights, tokenizer = save(tmp_path / "model", system)

    loaded = load_model(tmp_path / "model")

    pairs = np.repeat(np.arange(5), 5), np.tile(np.arange(5), 5)
    scores = [
        RankerScorer(each).score(words.encode(texts), words.encode(texts), *pairs)
        for each, words in ((weights, tokenizer), (loaded.ranker, loaded.tokenizer))
    ]
    assert scores[0].tobytes() == scores[1].tobytes()
    assert not loaded.ranker.training
    assert loaded.recipe.preset == system


def test_the_folder_has_the_layout_of_the_hub(tmp_path):
    save(tmp_path / "model")

    files = sorted(str(file.relative_to(tmp_path / "model")) for file in (tmp_path / "model").rglob("*"))
    assert files == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "training",
        "training/history.jsonl",
    ]
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert (config["model_type"], config["vocabulary"], config["dim"]) == ("aptool", 20, 16)
    assert config["versions"]["torch"] == metadata.version("torch")
    # Plain tensors in a format that executes nothing; a pickle would begin otherwise.
    header = (tmp_path / "model" / "model.safetensors").read_bytes()[8:9]
    assert header == b"{"


def test_different_models_have_different_fingerprints(tmp_path):
    save(tmp_path / "first")
    save(tmp_path / "same")
    save(tmp_path / "weights", seed=2)
    save(tmp_path / "training", training={**TRAINING, "seed": 4})
    save(tmp_path / "words")
    WordTokenizer.from_words(WORDS[::-1]).save(tmp_path / "words" / "tokenizer.json")

    actual = {
        name: model_fingerprint(tmp_path / name) for name in ("first", "same", "weights", "training", "words")
    }
    assert actual["first"] == actual["same"]
    assert len(set(actual.values())) == 4


def test_failed_save_keeps_the_old_model(tmp_path, monkeypatch):
    save(tmp_path / "model")
    before = model_fingerprint(tmp_path / "model")

    def full(*given, **named):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("aptool.models.model.write_tensors", full)
    with pytest.raises(InputError, match="No space"):
        save(tmp_path / "model", seed=2)

    assert model_fingerprint(tmp_path / "model") == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.fixture
def folder(tmp_path):
    save(tmp_path / "model")
    return tmp_path / "model"


def error_of(folder):
    with pytest.raises(AptoolError) as error:
        load_model(folder)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_the_error_for_a_missing_model_says_how_to_train_one(tmp_path):
    assert error_of(tmp_path / "none") == (
        f"{tmp_path / 'none'}: folder not found; expected a model "
        f"(`aptool train COLLECTION --output {tmp_path / 'none'}` trains one), "
        "or a name on the Hugging Face hub"
    )


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_file_that_is_missing_or_has_invalid_content_is_named(folder, name):
    for content in (b"", b"\xff\xfe\x00garbage", b"{}", (folder / name).read_bytes()[:-10]):
        (folder / name).write_bytes(content)
        assert error_of(folder).startswith(f"{folder / name}: ")
    (folder / name).unlink()
    assert error_of(folder).startswith(f"{folder / name}: file not found; expected the ")


def change_weights(folder, change):
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda weights: weights.pop("pooling.U"),
            "pooling.U: missing; expected the weights that config.json describes",
        ),
        (
            lambda weights: weights.update(extra=torch.zeros(2)),
            "extra: unknown; expected the weights that config.json describes",
        ),
        (
            lambda weights: weights.update({"pooling.U": torch.zeros(8, 7)}),
            "pooling.U: [8, 7]: expected shape [8, 8], as config.json says",
        ),
        (
            lambda weights: weights["pooling.U"].__setitem__((0, 0), float("nan")),
            "weight 'pooling.U': NaN or infinite; expected finite weights",
        ),
        (
            lambda weights: weights["encoder.convolution.bias"].__setitem__(3, float("inf")),
            "weight 'encoder.convolution.bias': NaN or infinite; expected finite weights",
        ),
    ],
)
def test_wrong_weights_are_named(folder, change, message):
    change_weights(folder, change)

    assert error_of(folder) == f"{folder / 'model.safetensors'}: {message}"


def change_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    for key, value in changes.items():
        *sections, name = key.split("__")
        target = config
        for section in sections:
            target = target[section]
        target[name] = value
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("changes", "file", "message"),
    [
        ({"vocabulary": 21}, "tokenizer.json", "20: expected 21 words, as config.json says"),
        ({"dim": 15}, "model.safetensors", "expected shape [8, 45], as config.json says"),
        ({"recipe__encoder__features": 9}, "model.safetensors", "expected shape [9], as config.json says"),
        ({"recipe__encoder__type": "gru"}, None, "encoder.type: 'gru': expected one of cnn, bilstm"),
        (
            {"recipe__training__epochs": "x"},
            "config.json",
            "training.epochs: 'x': expected an integer",
        ),
        ({"format": 1}, "config.json", "format: 1: expected const 2"),
        ({"model_type": "bert"}, "config.json", "a model of another library; expected a model that aptool"),
        ({"vocabulary": "many"}, "config.json", "vocabulary: 'many': expected type \"integer\""),
    ],
)
def test_a_wrong_configuration_is_named(folder, changes, file, message):
    change_config(folder, **changes)

    assert message in error_of(folder)
    if file is not None:
        assert error_of(folder).startswith(f"{folder / file}: ")
