"""Outputs are written completely or not at all, and replace nothing without being asked."""

import os
import resource
import signal
import stat
import subprocess
import sys

import pytest
from s3 import put_bytes

from aptool.errors import InputError
from aptool.outputs import (
    check_apart,
    check_output,
    check_output_folder,
    delete,
    lock,
    output_file,
    output_folder,
)
from aptool.paths import names

EXISTS = "it exists; expected another path, or --overwrite"


def put_folder(path, **files):
    with output_folder(path, "mark") as temporary:
        for name, content in files.items():
            (temporary / name).write_text(content)


def test_file_appears_when_the_block_ends(folder):
    with output_file(folder / "sub" / "one") as temporary:
        temporary.write_bytes(b"whole")
        assert not (folder / "sub" / "one").exists()

    assert (folder / "sub" / "one").read_bytes() == b"whole"
    assert names(folder) == ["sub/one"]


@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt()])
def test_failure_leaves_only_the_old_file(folder, error):
    put_bytes(folder / "x.run", b"old")

    put_folder(folder / "model", mark="old")

    def write():
        with output_file(folder / "x.run") as file, output_folder(folder / "model", "mark") as into:
            file.write_bytes(b"half of the ne" * 1_000_000)
            (into / "mark").write_text("half")
            raise error

    with pytest.raises(type(error)):
        write()

    assert (folder / "x.run").read_bytes() == (folder / "model" / "mark").read_bytes() == b"old"
    assert names(folder) == ["model/mark", "x.run"]


def test_target_of_a_symbolic_link_is_replaced(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.run").write_text("old")
    (tmp_path / "x.run").symlink_to(tmp_path / "elsewhere" / "x.run")

    put_bytes(tmp_path / "x.run", b"new")

    assert (tmp_path / "x.run").is_symlink()
    assert (tmp_path / "elsewhere" / "x.run").read_text() == "new"


def test_files_have_the_default_mode(tmp_path):
    (tmp_path / "ordinary").touch()
    put_bytes(tmp_path / "x")
    with output_folder(tmp_path / "model", "weights") as into:
        (into / "weights").touch(mode=0o600)  # as some libraries do

    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("ordinary", "x", "model/weights")}
    assert len(modes) == 1


def test_folder_is_complete_when_it_has_its_mark(folder):
    put_folder(folder / "model", mark="old", other="old")
    put_bytes(folder / "model" / "notes.txt", b"mine")

    put_folder(folder / "model", mark="new", further="new")

    content = {name: (folder / "model" / name).read_bytes() for name in names(folder / "model")}
    assert content == {"mark": b"new", "other": b"old", "further": b"new", "notes.txt": b"mine"}
    assert {name.split("/")[0] for name in names(folder)} == {"model"}


def test_mark_is_removed_first_and_written_last(s3_proxy, bucket):
    put_folder(f"{bucket}/model", mark="old", a="old", z="old")
    s3_proxy.requests.clear()

    put_folder(f"{bucket}/model", mark="new", a="new", z="new")

    changes = [
        (method, path.partition("?")[0].rpartition("/")[2])
        for method, path in s3_proxy.requests
        if method in ("PUT", "DELETE")
    ]
    assert changes[0] == ("DELETE", "mark")
    assert changes[-1] == ("PUT", "mark")
    assert ("PUT", "a") in changes


def test_empty_folder_and_current_folder_can_be_written(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")

    put_folder(".", mark="new")

    assert names(tmp_path) == ["empty/mark"]


def test_what_a_killed_process_left_is_replaced(tmp_path):
    code = (
        "import os, signal, sys\n"
        "from aptool.outputs import output_file, output_folder\n"
        "x, c = sys.argv[1:]\n"
        "with output_file(x) as file, output_folder(c, 'm') as c:\n"
        "    file.write_text('half of this')\n"
        "    (c / 'stale').write_text('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert (
        subprocess.run([sys.executable, "-c", code, tmp_path / "x", tmp_path / "c"], check=False).returncode
        == -signal.SIGKILL
    )
    assert names(tmp_path) != []
    assert not (tmp_path / "x").exists()

    put_bytes(tmp_path / "x", b"whole")
    put_folder(tmp_path / "c", mark="whole")

    assert names(tmp_path) == ["c/mark", "x"]
    assert (tmp_path / "x").read_text() == "whole"


def test_new_and_empty_outputs_may_be_written_and_others_not(folder):
    put_bytes(folder / "empty", b"")
    put_bytes(folder / "full", b"1")

    check_output(folder / "new")
    check_output(folder / "empty")
    check_output(folder / "full", overwrite=True)
    check_output_folder(folder / "other")
    check_output_folder(folder, overwrite=True)
    with pytest.raises(InputError, match=f"full: {EXISTS}"):
        check_output(folder / "full")
    with pytest.raises(InputError, match=EXISTS):
        check_output_folder(folder)
    assert names(folder) == ["empty", "full"]


def test_paths_that_cannot_be_written_are_named(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(InputError, match=r"file/x\.run: .*; expected a writable folder"):
        check_output(tmp_path / "file" / "x.run")
    with pytest.raises(InputError, match="folder: a folder; expected a file, or a new path"):
        check_output(tmp_path / "folder", overwrite=True)
    with pytest.raises(InputError, match="pipe: a device or a pipe; expected a file, or a new path"):
        check_output(tmp_path / "pipe", overwrite=True)
    with pytest.raises(InputError, match="file: a file; expected a folder, or a new path"):
        check_output_folder(tmp_path / "file", overwrite=True)
    with pytest.raises(InputError, match=r"file/model: .*; expected a writable folder"):
        check_output_folder(tmp_path / "file" / "model")
    for path in (tmp_path / "a" / "b" / ("x" * 250), tmp_path / "a" / ("x" * 300) / "x.run"):
        with pytest.raises(InputError, match="File name too long; expected a writable folder"):
            check_output(path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder", "pipe"]


def test_full_disk_is_one_line_that_names_the_output(tmp_path):
    (tmp_path / "one").write_bytes(b"first")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(InputError, match="one: File too large; expected a writable file"):
            put_bytes(tmp_path / "one", bytes(100))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert names(tmp_path) == ["one"]
    assert (tmp_path / "one").read_bytes() == b"first"


def test_an_output_is_not_one_of_its_inputs(folder):
    put_bytes(folder / "a.run")
    put_bytes(folder / "model" / "config.json")

    check_apart(folder / "b.run", [folder / "a.run", folder / "model"])
    check_apart(folder / "model" / "new.run", [folder / "model"])
    for name, source in (("a.run", "a.run"), ("model/config.json", "model")):
        with pytest.raises(InputError, match="also an input of this command"):
            check_apart(folder / name, [folder / source])


def test_one_process_at_a_time_locks_a_folder(tmp_path):
    code = (
        "import time\nfrom pathlib import Path\nfrom aptool.outputs import lock\n"
        f"with lock(Path({str(tmp_path / 'x.parts')!r})):\n"
        "    print('locked', flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "locked\n"
        refused = rf"x\.parts: being written by process {process.pid} on .*; expected one command at a time"
        with pytest.raises(InputError, match=refused), lock(tmp_path / "x.parts"):
            pytest.fail("two processes have the lock")
        process.kill()
    with lock(tmp_path / "x.parts"):
        assert names(tmp_path / "x.parts") == [".lock"]
    assert names(tmp_path) == []
    assert not (tmp_path / "x.parts").exists()


def test_all_objects_of_a_folder_are_removed_with_few_requests(s3_proxy, bucket):
    files = [f"{bucket}/out.run.parts/{number}" for number in range(40)]
    for file in files:
        put_bytes(file)
    s3_proxy.requests.clear()

    delete(files)

    assert len(s3_proxy.requests) <= 6
    assert names(bucket) == []


def test_other_objects_of_the_folder_stay(bucket):
    for name in "abc":
        put_bytes(f"{bucket}/out.run.parts/{name}")

    delete([f"{bucket}/out.run.parts/{name}" for name in "ab"])

    assert names(bucket) == ["out.run.parts/c"]
