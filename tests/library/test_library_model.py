"""Models that rank, score, explain, train and save, and errors of invalid arguments."""

import json
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import options, recipe

import aptool as library
from aptool import AptoolError, Pools
from aptool.data.collection import Collection
from aptool.training.fit import fit

TINY = list(options("ap-cnn"))
QUESTION = "where is the river with the window"
ANSWERS = ["the garden near the letter is silver", "the river near the window is silver", "", "?!"]


def test_run_file_equals_that_of_the_command(aptool, model, data):
    assert (
        aptool("score", "data/wikiqa/dev.pools.parquet", "--model", "models/tiny", "--output", "x.run").code
        == 0
    )

    model.run(data.pools("dev")).save("y.run")
    scored = library.score("data/wikiqa/dev.pools.parquet", model="models/tiny", output="z.run")
    of_model = library.score(data.pools("dev"), model=model, output="w.run")

    files = [Path(f"{name}.run").read_bytes() for name in "xyzw"]
    assert len(files[0].splitlines()) == 120
    assert files[1:] == files[:1] * 3
    assert (scored.pairs, of_model.pairs) == (120, 120)


def test_pools_in_memory_have_the_scores_of_their_file(model, data):
    pools = data.pools("dev")

    run = model.run(Pools(pools.to_dict()), tag="mine")

    assert run.tag == "mine"
    assert run.frame.equals(model.run(pools).frame)


def test_pairs_have_the_scores_of_the_run(model, data):
    pools, run = data.pools("dev"), model.run(data.pools("dev")).to_dict()
    pairs, expected = [], []
    for question_id, (question, answers) in pools.to_dict().items():
        pairs += [(question, answer) for answer in answers.values()]
        expected += [run[question_id][answer_id] for answer_id in answers]
    scores = model.score(pairs[::-1])

    assert (scores.dtype, scores.shape) == (np.float32, (120,))
    assert scores[::-1].tolist() == pytest.approx(expected, abs=1e-5)


def test_equal_answers_keep_their_order(model):
    assert [index for index, _ in model.rank(QUESTION, ["the river"] * 3)] == [0, 1, 2]


def test_attention_weights_equal_those_of_the_command(model):
    result = model.explain(QUESTION, ANSWERS[1])

    assert result.answer.words == ANSWERS[1].split()
    assert result.answer.weights.sum() == pytest.approx(1)
    assert result.score == pytest.approx(float(model.score([(QUESTION, ANSWERS[1])])[0]), abs=1e-5)


def test_training_writes_the_model_of_fit(data, collection, tmp_path):
    fit(Collection(data.path), recipe("ap-cnn"), tmp_path / "expected", seed=3)

    model = library.train(data, "ap-cnn", seed=3, set=TINY)
    model.save("models/new")

    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        assert (tmp_path / "models/new" / name).read_bytes() == (tmp_path / "expected" / name).read_bytes()
    assert (tmp_path / "models/new/training/history.jsonl").is_file()
    assert model.dev == json.loads((tmp_path / "expected/config.json").read_text())["training"]["dev"]
    assert library.load("models/new").score([(QUESTION, ANSWERS[0])]) == model.score([(QUESTION, ANSWERS[0])])


def test_a_model_that_was_not_saved_leaves_nothing(data):
    model = library.train(data, set=TINY)
    folder = model.folder
    assert folder.is_dir()

    del model

    assert not folder.parent.exists()


def test_model_can_overwrite_itself_and_another_model(model, tmp_path):
    model.save("models/tiny")
    model.save("models/copy")
    library.load("models/copy").save("models/copy")
    with pytest.raises(AptoolError, match="models/copy: it exists; expected another path, or --overwrite"):
        model.save("models/copy")
    model.save("models/copy", overwrite=True)

    assert {file.name for file in (tmp_path / "models/copy").iterdir()} == {
        file.name for file in (tmp_path / "models/tiny").iterdir()
    }


def test_a_model_whose_folder_changed_is_not_saved(model, tmp_path):
    shutil.rmtree(tmp_path / "models" / "tiny")

    with pytest.raises(
        AptoolError, match="models/tiny: the model in this folder has changed since it was loaded"
    ):
        model.save("models/copy")


def test_devices_are_names_or_torch_devices(folder):
    assert library.load("models/tiny", device="cpu").device == torch.device("cpu")
    assert library.load("models/tiny", device=torch.device("cpu")).device == torch.device("cpu")


def assert_named(call, message):
    """Check that a call is refused in one line that has the message."""
    with pytest.raises(AptoolError) as error:
        call()
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_invalid_texts_are_named(model):
    pairs = "expected a pair of texts (question, answer)"
    for given, message in (
        (None, "pairs: None: expected a list of pairs of texts (question, answer)"),
        (["ab"], f"pairs: item 0: 'ab': {pairs}"),
        ([("a", "b", "c")], f"pairs: item 0: ('a', 'b', 'c'): {pairs}"),
        ([("a", "b"), ("a", None)], "pairs: item 1, answer: None: expected text (str)"),
        ([("a", "\ud800")], "pairs: item 0, answer: '\\ud800': expected text that UTF-8 can encode"),
    ):
        assert_named(partial(model.score, given), message)
    for question, answer in ((None, "a"), ("q", 7), ("q", ["a"])):
        assert_named(partial(model.explain, question, answer), "expected text (str)")


def test_invalid_pools_are_refused(model):
    for pools in (None, "dev.pools.parquet", {"q": ("who?", {})}, []):
        for score in (model.run, library.bm25_run):
            assert_named(partial(score, pools), "expected")


def test_model_without_word_weights_cannot_explain(folder, model, monkeypatch):
    monkeypatch.setattr("aptool.models.explain.gives_weights", lambda pooling: False)

    with pytest.raises(AptoolError, match="weigh"):
        model.explain("q", "a")


LOADS = [
    ({"folder": None}, "folder: None: expected a model folder (str or os.PathLike)"),
    ({"folder": "nowhere"}, "nowhere"),
    ({"folder": "data/wikiqa"}, "data/wikiqa: no model here"),
    ({"device": None}, "device: None: expected auto, cpu or a GPU such as cuda"),
    ({"precision": "fp8"}, "precision: 'fp8': expected one of auto, fp32, bf16"),
    ({"backend": "onnx"}, "backend: 'onnx': expected one of torch, openvino"),
    ({"tokens_per_batch": 0}, "tokens_per_batch: 0: expected an integer of at least 1"),
]


def test_invalid_arguments_of_load_are_named(folder):
    for arguments, message in LOADS:
        assert_named(lambda given=arguments: library.load(**({"folder": "models/tiny"} | given)), message)


TRAININGS = [
    ({"collection": None}, "path: None: expected the folder of a collection; Collection.from_rows"),
    ({"preset": 7}, "preset: 7: expected text (str)"),
    ({"preset": "ap-cn"}, "preset 'ap-cn'"),
    ({"seed": -1}, "seed: -1: expected an integer of at least 0"),
    ({"output": 7}, "output: 7: expected a folder to write to (str or os.PathLike)"),
    ({"set": "training.epochs=1"}, "set: 'training.epochs=1': expected a dict"),
    ({"set": {"training.epochs": None}}, "training.epochs: None: expected an integer"),
    ({"set": {"training": {"epochs": 1}}}, "set 'training': expected section.key=value"),
    ({"workers": 2}, "workers: requires cluster"),
    ({"workers": (2, 1)}, "workers 2:1: expected a minimum, and a maximum of at least the minimum"),
    ({"workers": 0}, "workers: 0: expected an integer of at least 1"),
]


def test_invalid_arguments_of_train_are_named_before_any_work(data):
    for arguments, message in TRAININGS:
        assert_named(lambda given=arguments: library.train(**({"collection": data} | given)), message)


SCORINGS = [
    ({"pools": None}, "pools: None: expected a data frame"),
    ({"pools": "nowhere.parquet"}, "nowhere.parquet: file not found"),
    ({"model": None}, "model: None: expected a model folder (str or os.PathLike) or a Model"),
    ({"output": None}, "output: None: expected a path"),
    ({"tag": "two words"}, "tag 'two words': expected one word"),
    ({"gpus_per_worker": 1.5}, "gpus_per_worker 1.5"),
    ({"cluster": True, "workers": (2, 1)}, "workers 2:1: expected a minimum, and a maximum of at least"),
    ({"answers": "nowhere.parquet"}, "nowhere.parquet: file not found"),
]


def test_invalid_arguments_of_score_are_named(folder):
    usual = {"pools": "data/wikiqa/dev.pools.parquet", "model": "models/tiny", "output": "dev.run"}
    for arguments, message in SCORINGS:
        assert_named(lambda given=arguments: library.score(**(usual | given)), message)
