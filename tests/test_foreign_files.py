"""No file of the user's is removed: only what aptool wrote, by its exact names."""

import hashlib
import json
import os
import shutil

import pytest
from tiny import labelled_pools, row, write_pools

from aptool.errors import InputError
from aptool.formats.atomic import atomic_folder, remove_leftovers
from aptool.formats.collection import CollectionFiles, CollectionWriter
from aptool.models.model import check_model_folder, load_model, save_model


def texts(folder):
    """The content of every file of a folder, by its relative path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def save(folder, model_folder):
    model = load_model(model_folder)
    save_model(folder, model.ranker, model.tokenizer, model.recipe, model.config["training"], [])


def test_scoring_keeps_other_files_in_the_folder_of_parts(aptool, model_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pool = labelled_pools("test", 12)[0]
    write_pools(
        tmp_path / "x.pools.parquet",
        [row(pool.question_id, pool.question, list(zip(pool.answer_ids, pool.texts, strict=True)))],
    )
    parts = tmp_path / "x.run.parts"
    (parts / "deep").mkdir(parents=True)
    mine = {"notes.txt": b"mine", "my.part": b"mine", "deep/a.part": b"mine", ".my.12345678.part": b"mine"}
    for name, content in mine.items():
        (parts / name).write_bytes(content)
    (parts / f"{'0' * 24}.part").write_bytes(b"of an earlier run")

    finished = aptool("score", "x.pools.parquet", "--model", model_folder, "--output", "x.run")

    assert finished.code == 0
    assert texts(parts) == mine


def test_a_model_that_replaces_another_keeps_the_users_files(model_folder, tmp_path):
    folder = tmp_path / "m"
    save(folder, model_folder)
    (folder / "notes.txt").write_text("mine")
    (folder / "training" / "log.txt").write_text("mine")
    (folder / "empty").mkdir()
    (folder / "link").symlink_to("/nowhere")
    (folder / "notes.txt").chmod(0o600)

    save(folder, model_folder)

    assert (folder / "notes.txt").read_text() == (folder / "training" / "log.txt").read_text() == "mine"
    assert (folder / "notes.txt").stat().st_mode & 0o777 == 0o600
    assert (folder / "empty").is_dir()
    assert str((folder / "link").readlink()) == "/nowhere"
    assert names(tmp_path) == ["m"]


def test_a_network_of_another_library_is_not_replaced(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    (tmp_path / "model.safetensors").write_text("weights")

    with pytest.raises(InputError, match="a bert network of another library; expected a model of aptool"):
        check_model_folder(tmp_path)


def test_leftovers_of_a_neighbour_stay(tmp_path):
    kept = [".m.other.abcd1234.part", ".m.notes.part", ".m.abcd1234.parts", ".mm.abcd1234.part"]
    for name in [*kept, ".m.abcd1234.part", ".m.abc_1234.part.old", "m"]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)

    remove_leftovers(tmp_path / "m")

    assert names(tmp_path) == sorted([*kept, "m"])


def test_a_folder_whose_replacement_was_cut_short_comes_back(tmp_path):
    (tmp_path / ".m.abcd1234.part").mkdir()
    (tmp_path / ".m.abcd1234.part.old").mkdir()
    (tmp_path / ".m.abcd1234.part.old" / "notes.txt").write_text("mine")

    remove_leftovers(tmp_path / "m")

    assert names(tmp_path) == ["m"]
    assert (tmp_path / "m" / "notes.txt").read_text() == "mine"


def write_collection(folder):
    with CollectionWriter(folder, name="mine", source="made by hand") as writer:
        writer.add_split("test", labelled_pools("test", 12))
    return CollectionFiles(folder)


def change_manifest(folder, change):
    path = folder / "collection.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def test_a_file_that_a_manifest_lists_though_it_is_not_its_own_stays(tmp_path):
    folder = tmp_path / "c"
    write_collection(folder)
    (folder / "notes.txt").write_text("mine")
    (folder / "dev.qrels").write_text("changed by hand")
    shutil.copy(folder / "test.qrels", folder / "train.qrels")

    def change(manifest):
        manifest["files"]["notes.txt"] = hashlib.sha256(b"mine").hexdigest()
        manifest["splits"]["dev"] = manifest["splits"]["train"] = manifest["splits"]["test"]
        manifest["files"]["dev.qrels"] = manifest["files"]["train.qrels"] = manifest["files"]["test.qrels"]

    change_manifest(folder, change)
    write_collection(folder)

    assert (folder / "notes.txt").read_text() == "mine"
    assert (folder / "dev.qrels").read_text() == "changed by hand"
    assert not (folder / "train.qrels").exists()  # of the collection that was replaced, by name and hash


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "..", "a/b", "a\\b"])
def test_names_in_a_manifest_are_never_paths(tmp_path, name):
    write_collection(tmp_path / "c")
    whole = (tmp_path / "c" / "collection.json").read_text()
    for section in ("files", "splits"):
        (tmp_path / "c" / "collection.json").write_text(whole)

        def change(manifest, section=section):
            manifest[section][name] = next(iter(manifest[section].values()))

        change_manifest(tmp_path / "c", change)
        with pytest.raises(InputError):
            CollectionFiles(tmp_path / "c")


@pytest.mark.parametrize("split", ['split = "../../x"', 'splits = ["test", "/x"]'])
def test_split_names_of_a_matrix_are_never_paths(aptool, tmp_path, split):
    matrix = tmp_path / "matrix.toml"
    matrix.write_text(
        f'[collections.c]\npath = "c"\n{split}\n[systems.r]\nbaseline = "random"\n'
        '[[rows]]\ncollection = "c"\nsystems = ["r"]\n'
    )

    finished = aptool("matrix", matrix, "--output", tmp_path / "out")

    assert finished.code == 1
    assert len(finished.err) == 1
    assert "collections/c/split" in finished.err[0]


@pytest.mark.parametrize("split", ["../x", "/x", "a/b", "..", ""])
def test_split_names_of_an_import_are_never_paths(aptool, tmp_path, split):
    (tmp_path / "x.qrels").write_text("mine")

    finished = aptool(
        "data", "import", "mteb", tmp_path / "none", "--split", split, "--output", tmp_path / "c"
    )

    assert finished.code == 1
    assert finished.err == [f"aptool: {tmp_path / 'c'}: split: {split!r}: expected a name, such as test"]
    assert texts(tmp_path) == {"x.qrels": b"mine"}


def test_a_pipe_in_a_folder_is_one_line_and_the_folder_stays(tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "mark").write_text("old")
    os.mkfifo(tmp_path / "m" / "pipe")

    with (
        pytest.raises(InputError, match="a device or a pipe; expected only files and folders"),
        atomic_folder(tmp_path / "m", "mark") as into,
    ):
        (into / "mark").write_text("new")

    assert (tmp_path / "m" / "mark").read_text() == "old"
    assert names(tmp_path) == ["m"]
