"""Code that decides a score is part of every fingerprint: an edited plugin never continues earlier work."""

import hashlib
import importlib
import json
import shutil
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tiny import OPTIONS

import aptool as library
from aptool import plugins
from aptool.cluster.workers import check_worker
from aptool.errors import AptoolError
from aptool.models.build import POOLINGS

POOLING = """
import torch
from aptool.errors import AptoolError
from aptool.models.build import POOLINGS
from aptool.models.pooling import IndependentPooling

class ScaledPooling(IndependentPooling):
    def represent(self, states):
        stop_after_two()
        mean = torch.segment_reduce(states.values, "mean", lengths=states.lengths, axis=0, unsafe=True)
        return torch.cat([mean * SCALE, mean.tanh()], dim=1)

POOLINGS["scaled"] = ScaledPooling
"""

# Ends a run like a failure would, when two parts of it are written.
STOP = """
import glob, os
from aptool.errors import AptoolError
def stop_after_two():
    if len(glob.glob(os.environ.get("STOP_AT") or "none")) >= 2:
        raise AptoolError("stopped by the test")
"""
PLUGIN = {"plug.py": STOP + "SCALE = 1.0\n" + POOLING}


def forget():
    """Forget the plugins, as a new process has."""
    POOLINGS.pop("scaled", None)
    plugins._loaded.clear()
    for name in [name for name in sys.modules if name in ("plug", "split")]:
        del sys.modules[name]
    importlib.invalidate_caches()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, which is on the search path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(plugins.VARIABLE, "")
    monkeypatch.setattr(plugins, "_loaded", set())
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # two versions of one size, in one second
    yield tmp_path
    forget()


def write(files):
    for name, text in files.items():
        Path(name).write_text(text, encoding="utf-8")
    forget()


def edit(files, before, after):
    """Replace a text in all files that have it."""
    assert any(before in text for text in files.values())
    write({name: text.replace(before, after) for name, text in files.items()})


@pytest.fixture
def pools(folder, collection_folder):
    table = pq.read_table(collection_folder / "dev.pools.parquet")
    shutil.copy(collection_folder / "answers.parquet", folder)
    pq.write_table(table, "many.parquet", row_group_size=4, write_page_checksum=True)
    return folder / "many.parquet"


def train(aptool, collection, output="m", *more):
    options = [*OPTIONS, "encoder.features=8", "pooling.type=scaled", "training.epochs=1"]
    sets = [argument for option in options for argument in ("--set", option)]
    ended = aptool(
        *("--plugin", "plug.py", "train", collection, "--preset", "qa-cnn", "--output", output, *sets, *more)
    )
    assert ended.code == 0, ended.err
    return ended


def interrupted(aptool, monkeypatch, output, *command):
    """Run a command that stops when two parts are written; the parts stay."""
    monkeypatch.setenv("STOP_AT", f"{output}.parts/*.run")
    monkeypatch.setattr("aptool.data.pools.UNIT_PAIRS", 24)  # a row group each
    ended = aptool(*command, "--output", output)
    monkeypatch.setenv("STOP_AT", "")
    assert ended.code == 1
    assert "stopped by the test" in ended.err[-1]
    assert len(list(Path(f"{output}.parts").glob("*.run"))) >= 2


def resumed_units():
    """The number of units of the last run that an earlier command scored."""
    return json.loads(Path("r.run.json").read_text(encoding="utf-8"))["work"]["resumed"]


def assert_refused(ended):
    assert ended.code == 1
    assert "r.run.parts: parts of a run with other arguments; expected the same arguments" in ended.err[-1]


def test_a_run_that_an_edited_plugin_continues_has_no_line_of_the_earlier_code(
    aptool, pools, collection_folder, monkeypatch
):
    write(PLUGIN)
    train(aptool, collection_folder)
    command = ("--plugin", "plug.py", "score", pools, "--model", "m")
    interrupted(aptool, monkeypatch, "r.run", *command)

    edit(PLUGIN, "SCALE = 1.0", "SCALE = 30.0")
    assert_refused(aptool(*command, "--output", "r.run"))
    assert aptool(*command, "--output", "r.run", "--overwrite").code == 0
    assert aptool(*command, "--output", "fresh.run").code == 0

    resumed, fresh = (library.Run.load(name) for name in ("r.run", "fresh.run"))
    assert resumed.to_dict() == fresh.to_dict()
    assert resumed_units() == 0


def test_training_notices_an_edited_plugin(aptool, folder, collection_folder):
    write(PLUGIN)
    train(aptool, collection_folder)
    before = Path("m/model.safetensors").read_bytes()
    forget()
    assert "up to date" in "".join(train(aptool, collection_folder).err)

    edit(PLUGIN, "SCALE = 1.0", "SCALE = 30.0")
    train(aptool, collection_folder, "m", "--overwrite")
    train(aptool, collection_folder, "fresh")

    assert Path("m/model.safetensors").read_bytes() == Path("fresh/model.safetensors").read_bytes() != before


TABLE = """
[collections.tiny]
path = "{collection}"
splits = ["test"]
[systems.scaled]
preset = "qa-cnn"
set = {options}
[[rows]]
collection = "tiny"
systems = ["scaled"]
seeds = [1]
"""


def test_a_matrix_runs_the_trials_of_an_edited_plugin_again(aptool, folder, collection_folder):
    options = [*OPTIONS, "encoder.features=8", "pooling.type=scaled", "training.epochs=1"]
    Path("table.toml").write_text(TABLE.format(collection=collection_folder, options=json.dumps(options)))
    command = ("--plugin", "plug.py", "matrix", "table.toml", "--output")
    write(PLUGIN)
    assert aptool(*command, "out").code == 0
    (run,) = Path("out").rglob("*.run")
    before = run.read_bytes()

    edit(PLUGIN, "SCALE = 1.0", "SCALE = 30.0")
    refused = aptool(*command, "out")
    assert refused.code == 1
    assert "a result of another recipe, collection or version" in refused.err[-1]
    assert aptool(*command, "out", "--overwrite").code == 0
    assert aptool(*command, "fresh").code == 0

    (fresh,) = Path("fresh").rglob("*.run")
    assert run.read_bytes() == fresh.read_bytes() != before


def test_code_of_aptool_has_no_hash_and_a_plugin_has_that_of_its_file(folder):
    write(PLUGIN)
    plug = importlib.import_module("plug")
    text = (folder / "plug.py").read_bytes()

    assert plugins.sources_of([POOLINGS["max"]]) == {}
    assert plugins.sources_of([plug.ScaledPooling]) == {"plug.py": hashlib.sha256(text).hexdigest()[:16]}


def test_a_plugin_that_differs_on_a_node_is_refused(folder):
    write(PLUGIN)
    expected = plugins.sources_of([importlib.import_module("plug").ScaledPooling])
    check_worker(folder, expected, folder)

    edit(PLUGIN, "SCALE = 1.0", "SCALE = 30.0")
    importlib.import_module("plug")

    with pytest.raises(
        AptoolError, match=r"plug\.py \w+ there, \w+ here: expected the same versions and plugins"
    ):
        check_worker(folder, expected, folder)
