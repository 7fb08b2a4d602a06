"""Training of a model folder from a collection and a recipe."""

import json
from dataclasses import replace

import pytest
import torch
from recorded import recorded
from tiny import SYSTEMS, labelled_pools, recipe

from aptool.data.collection import Collection
from aptool.data.pools import list_units
from aptool.data.runs import read_run
from aptool.data.trec import read_qrels
from aptool.data.writing import write_collection
from aptool.errors import AptoolError, InputError, UsageError
from aptool.evaluation.measures import evaluate_frames
from aptool.models.model import load_model
from aptool.scoring.model_system import ModelSystem
from aptool.scoring.run import score_files
from aptool.training.fit import fit

# The reciprocal ranks 1 to 1/6 of six candidates in random order: a mean of 49/20 / 6.
RANDOM_MRR = 49 / 120


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_learns(system, collection, tmp_path):
    result = fit(collection, recipe(system), tmp_path / "model", seed=1)

    assert result.dev["MRR"] > RANDOM_MRR + 0.2
    assert result.history[result.best_epoch - 1]["dev"] == result.dev
    assert result.dev["MAP"] == max(entry["dev"]["MAP"] for entry in result.history)


def test_equal_seeds_give_equal_bytes(collection, tmp_path):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for name, seed in (("one", 5), ("two", 5), ("other", 6)):
            fit(collection, recipe("ap-cnn"), tmp_path / name, seed=seed)
    finally:
        torch.set_num_threads(threads)

    for file in ("model.safetensors", "config.json", "tokenizer.json"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "other")]
    assert weights[0] != weights[1]


@pytest.mark.parametrize("more", [(), ("training.epochs=0",)], ids=["best epoch", "nothing trained"])
def test_the_saved_model_has_the_reported_measures(collection, tmp_path, more):
    # Scored and evaluated as any run.
    result = fit(collection, recipe("ap-cnn", *more), tmp_path / "model", seed=2)

    system = ModelSystem(str(tmp_path / "model"), "cpu")
    score_files(list_units([collection.pools_file("dev")]), system, tmp_path / "dev.run", tag="x")
    means = evaluate_frames(
        read_qrels(collection.qrels_file("dev")), read_run(tmp_path / "dev.run").frame
    ).means

    assert dict(means) == pytest.approx(result.dev)


def test_the_model_folder_describes_its_training(collection, tmp_path):
    tiny_recipe = recipe("qa-cnn", "training.dev_measure=nDCG@5")

    result = fit(collection, tiny_recipe, tmp_path / "model", seed=7)

    config = json.loads((tmp_path / "model" / "config.json").read_text())
    history = (tmp_path / "model" / "training" / "history.jsonl").read_text().splitlines()
    assert config["recipe"] == tiny_recipe.to_dict()
    assert config["training"]["collection"] == "tiny"
    assert config["training"]["fingerprint"] == collection.fingerprint
    assert (config["training"]["seed"], config["training"]["best_epoch"]) == (7, result.best_epoch)
    assert set(config["training"]["dev"]) == {"MAP", "MRR", "P@1", "nDCG@5"}
    assert [json.loads(line)["epoch"] for line in history] == [1, 2, 3, 4]
    assert [json.loads(line) for line in history] == result.history


def test_a_measure_by_another_of_its_names_can_pick_the_best_epoch(collection, tmp_path):
    result = fit(collection, recipe("qa-cnn", "training.dev_measure=Precision@1"), tmp_path / "model", seed=7)

    assert result.dev["P@1"] == max(entry["dev"]["P@1"] for entry in result.history)


def test_messages_epochs_and_progress(collection, tmp_path):
    with recorded() as log:
        result = fit(collection, recipe("qa-cnn", "text.max_answer_tokens=6"), tmp_path / "model")

    # Every answer is seven words long.
    assert log.messages == [
        "training qa-cnn on 40 pairs of 40 questions, 40 answers (40 truncated at 6 tokens), "
        f"{len(load_model(tmp_path / 'model').tokenizer)} words (0 with vectors)"
    ]
    assert log.epochs == [entry["epoch"] for entry in result.history]
    epochs = [f"train: epoch {number} of 4" for number in (1, 2, 3, 4)]
    assert [name for name in log.updates if name.startswith("train")] == epochs
    assert log.updates[epochs[3]][-1][:3] == (40, 40, "pairs")
    # 20 questions of six candidates in each epoch.
    assert [done for done, total, *_ in log.updates["dev"] if done == total] == [120] * 4


def test_a_diverged_training_is_an_error(collection, tmp_path):
    # One update per epoch: the loss is still finite, the dev scores are not. Recipe files cannot have 1e30.
    tiny_recipe = recipe("ap-cnn", "training.optimizer=sgd", "training.minibatch=99")
    tiny_recipe = replace(tiny_recipe, training=replace(tiny_recipe.training, learning_rate=1e30))

    with pytest.raises(AptoolError, match=r"not a number; .* lower training\.learning_rate"):
        fit(collection, tiny_recipe, tmp_path / "model")

    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def untouched(monkeypatch):
    """Errors must come before any text is tokenized."""
    from aptool.text.tokenizer import WordTokenizer

    monkeypatch.setattr(WordTokenizer, "learn", lambda *given, **named: pytest.fail("work has initialized"))


@pytest.mark.usefixtures("untouched")
def test_an_output_that_cannot_be_written_is_an_error_before_any_work(collection, tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("x")

    for output in ("file", "file/model", "letters"):
        with pytest.raises(InputError, match=f"{output}: .*expected a"):
            fit(collection, recipe("ap-cnn"), tmp_path / output)


@pytest.mark.usefixtures("untouched")
def test_a_recipe_that_cannot_be_trained_is_an_error_before_any_work(collection, tmp_path):
    for override, error, message in (
        ("encoder.type=gru", InputError, "encoder.type: 'gru'"),
        ("training.dev_measure=mmr", UsageError, "unknown measures: 'mmr'"),
        (
            "training.sampled_negatives=0",
            InputError,
            "training.sampled_negatives: 0: expected 1 or more, or training.in_batch",
        ),
        ("training.negatives=all", InputError, "training.mining_interval: 1: expected 0"),
    ):
        with pytest.raises(error, match=message):
            fit(collection, recipe("ap-cnn", override), tmp_path / "model")


@pytest.mark.usefixtures("untouched")
def test_a_collection_without_the_split_is_an_error_before_any_work(tmp_path):
    for split in ("train", "dev"):
        pools = {split: labelled_pools(split, 10)}
        write_collection(tmp_path / split, pools, name="c", source="here")

    with pytest.raises(InputError, match=r"split 'dev'.* expected one of train"):
        fit(Collection(tmp_path / "train"), recipe("ap-cnn"), tmp_path / "m")
    with pytest.raises(InputError, match=r"split 'train'.* expected one of dev"):
        fit(Collection(tmp_path / "dev"), recipe("ap-cnn"), tmp_path / "m")
