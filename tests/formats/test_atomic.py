"""Files and folders are written completely or not at all, and no temporary files remain."""

import os
import stat
from pathlib import Path

import pytest

from aptool.errors import InputError
from aptool.formats.atomic import check_writable
from aptool.formats.outputs import Kind
from aptool.outputs import check_output_folder, output_file, output_folder


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_file_appears_when_the_block_ends(tmp_path):
    final = tmp_path / "new" / "x.run"

    with output_file(final) as temporary:
        temporary.write_text("whole")
        assert not final.exists()
        # In the same folder, because a rename between file systems is a copy, which is not atomic.
        assert temporary.parent == final.parent

    assert final.read_text() == "whole"
    assert names(final.parent) == ["x.run"]


def test_target_of_a_symbolic_link_is_replaced(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.run").write_text("old")
    (tmp_path / "x.run").symlink_to(tmp_path / "elsewhere" / "x.run")

    with output_file(tmp_path / "x.run") as temporary:
        temporary.write_text("new")

    assert (tmp_path / "x.run").is_symlink()
    assert (tmp_path / "elsewhere" / "x.run").read_text() == "new"


def test_file_has_the_default_mode(tmp_path):
    with output_file(tmp_path / "x") as temporary:
        temporary.write_text("x")
    (tmp_path / "ordinary").write_text("x")

    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("x", "ordinary")]
    assert modes[0] == modes[1]


@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt()])
def test_failure_leaves_only_the_old_file(tmp_path, error):
    final = tmp_path / "x.run"
    final.write_text("old")

    def write():
        with output_file(final) as temporary:
            temporary.write_text("half of the ne")
            raise error

    with pytest.raises(type(error)):
        write()

    assert final.read_text() == "old"
    assert names(tmp_path) == ["x.run"]


def test_folder_is_replaced_when_the_block_ends(tmp_path):
    final = tmp_path / "model"
    for content in ("old", "new"):
        with output_folder(final, Kind.MODEL, "mark") as temporary:
            (temporary / "mark").write_text(content)
            (temporary / "deep").mkdir()
            (temporary / "deep" / content).write_text(content)
            if content == "new":
                assert (final / "mark").read_text() == "old"

    assert (final / "mark").read_text() == "new"
    assert names(final / "deep") == ["new"]
    assert names(tmp_path) == ["model"]


@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt()])
def test_failure_leaves_only_the_old_folder(tmp_path, error):
    final = tmp_path / "model"
    with output_folder(final, Kind.MODEL, "mark") as temporary:
        (temporary / "mark").write_text("old")

    def write():
        with output_folder(final, Kind.MODEL, "mark") as temporary:
            (temporary / "mark").write_text("half")
            raise error

    with pytest.raises(type(error)):
        write()

    assert (final / "mark").read_text() == "old"
    assert names(tmp_path) == ["model"]


def test_old_folder_is_restored_if_the_rename_fails(tmp_path, monkeypatch):
    final = tmp_path / "model"
    with output_folder(final, Kind.MODEL, "mark") as temporary:
        (temporary / "mark").write_text("old")
    rename = os.replace

    def stopped_after_the_first(source, target):
        # Between the two renames.
        if str(source).endswith(".part"):
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(os, "replace", stopped_after_the_first)
    with pytest.raises(KeyboardInterrupt), output_folder(final, Kind.MODEL, "mark") as temporary:
        (temporary / "mark").write_text("new")

    assert (final / "mark").read_text() == "old"
    assert names(tmp_path) == ["model"]


def test_folder_of_another_kind_is_not_replaced(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letters.txt").write_text("dear")

    with (
        pytest.raises(InputError, match=r"home: no record that aptool wrote it; expected another path"),
        output_folder(tmp_path / "home", Kind.MODEL, "model.safetensors"),
    ):
        pytest.fail("the block must not begin")

    assert names(tmp_path / "home") == ["letters.txt"]


def test_empty_folder_and_current_folder_can_be_replaced(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")

    with output_folder(".", Kind.MODEL, "mark") as temporary:
        (temporary / "mark").write_text("new")

    assert (tmp_path / "empty" / "mark").read_text() == "new"
    assert names(tmp_path) == ["empty"]


def test_check_writable_names_unwritable_paths(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "folder").mkdir()

    with pytest.raises(InputError, match=r"file/x\.run: .*; expected a writable folder"):
        check_writable(tmp_path / "file" / "x.run")
    with pytest.raises(InputError, match="folder: a folder; expected a file, or a new path"):
        check_writable(tmp_path / "folder")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="pipe: a device or a pipe; expected a file, or a new path"):
        check_writable(tmp_path / "pipe")
    with pytest.raises(InputError, match="file: a file; expected a folder, or a new path"):
        check_output_folder(tmp_path / "file", Kind.MODEL)
    with pytest.raises(InputError, match=r"file/model: .*; expected a writable folder"):
        check_output_folder(tmp_path / "file" / "model", Kind.MODEL)


def test_too_long_name_leaves_no_folder(tmp_path):
    for path in (tmp_path / "a" / "b" / ("x" * 250), tmp_path / "a" / ("x" * 300) / "x.run"):
        with pytest.raises(InputError, match="File name too long; expected a writable folder"):
            check_writable(path)

    assert names(tmp_path) == []


@pytest.mark.parametrize("url", ["https://host/x.run", Path("hf://host/x.run")])
def test_read_only_url_is_refused(tmp_path, monkeypatch, url):
    monkeypatch.chdir(tmp_path)

    for check in (check_writable, lambda path: check_output_folder(path, Kind.MODEL)):
        with pytest.raises(InputError, match=r"host/x\.run: expected a path, or a URL of S3"):
            check(url)

    assert names(tmp_path) == []


def test_check_leaves_no_file(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "folder").mkdir()
    for path in ("x.run", "folder/x.run"):
        check_writable(tmp_path / path)

    assert names(tmp_path) == ["file", "folder"]


def test_disk_error_during_writing_is_one_line(tmp_path):
    def write():
        with output_file(tmp_path / "x.run"):
            raise OSError(28, "No space left on device")

    with pytest.raises(InputError, match=r"x\.run: No space left on device; expected a writable file"):
        write()

    assert names(tmp_path) == []


def test_files_of_a_folder_have_the_default_mode(tmp_path):
    (tmp_path / "ordinary").touch()

    with output_folder(tmp_path / "model", Kind.MODEL, "weights") as into:
        (into / "weights").touch(mode=0o600)

    ordinary = (tmp_path / "ordinary").stat().st_mode
    assert (tmp_path / "model" / "weights").stat().st_mode == ordinary


def test_leftovers_of_killed_processes_are_removed_but_not_of_running_ones(tmp_path):
    (tmp_path / ".x.abcd1234.part").write_text("half")
    (tmp_path / ".c.abcd1234.part").mkdir()

    with output_file(tmp_path / "x") as file, output_folder(tmp_path / "c", Kind.MODEL, "mark") as folder:
        assert {path.name for path in tmp_path.iterdir()} == {file.name, folder.name}
        with (
            output_file(tmp_path / "x") as other,
            output_folder(tmp_path / "c", Kind.MODEL, "mark") as another,
        ):
            assert file.exists()
            assert folder.exists()
            other.write_text("second")
            (another / "mark").write_text("second")
        file.write_text("first")
        (folder / "mark").write_text("first")

    assert (tmp_path / "x").read_text() == (tmp_path / "c" / "mark").read_text() == "first"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "x"]


def test_folder_of_a_concurrent_process_is_replaced(tmp_path, monkeypatch):
    replace, final, times = os.replace, tmp_path / "c", iter([1])

    def late(source, target):
        if target == final and next(times, None):
            with output_folder(final, Kind.MODEL, "mark") as other:
                (other / "mark").write_text("another's")
            (final / "notes").write_text("mine")
        replace(source, target)

    monkeypatch.setattr(os, "replace", late)
    with output_folder(final, Kind.MODEL, "mark") as folder:
        (folder / "mark").write_text("own")

    assert (final / "mark").read_text() == "own"
    assert (final / "notes").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["c"]
