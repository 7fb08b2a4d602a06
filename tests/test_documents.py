"""JSON, TOML and YAML documents that cannot be read are one-line errors."""

import json

import pytest

from aptool.config import load_recipe
from aptool.documents import parse_json, parse_toml, read_json, read_toml
from aptool.errors import InputError
from aptool.models.build import check_recipe

DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (DEEP, "nested too deeply"),
        ("9" * 5000, "limit .* digits"),
        ('{"a": "\\ud800"}', "surrogates not allowed"),
        ('{"\\udfff": 1}', "surrogates not allowed"),
        ("{", "line 1|character 2"),
        ("", "character 1"),
    ],
)
def test_json_that_cannot_be_read_is_one_line(text, problem):
    with pytest.raises(InputError, match=problem) as error:
        parse_json(text, "x.json")

    assert str(error.value).startswith("x.json: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [(f"x = {DEEP}", "nested too deeply"), (f"x = {'9' * 5000}", "digits"), ("x = ", "Invalid value")],
)
def test_toml_that_cannot_be_read_is_one_line(text, problem):
    with pytest.raises(InputError, match=problem) as error:
        parse_toml(text, "x.toml")

    assert "\n" not in str(error.value)


def test_escaped_surrogate_pairs_are_read():
    # U+1F600 as escaped by JSON: a pair of surrogates.
    assert parse_json('{"a": "\\ud83d\\ude00"}', "x.json") == {"a": "\U0001f600"}


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '{"a": NaN}', "[Infinity]"])
def test_strict_json_refuses_repeated_keys_and_nan(text):
    parse_json(text, "x.json")
    with pytest.raises(InputError):
        parse_json(text, "x.json", strict=True)


@pytest.mark.parametrize("read", [read_json, lambda path: read_toml(path, "TOML")])
def test_file_that_is_not_utf_8_is_one_line(tmp_path, read):
    (tmp_path / "x").write_bytes(b"\xff\xfe")
    for path, problem in ((tmp_path / "x", "UTF-8"), (tmp_path / "none", "file not found")):
        with pytest.raises(InputError, match=problem):
            read(path)


@pytest.mark.parametrize(
    "override",
    [
        f"encoder.features={'9' * 5000}",
        "training.margin=1e400",
        "training.learning_rate=0",
        "training.epochs=1" + "0" * 21,
        f"training.epochs={DEEP}",
    ],
)
def test_huge_number_is_one_short_line(override):
    with pytest.raises(InputError) as error:
        check_recipe(load_recipe("ap-cnn", [override]))

    assert "\n" not in str(error.value)
    assert override.partition(".")[2].partition("=")[0][:20] in str(error.value)


def test_every_number_of_a_recipe_has_bounds():
    table = json.loads(json.dumps(load_recipe("ap-cnn").to_dict()))
    numbers = [
        f"{section}.{name}"
        for section, options in table.items()
        if isinstance(options, dict)
        for name, value in options.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    assert len(numbers) > 20
    for number in numbers:
        for value in ("9" * 18, "1e300", "-1"):
            with pytest.raises(InputError):
                check_recipe(load_recipe("ap-cnn", [f"{number}={value}"]))
