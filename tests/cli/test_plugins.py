"""``--plugin`` adds encoders and poolings to the commands."""

import os
import sys
from pathlib import Path

import pytest
from tiny import OPTIONS

import aptool as library
from aptool import plugins
from aptool.models.build import ENCODERS, POOLINGS

EXAMPLES = Path(__file__).parents[2] / "examples" / "extending"
SMALL = [argument for option in OPTIONS for argument in ("--set", option)]


@pytest.fixture(autouse=True)
def no_plugins(monkeypatch):
    """Restore the registries, loaded plugins and the search path after each test."""
    registries = (ENCODERS, POOLINGS)
    before, modules = [dict(registry) for registry in registries], set(sys.modules)
    monkeypatch.setenv(plugins.VARIABLE, "")
    monkeypatch.setattr(plugins, "_loaded", set())
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for registry, entries in zip(registries, before, strict=True):
        registry.clear()
        registry.update(entries)
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(EXAMPLES)):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("module", "recipe", "size"),
    [
        ("gru_encoder", "gru.toml", "encoder.hidden=16"),
        ("mean_max_pooling", "mean-max.toml", "encoder.features=16"),
    ],
)
def test_a_system_of_a_plugin_trains_and_scores(aptool, module, recipe, size, collection_folder, tmp_path):
    plugin, model, run = EXAMPLES / f"{module}.py", tmp_path / "model", tmp_path / "dev.run"
    options = ["--preset", EXAMPLES / recipe, *SMALL, "--set", size, "--output", model]
    pools = collection_folder / "dev.pools.parquet"

    trained = aptool("--plugin", plugin, "train", collection_folder, *options)
    scored = aptool("--plugin", plugin, "score", pools, "--model", model, "--output", run)

    assert (trained.code, scored.code) == (0, 0), (trained.err, scored.err)
    means = library.evaluate(collection_folder / "dev.qrels", run, ["RR"]).means
    # Six candidates, one relevant: a random order has an MRR of 0.41.
    assert means["MRR"] > 0.6
    assert os.environ[plugins.VARIABLE] == str(plugin)  # inherited by child processes


def test_a_plugin_of_the_environment_is_imported_where_its_name_is_needed(monkeypatch, collection_folder):
    monkeypatch.setenv(plugins.VARIABLE, str(EXAMPLES / "gru_encoder.py"))
    options = [*OPTIONS, "encoder.hidden=4", "training.epochs=0"]

    model = library.train(collection_folder, preset=str(EXAMPLES / "gru.toml"), set=options)

    assert model.config["recipe"]["encoder"]["type"] == "gru"


WRONG = [
    ("no_such/file.py", 2, "file.py: file not found; expected a .py file"),
    ("raising.py", 1, "raising.py: ZeroDivisionError: division by zero; expected a module that imports"),
    ("leaving.py", 1, "leaving.py: SystemExit: 3; expected a module that imports"),
    ("needing.py", 1, "needing.py: ModuleNotFoundError: No module named 'no_such_module'"),
    ("json.py", 2, "json.py: another module json exists; expected another name"),
]


@pytest.mark.parametrize(("plugin", "code", "message"), WRONG)
def test_a_plugin_that_cannot_be_imported_is_one_line(aptool, tmp_path, monkeypatch, plugin, code, message):
    monkeypatch.chdir(tmp_path)
    Path("raising.py").write_text("1 / 0\n", encoding="utf-8")
    Path("leaving.py").write_text("raise SystemExit(3)\n", encoding="utf-8")
    Path("needing.py").write_text("import no_such_module\n", encoding="utf-8")
    Path("json.py").write_text("", encoding="utf-8")

    finished = aptool("--plugin", plugin, "score", "x.parquet")

    assert (finished.code, finished.out, len(finished.err)) == (code, [], 1)
    assert message in finished.err[0]
    assert os.environ[plugins.VARIABLE] == ""


REGISTERED = [
    ("'json:JSONDecoder'", "expected a subclass of Pooling"),
    ("3", "mine' of a plugin is 3: expected a subclass of Pooling"),
]


@pytest.mark.parametrize(("entry", "message"), REGISTERED)
def test_a_wrong_class_of_a_plugin_is_one_line(aptool, tmp_path, collection_folder, entry, message):
    plugin = tmp_path / f"{tmp_path.name}.py"
    plugin.write_text(f"from aptool.models.build import POOLINGS\nPOOLINGS['mine'] = {entry}\n")
    options = ["--preset", "ap-cnn", "--set", "pooling.type=mine", "--output", tmp_path / "model"]

    finished = aptool("--plugin", plugin, "train", collection_folder, *options)
    del POOLINGS["mine"]

    assert (finished.code, len(finished.err)) == (1, 1)
    assert message in finished.err[0]
