"""aptool deletes only its own files, by their exact names."""

import json

import pytest
from tiny import labelled_pools, row, write_pools

from aptool.data.collection import Collection
from aptool.data.writing import write_collection
from aptool.errors import InputError
from aptool.models.model import load_model, remove_model, save_model


def texts(folder):
    """The content of every file of a folder, by its relative path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def save(folder, model_folder):
    model = load_model(model_folder)
    save_model(folder, model.ranker, model.tokenizer, model.recipe, model.config["training"], [])


def test_scoring_preserves_other_files_in_the_parts_folder(aptool, model_folder, tmp_path, monkeypatch):
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

    finished = aptool("score", "x.pools.parquet", "--model", model_folder, "--output", "x.run")

    assert finished.code == 0
    assert texts(parts) == mine


def test_new_model_preserves_files_of_the_user(model_folder, tmp_path):
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


def test_removal_of_a_model_preserves_files_of_others(model_folder, tmp_path):
    mine, other, empty = tmp_path / "mine", tmp_path / "other", tmp_path / "empty"
    save(mine, model_folder)
    (mine / "notes.txt").write_bytes(b"mine")
    other.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (other / name).write_text("{}")
    kept = texts(other)
    save(empty, model_folder)

    for folder in (mine, other, empty, tmp_path / "none"):
        remove_model(folder)

    assert texts(mine) == {"notes.txt": b"mine"}
    assert texts(other) == kept
    assert not empty.exists()


def test_names_in_a_manifest_cannot_be_paths(tmp_path):
    write_collection(tmp_path / "c", {"test": labelled_pools("test", 12)}, name="mine", source="made by hand")
    path = tmp_path / "c" / "collection.json"
    original = path.read_text()
    for name in ("../outside", "/etc/passwd", "..", "a/b", "a\\b"):
        for section in ("files", "splits"):
            manifest = json.loads(original)
            manifest[section][name] = next(iter(manifest[section].values()))
            path.write_text(json.dumps(manifest))
            with pytest.raises(InputError):
                Collection(tmp_path / "c")


def test_split_names_of_a_matrix_cannot_be_paths(aptool, tmp_path):
    matrix = tmp_path / "matrix.toml"
    for split in ('split = "../../x"', 'splits = ["test", "/x"]'):
        matrix.write_text(
            f'[collections.c]\npath = "c"\n{split}\n[systems.r]\nbaseline = "random"\n'
            '[[rows]]\ncollection = "c"\nsystems = ["r"]\n'
        )

        finished = aptool("matrix", matrix, "--output", tmp_path / "out")

        assert finished.code == 1
        assert len(finished.err) == 1
        assert "collections/c/split" in finished.err[0]
