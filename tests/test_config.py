"""Recipes: the presets, overrides, and errors in recipes."""

import re
from pathlib import Path

import pytest

from aptool.config import Recipe, load_recipe, preset_names, recipe_from_dict
from aptool.errors import AptoolError, InputError, UsageError, shortened

# Table 2 of the paper: c (per direction for the biLSTMs), k, mini-batch, margin, λ; and whether λ is divided
# by the number of the epoch (section 4.2: all systems but QA-CNN).
TABLE_2 = {
    "ap-cnn-paper": ("attentive", {"type": "cnn", "features": 400, "window": 3}, 20, 0.5, 1.1, "inverse"),
    "qa-cnn-paper": ("max", {"type": "cnn", "features": 4000, "window": 2}, 1, 0.009, 0.05, "constant"),
    "ap-bilstm-paper": ("attentive", {"type": "bilstm", "hidden": 141}, 20, 0.2, 1.1, "inverse"),
    "qa-bilstm-paper": ("max", {"type": "bilstm", "hidden": 141}, 20, 0.1, 1.1, "inverse"),
}


def paper_recipe(name):
    file = Path(__file__).parents[1] / "jobs" / "paper" / f"{name}.toml"
    return load_recipe(str(file) if file.exists() else name)


@pytest.mark.parametrize("preset", TABLE_2)
def test_paper_presets_have_the_hyperparameters_of_the_paper(preset):
    recipe = paper_recipe(preset)
    training = recipe.training

    assert (
        recipe.pooling["type"],
        recipe.encoder,
        training.minibatch,
        training.margin,
        training.learning_rate,
        training.schedule,
    ) == TABLE_2[preset]
    # Section 4.2: SGD, 50 negatives sampled from all answers, of which the best-scored is used.
    assert (training.optimizer, training.negatives, training.sampled_negatives) == ("sgd", "corpus", 50)
    assert (training.loss, training.in_batch, training.mining_interval, training.dropout) == (
        "hinge",
        False,
        1,
        0,
    )


def test_error_for_an_unknown_preset_lists_presets_and_the_nearest():
    with pytest.raises(UsageError) as error:
        load_recipe("ap-cmn")

    names = ", ".join(preset_names())
    expected = f"preset 'ap-cmn': expected one of {names}, or a .toml file; did you mean 'ap-cnn'?"
    assert str(error.value) == expected
    assert error.value.exit_code == 2
    assert {"qa-cnn", "ap-cnn", "qa-bilstm", "ap-bilstm"} <= set(preset_names())


def test_recipe_is_restored_from_plain_values():
    recipe = load_recipe("qa-cnn", ["training.epochs=3", "vectors.source=random"])

    assert recipe_from_dict(recipe.to_dict(), where="config.json") == recipe


def test_overrides_are_toml_or_text():
    recipe = load_recipe(
        "ap-cnn",
        [
            "training.epochs=7",
            "training.margin = 1",  # an integer is accepted as a float
            "text.lowercase=false",
            "training.schedule=linear",
            'vectors.source="my vectors.txt"',
            "training.epochs=8",  # the last value counts
        ],
    )

    assert recipe.training.epochs == 8
    assert recipe.training.margin == 1.0
    assert isinstance(recipe.training.margin, float)
    assert recipe.text.lowercase is False
    assert recipe.training.schedule == "linear"
    assert recipe.vectors.source == "my vectors.txt"


def test_recipe_is_named_after_its_file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('[encoder]\ntype = "cnn"\n[pooling]\ntype = "max"\n')

    recipe = load_recipe(str(path), ["encoder.window=5"])

    assert recipe == Recipe("mine", {"type": "cnn", "window": 5}, {"type": "max"})


@pytest.mark.parametrize("override", ["epochs=5", "training.epochs", "training.=5", ".epochs=5", "="])
def test_malformed_override_is_a_usage_error(override):
    with pytest.raises(UsageError, match=re.escape(f"set {override!r}: expected section.key=value")):
        load_recipe("ap-cnn", [override])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        # Unknown names, with the nearest name.
        ("training.epoch=5", "training.epoch: unknown option; expected 'epochs' perhaps"),
        ("trainign.epochs=5", "trainign: unknown section; expected 'training' perhaps"),
        # Types.
        ("training.optimizer=sdg", "training.optimizer: 'sdg': expected one of sgd, adam"),
        # Sizes.
        ("training.epochs=-1", "training.epochs: -1: expected a finite number of 0 or more"),
        ("training.margin=nan", "training.margin: nan: expected a finite number of 0 or more"),
        ("training.dropout=1", "training.dropout: 1.0: expected 0 or more and below 1"),
        ("vectors.window=33", "vectors.window: 33: expected 1 or more and below 33"),
    ],
)
def test_invalid_entry_is_named_with_the_expected_value(override, message):
    with pytest.raises(InputError) as error:
        load_recipe("ap-cnn", [override])

    assert str(error.value).startswith(f"ap-cnn: {message}")


def test_input_error_is_one_line():
    error = InputError("x.run", position="line 3", column="score", value="abc", expected="a finite number")

    assert str(error) == "x.run: line 3: column 'score': 'abc': expected a finite number"
    assert str(InputError("x.run", expected="text")) == "x.run: expected text"
    assert str(InputError("x.run", value=None, expected="text")) == "x.run: None: expected text"
    assert (error.exit_code, isinstance(error, AptoolError)) == (1, True)


def test_long_value_is_truncated_to_one_line():
    assert shortened("a\nb") == r"'a\nb'"
    assert len(shortened("x" * 1000)) == 80
    assert shortened("x" * 1000).endswith("x…")
