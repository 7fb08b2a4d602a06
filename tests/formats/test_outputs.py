"""An output replaces only files that aptool wrote and that have not changed since."""

import hashlib
import json
import re

import pytest

from aptool.errors import InputError
from aptool.formats import outputs
from aptool.formats.outputs import Kind


def write(path, content="a run\n", kind=Kind.RUN):
    """Write a file as aptool does: the record first."""
    outputs.record(path, kind, hashlib.sha256(content.encode()).hexdigest())
    path.write_text(content)


def test_new_and_empty_files_may_be_written(tmp_path):
    (tmp_path / "empty").touch()

    outputs.check_replaceable(tmp_path / "new", Kind.RUN)
    outputs.check_replaceable(tmp_path / "empty", Kind.RUN)

    assert not (tmp_path / outputs.MANIFEST).exists()


@pytest.mark.parametrize(
    ("content", "kind", "problem"),
    [
        ("a run\n", Kind.VECTORS, "another kind of output (run)"),
        ("a run, corrected\n", Kind.RUN, "changed since aptool wrote it"),
    ],
)
def test_other_kinds_and_changed_files_stay(tmp_path, content, kind, problem):
    write(tmp_path / "x.run")
    (tmp_path / "x.run").write_text(content)

    with pytest.raises(InputError, match=re.escape(f"x.run: {problem}; expected another path")):
        outputs.check_replaceable(tmp_path / "x.run", kind)


def test_killed_write_leaves_a_replaceable_file(tmp_path):
    write(tmp_path / "x.run", "first\n")
    outputs.record(
        tmp_path / "x.run", Kind.RUN, hashlib.sha256(b"second\n").hexdigest()
    )  # killed before the rename

    outputs.check_replaceable(tmp_path / "x.run", Kind.RUN)


def test_temporary_record_of_a_killed_process_is_removed(tmp_path):
    (tmp_path / f".{outputs.MANIFEST}.zzzzz123.part").write_text("{")

    write(tmp_path / "x.run")

    assert sorted(path.name for path in tmp_path.iterdir()) == [outputs.MANIFEST, "x.run"]


def test_several_writers_share_one_record(tmp_path):
    for number in range(5):
        write(tmp_path / f"{number}.run")
    write(tmp_path / "3.run", "again\n")

    recorded = outputs.read_written(tmp_path)

    assert sorted(recorded) == [f"{number}.run" for number in range(5)]
    assert len(recorded["3.run"].hashes) == 2


@pytest.mark.parametrize("content", ["", "[]", '{"x.run": 1}', '{"x.run": {"kind": "run"}}', "no JSON"])
def test_record_of_another_program_is_one_line(tmp_path, content):
    (tmp_path / outputs.MANIFEST).write_text(content)
    (tmp_path / "x.run").write_text("mine")

    with pytest.raises(InputError, match=rf"{outputs.MANIFEST}: .*expected the record of outputs"):
        outputs.check_replaceable(tmp_path / "x.run", Kind.RUN)


def folder_of(tmp_path, **files):
    folder = tmp_path / "m"
    folder.mkdir()
    entries = {}
    for name, content in files.items():
        (folder / name).write_text(content)
        entries[name] = outputs.Written(Kind.MODEL, (hashlib.sha256(content.encode()).hexdigest(),))
    outputs.record_all(folder, entries)
    return folder


def test_folders_of_other_kinds_and_programs_stay(tmp_path):
    folder = folder_of(tmp_path, card="c")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text(json.dumps({"model_type": "bert"}))

    with pytest.raises(InputError, match=r"m: another kind of output \(model\); expected another path"):
        outputs.check_folder_replaceable(folder, Kind.COLLECTION)
    with pytest.raises(InputError, match="other: no record that aptool wrote it"):
        outputs.check_folder_replaceable(tmp_path / "other", Kind.MODEL)
