"""Invalid combinations of recipe and network are refused before any work."""

import shutil
import sys

import pytest
from networks import QUICK, REASON, initialized, network_recipe, write_network
from safetensors.torch import load_file, save_file

from aptool.config import load_recipe
from aptool.environment import install_command
from aptool.errors import AptoolError, InputError
from aptool.models.build import check_recipe
from aptool.training.fit import fit

pytest.importorskip("transformers", reason=REASON)


def test_missing_package_is_named_with_its_extra(aptool, collection_folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)

    finished = aptool("train", collection_folder, "--preset", "ap-minilm", "--output", tmp_path / "model")

    assert finished.code == 1
    assert len(finished.err) == 1
    assert install_command("transformers") in finished.err[0]


@pytest.mark.parametrize(
    ("preset", "more", "message"),
    [
        ("ap-minilm", ["encoder.name="], "encoder.name: '': expected the folder of a pretrained network"),
        (
            "ap-minilm",
            ["encoder.name=/no/network"],
            "encoder.name: /no/network: folder not found; expected the folder of a",
        ),
        ("ap-minilm", ["encoder.name=~/network"], "encoder.name: ~/network: folder not found"),
        ("ap-minilm", ["encoder.name=/network"], "encoder.name: /network: folder not found"),
        ("ap-minilm", ["vectors.source=random"], "vectors.source: 'random': expected the default"),
        ("ap-minilm", ["vectors.fine_tune=false"], "vectors.fine_tune: False: expected the default"),
        ("ap-minilm", ["text.lowercase=false"], "text.lowercase: False: expected the default"),
        ("mean-minilm", ["pooling.type=head"], "expected one of max, attentive, mean, maxsim, "),
        ("ap-minilm", ["training.word_dropout=0.1"], "training.word_dropout: 0.1: expected 0"),
        (
            "ap-minilm",
            ["training.average_epochs=2", "training.patience=1"],
            "training.patience: 1: expected 0 with training.average_epochs",
        ),
        ("ap-minilm", ["encoder.tune=most"], "encoder.tune: 'most': expected one of all, none"),
    ],
)
def test_impossible_recipe_is_refused(preset, more, message):
    with pytest.raises(InputError) as error:
        check_recipe(load_recipe(preset, [*QUICK, *more]))

    assert message in str(error.value)


@pytest.mark.parametrize(("option", "value"), [("max_answer_tokens", 65), ("max_question_tokens", 2)])
def test_recipe_beyond_the_limits_of_the_network_is_refused(network, option, value):
    with pytest.raises(InputError, match=rf"text\.{option}: {value}: expected 3 to 64"):
        initialized("ap-minilm", network, f"text.{option}={value}")


def test_folder_without_a_network_is_refused(tmp_path, collection):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="expected the folder of a pretrained network") as error:
        initialized("ap-minilm", tmp_path / "empty")
    assert "\n" not in str(error.value)

    recipe = network_recipe("mean-minilm", write_network(tmp_path / "bert"), "encoder.tune=none")
    with pytest.raises(AptoolError, match=r"no parameter of this system is trainable: .*training\.epochs=0"):
        fit(collection, recipe, tmp_path / "model")


def test_missing_weights_are_refused(network, tmp_path):
    shutil.copytree(network, tmp_path / "network")
    path = tmp_path / "network" / "model.safetensors"
    weights = load_file(path)
    missing = next(name for name in weights if "layer.1.output.dense.weight" in name)
    save_file({name: weight for name, weight in weights.items() if name != missing}, path, {"format": "pt"})

    with pytest.raises(
        InputError, match=r"no weights .*layer\.1\.output\.dense\.weight; expected all weights"
    ):
        initialized("mean-minilm", tmp_path / "network")
