"""Several collections in one training."""

import json
import shutil
from dataclasses import replace

import pytest
from test_training_data import rows
from tiny import labelled_pools, recipe

import aptool as library
from aptool.errors import InputError
from aptool.formats.collection import CollectionFiles, CollectionWriter
from aptool.models.model import load_model
from aptool.training.fit import fit
from aptool.training.texts import read_texts


def write(folder, train, dev=()):
    with CollectionWriter(folder, name=folder.name, source="made for tests") as writer:
        writer.add_split("train", train)
        if dev:
            writer.add_split("dev", dev)
    return CollectionFiles(folder)


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """A collection, and its two halves, the first with the dev split."""
    folder = tmp_path_factory.mktemp("mixture")
    train, dev = list(labelled_pools("train", 40)), list(labelled_pools("dev", 20))
    return (
        write(folder / "whole", train, dev),
        write(folder / "one", train[:25], dev),
        write(folder / "two", train[25:]),
    )


def test_two_parts_have_the_texts_of_the_complete_collection(parts):
    complete, first, second = parts
    expected = read_texts(complete, "train")

    actual = read_texts(first, "train", [second])

    assert actual.questions == expected.questions
    assert actual.answers == expected.answers
    assert rows(actual.positives) == rows(expected.positives)
    assert rows(actual.pools) == rows(expected.pools)


def test_training_on_two_parts_is_training_on_the_complete_collection(parts, tmp_path):
    complete, first, second = parts
    quick = recipe("qa-cnn", "training.epochs=2")

    together = fit(first, quick.with_mixture([str(second.path)]), tmp_path / "parts", seed=3)
    alone = fit(complete, quick, tmp_path / "whole", seed=3)

    assert [entry["loss"] for entry in together.history] == [entry["loss"] for entry in alone.history]
    assert together.dev == alone.dev
    names = ("whole", "parts")
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in names]
    assert weights[0] == weights[1]


def test_an_interrupted_mixture_resumes_to_the_same_bytes(parts, tmp_path, monkeypatch):
    _, first, second = parts
    quick = recipe("qa-cnn", "training.epochs=3").with_mixture([str(second.path)])
    fit(first, quick, tmp_path / "undisturbed", seed=1)

    from aptool.training import fit as fitting

    saved = fitting.save_state

    def dies(folder, key, state, *more):
        saved(folder, key, state, *more)
        if len(state.history) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(fitting, "save_state", dies)
    with pytest.raises(KeyboardInterrupt):
        fit(first, quick, tmp_path / "resumed", seed=1)
    monkeypatch.undo()
    fit(first, quick, tmp_path / "resumed", seed=1)

    names = ("undisturbed", "resumed")
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in names]
    assert weights[0] == weights[1]


def test_command_and_library_train_the_same(aptool, parts, tmp_path):
    _, first, second = parts
    small = ("vectors.source=random", "encoder.features=8", "training.epochs=1")
    arguments = ["train", first.path, second.path, "--preset", "qa-cnn", "--output", tmp_path / "command"]

    finished = aptool(*arguments, *(part for option in small for part in ("--set", option)))
    library.train(first.path, "qa-cnn", mixture=[second.path], set=list(small), output=tmp_path / "library")

    assert finished.code == 0
    models = [load_model(tmp_path / name) for name in ("command", "library")]
    assert models[0].fingerprint == models[1].fingerprint
    assert models[0].recipe.mixture.collections == [str(second.path)]
    metadata = json.loads((tmp_path / "command" / "config.json").read_text())["training"]
    assert metadata["collection"] == "one"


def test_a_start_model_does_not_add_its_collections(parts, tmp_path):
    from aptool.models.start import training_recipe

    _, first, second = parts
    fit(first, recipe("qa-cnn", "training.epochs=0").with_mixture([str(second.path)]), tmp_path / "model")

    assert training_recipe(None, [], start=str(tmp_path / "model")).mixture.collections == []


def test_the_content_of_a_further_collection_is_an_input_of_the_training(parts, tmp_path):
    from aptool.training.checkpoint import inputs_of

    _, first, _ = parts
    mixed = recipe("qa-cnn").with_mixture([str(tmp_path / "two")])
    write(tmp_path / "two", list(labelled_pools("train", 20)))
    before = inputs_of(first, mixed)
    shutil.rmtree(tmp_path / "two")
    write(tmp_path / "two", list(labelled_pools("train", 21)))

    assert inputs_of(first, mixed) != before


def test_the_content_of_vectors_at_a_url_is_an_input_of_the_training(parts):
    import fsspec

    from aptool.training.checkpoint import inputs_of

    _, first, _ = parts
    named = recipe("qa-cnn", "vectors.source=memory://trained/vectors.bin")
    keys = []
    for content in (b"one", b"one", b"another"):
        if not keys or content != b"one":
            with fsspec.open("memory://trained/vectors.bin", "wb") as out:
                out.write(content)
        keys.append(inputs_of(first, named))

    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize(
    ("collections", "line"),
    [
        (["{two}", "{two}"], "item 1: '{two}': expected each collection once"),
        (["{one}"], "item 0: '{one}': expected each collection once"),
        (["{two}x"], "{two}x: folder not found; expected the folder of a collection"),
    ],
)
def test_invalid_collections_are_one_line_errors(parts, tmp_path, collections, line):
    _, first, second = parts
    names = {"one": first.path, "two": second.path}
    mixed = replace(recipe("qa-cnn")).with_mixture([text.format(**names) for text in collections])

    with pytest.raises(InputError) as error:
        fit(first, mixed, tmp_path / "model")

    assert line.format(**names) in str(error.value)
    assert not (tmp_path / "model").exists()


def test_a_further_collection_needs_the_training_split(parts, tmp_path):
    _, first, _ = parts
    with CollectionWriter(tmp_path / "dev", name="dev", source="made for tests") as writer:
        writer.add_split("dev", labelled_pools("dev", 10))
    with pytest.raises(InputError, match="split 'train'; expected one of dev"):
        fit(first, recipe("qa-cnn").with_mixture([str(tmp_path / "dev")]), tmp_path / "model")


def test_the_option_is_a_list(aptool, parts, tmp_path):
    _, first, _ = parts
    finished = aptool(
        "train", first.path, "--set", "mixture.collections=data/two", "--output", tmp_path / "m"
    )

    assert finished.code == 1
    expected = "mixture.collections: 'data/two': expected a list, each item text"
    assert finished.err == [f"aptool: ap-cnn: {expected}"]
