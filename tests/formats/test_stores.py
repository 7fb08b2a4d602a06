"""Operations of disks and object stores: create, swap, atomic writes, reads of one version."""

import errno
import os
import re
import resource
import threading
from pathlib import Path

import pytest
import s3

from aptool.errors import InputError
from aptool.files import ReplacedError, expand, open_binary
from aptool.formats.atomic import check_writable
from aptool.formats.location import store_of
from aptool.formats.outputs import MANIFEST, Kind
from aptool.outputs import output_file, output_folder
from aptool.paths import Url, location, open_store
from aptool.version import install_command


@pytest.fixture(params=["disk", "s3", "gs", "az"])
def folder(request, tmp_path):
    if request.param == "disk":
        return location(tmp_path)
    return Url(request.getfixturevalue("bucket_on")(request.param))


def test_only_one_of_many_writers_creates_a_file(folder):
    store, key = store_of(folder / "one")
    made = []

    def create(number):
        made.append((store.create(key, b"%d" % number), number))

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    [winner] = [number for created, number in made if created]
    assert store.read(key) == b"%d" % winner
    assert store.names(store_of(folder)[1]) == ["one"]


def test_only_one_of_many_swaps_succeeds(folder):
    store, key = store_of(folder / "one")
    store.create(key, b"first")
    data, version = store.read_versioned(key)
    swapped = []
    threads = [
        threading.Thread(target=lambda n=n: swapped.append(store.swap(key, b"%d" % n, version)))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert data == b"first"
    assert sorted(swapped) == [False] * 7 + [True]
    assert store.read(key) != b"first"


def test_full_disk_is_one_line_that_names_the_file(tmp_path):
    store, key = store_of(tmp_path / "one")
    store.create(key, b"first")
    _, version = store.read_versioned(key)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        for path, write in (
            (tmp_path / "two", lambda: store.create(str(tmp_path / "two"), bytes(100))),
            (tmp_path / "one", lambda: store.swap(key, bytes(100), version)),
        ):
            with pytest.raises(InputError, match=f"^{path}: File too large; expected a writable file"):
                write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("one", b"first")]


@pytest.mark.parametrize("error", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_file_is_created_on_a_file_system_without_links(tmp_path, monkeypatch, error):
    """FAT and some file systems of FUSE have no links."""
    monkeypatch.setattr(os, "link", failing(error))
    store, key = store_of(tmp_path / "one")

    assert store.create(key, b"first")
    assert not store.create(key, b"second")

    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("one", b"first")]


def test_failed_creation_leaves_no_file(tmp_path, monkeypatch):
    """With and without links, a full disk leaves no part of the file under its name."""
    store, key = store_of(tmp_path / "one")
    monkeypatch.setattr(os, "link", failing(errno.ENOSPC))
    with pytest.raises(InputError, match="one: No space left on device; expected a writable file"):
        store.create(key, b"first")
    assert list(tmp_path.iterdir()) == []

    monkeypatch.setattr(os, "link", failing(errno.EPERM))
    flushed = []

    def fsync(handle):
        flushed.append(handle)
        if len(flushed) == 2:  # the first is the temporary file
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(InputError, match="one: No space left on device; expected a writable file"):
        store.create(key, b"first")
    assert list(tmp_path.iterdir()) == []


def failing(number):
    def link(source, target):
        raise OSError(number, os.strerror(number))

    return link


def test_missing_file_is_not_swapped(folder):
    store, key = store_of(folder / "one")
    store.create(key, b"first")
    _, version = store.read_versioned(key)
    store.delete([key])

    assert not store.swap(key, b"x", version)
    assert store.names(store_of(folder)[1]) == []


@pytest.mark.parametrize("size", [10, 20_000_000])
def test_failed_stream_leaves_the_old_file(folder, size):
    store, key = store_of(folder / "one")

    def write(data, fail):
        with store.writer(key) as file:
            file.write(memoryview(data))
            if fail:
                raise RuntimeError

    with pytest.raises(RuntimeError):
        write(b"x" * size, fail=True)
    assert store.names(store_of(folder)[1]) == []
    write(b"y" * size, fail=False)
    with pytest.raises(RuntimeError):
        write(b"z" * size, fail=True)

    assert store.read(key) == b"y" * size
    assert store.names(store_of(folder)[1]) == ["one"]


def test_a_buffer_may_be_used_again_after_it_is_written(folder):
    store, key = store_of(folder / "one")
    buffer = bytearray(b"first")

    with store.writer(key) as file:
        file.write(memoryview(buffer))
        buffer[:] = b"other"
        file.write(memoryview(buffer))

    assert store.read(key) == b"firstother"


def test_file_is_written_through_a_temporary_file(folder):
    with output_file(folder / "sub" / "one") as temporary:
        temporary.write_bytes(b"whole")
        assert not (folder / "sub" / "one").exists()

    assert (folder / "sub" / "one").read_bytes() == b"whole"

    def fail():
        with output_file(folder / "sub" / "one") as temporary:
            temporary.write_bytes(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert (folder / "sub" / "one").read_bytes() == b"whole"


def test_ranges_are_read(folder):
    store, key = store_of(folder / "one")
    store.create(key, bytes(range(100)))

    assert store.read(key, 3, 7) == bytes([3, 4, 5, 6])
    assert store.read(key, 98) == bytes([98, 99])
    assert store.read(key, 7, 7) == b""


@pytest.mark.parametrize("kind", ["s3", "gs", "az"])
def test_ranges_of_an_object_are_read_from_one_version(bucket_on, kind):
    folder = Url(bucket_on(kind))
    store, key = store_of(folder / "one")
    store.create(key, bytes(range(100)))
    version = store.stat(key).version

    assert store.read(key, 3, 7, version) == bytes([3, 4, 5, 6])
    assert store.read(key, 98, None, version) == bytes([98, 99])
    with output_file(folder / "one") as temporary:
        temporary.write_bytes(b"another")
    with pytest.raises(ReplacedError, match=r"one: replaced while it was read"):
        store.read(key, 3, 7, version)


def test_missing_file_raises_file_not_found(folder):
    store, key = store_of(folder / "none")

    with pytest.raises(FileNotFoundError):
        store.stat(key)
    with pytest.raises(FileNotFoundError):
        store.read(key)
    with pytest.raises(InputError, match="none: file not found"):
        open_binary(folder / "none")


def test_missing_files_do_not_stop_a_deletion(folder):
    store, _ = store_of(folder)
    keys = [store_of(folder / str(number))[1] for number in range(6)]
    for key in keys[1::2]:
        store.create(key, b"x")

    store.delete(keys)

    assert store.names(store_of(folder)[1]) == []


def test_object_paths_behave_like_local_paths(bucket):
    path = Url(f"{bucket}/a/b.c.txt")

    assert (path.name, path.stem, path.suffix) == ("b.c.txt", "b.c", ".txt")
    assert str(path.parent) == f"{bucket}/a"
    assert str(path.parent.parent) == bucket == str(path.parent.parent.parent)
    assert str(path.with_name("d") / "e") == f"{bucket}/a/d/e"
    assert location(Path(str(path))) == path  # pathlib removes a slash
    assert not path.is_file()
    assert not path.parent.is_dir()
    with output_file(path) as temporary:
        temporary.write_text("ä", encoding="utf-8")
    assert path.is_file()
    assert not path.is_dir()
    assert path.parent.is_dir()
    assert list(path.parent.parent.iterdir()) == [path.parent]
    assert path.read_text() == "ä"
    with path.open() as file:
        assert (file.read(1), file.seek(-1, 2), file.read()) == ("ä".encode()[:1], 1, "ä".encode()[1:])
    path.unlink()
    assert not path.exists()


def test_folder_marker_of_another_tool_is_not_a_file(bucket, s3_server):
    """The S3 console, for example, creates an empty object ``folder/``."""
    s3.put_empty(f"{s3_server}/{bucket.removeprefix('s3://')}/new/")

    store, key = store_of(f"{bucket}/new")
    assert store.names(key) == []
    with output_folder(f"{bucket}/new", Kind.MODEL, "mark") as folder:
        (folder / "mark").write_text("x")
    assert store.names(key) == [MANIFEST, "mark"]


def test_folders_and_globs_are_expanded(bucket):
    for name in ("x/a.parquet", "x/b.parquet", "x/c.txt", "x/y/d.parquet", "z/a.parquet"):
        store, key = store_of(f"{bucket}/{name}")
        store.create(key, b"1")

    assert expand([f"{bucket}/x"], ".parquet") == [f"{bucket}/x/a.parquet", f"{bucket}/x/b.parquet"]
    assert expand([f"{bucket}/?/a.par*"], "") == [f"{bucket}/x/a.parquet", f"{bucket}/z/a.parquet"]
    assert expand([f"{bucket}/z/a.parquet"], "") == [f"{bucket}/z/a.parquet"]
    assert expand([f"{bucket}/x/[ab].parquet"], "") == [f"{bucket}/x/a.parquet", f"{bucket}/x/b.parquet"]
    with pytest.raises(InputError, match=r"x\*\.no: expected a file, a glob"):
        expand([f"{bucket}/x*.no"], "")


@pytest.mark.parametrize("name", ["br[1].parquet", "star*.parquet", "[d]/a.parquet"])
def test_a_file_whose_name_looks_like_a_glob_is_one_file(bucket, name):
    store, key = store_of(f"{bucket}/{name}")
    store.create(key, b"1")
    assert expand([f"{bucket}/{name}"], "") == [f"{bucket}/{name}"]


@pytest.mark.parametrize("write", [check_writable, lambda path: store_of(path)[0].create("x", b"1")])
def test_writing_to_a_missing_bucket_is_one_line(bucket, write):
    with pytest.raises(InputError, match="s3://no-such-bucket/x: no such bucket; expected a bucket"):
        write("s3://no-such-bucket/x")


def test_reading_from_a_missing_bucket_is_one_line(bucket):
    with pytest.raises(InputError, match="s3://no-such-bucket/x: no such bucket"):
        open_binary("s3://no-such-bucket/x")


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        (403, "access denied; expected credentials"),
        (301, "the bucket is in another region; expected its"),
    ],
)
def test_refused_request_is_one_line_without_retries(s3_proxy, bucket, status, problem):
    s3_proxy.before = lambda method, path: status

    with pytest.raises(InputError, match=f"{bucket}/x: {problem}") as error:
        check_writable(f"{bucket}/x")

    assert "\n" not in str(error.value)
    assert len(s3_proxy.requests) == 1  # without retries


def test_missing_credentials_are_one_line(bucket, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    open_store.cache_clear()

    with pytest.raises(InputError, match=r"no credentials; expected .* AWS_ACCESS_KEY_ID"):
        open_binary(f"{bucket}/x")


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        (None, "no credentials; expected .* AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"),
        ("short", "credentials refused"),
    ],
)
def test_missing_azure_account_and_invalid_key_are_one_line(key, problem, monkeypatch):
    pytest.importorskip("obstore")
    for variable in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(variable)
    if key is not None:
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "lab")
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", key)
    open_store.cache_clear()

    with pytest.raises(InputError, match=problem):
        open_binary("az://container/x")


def test_occasional_failures_of_a_store_are_retried(s3_proxy, bucket):
    """One request in three fails, before or after its execution; obstore retries it."""
    count = iter(range(10**6))
    s3_proxy.before = lambda method, path: 503 if next(count) % 6 == 1 else None
    s3_proxy.after = lambda method, path: 500 if next(count) % 6 == 3 else None
    store, _ = store_of(bucket)

    for number in range(10):
        data = b"%d" % number
        assert store.create(f"{number}", data)
        assert not store.create(f"{number}", b"other")
        stored, version = store.read_versioned(f"{number}")
        assert stored == data
        assert store.swap(f"{number}", data * 2, version)
        assert not store.swap(f"{number}", b"third", version)
        assert store.read(f"{number}", 0, 2) == (data * 2)[:2]


def test_other_protocols_are_read_only():
    with pytest.raises(InputError, match="http://host/x: expected a path, or a URL of S3"):
        check_writable("http://host/x")


def test_missing_obstore_is_one_line(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    open_store.cache_clear()

    with pytest.raises(
        InputError, match=re.escape(f"obstore is not installed; expected {install_command('cloud')}")
    ):
        open_binary("s3://bucket/x")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("s3://*", r"s3://\*: a wildcard in the bucket; expected the bucket's name"),
        ("s3://b?/x/*.parquet", "a wildcard in the bucket"),
        ("s3://b:99999/*.parquet", "invalid port number; expected the name of an object"),
        ("s3://b/../x.parquet", "illegal character sequence"),
        ("s3://", "expected s3://BUCKET/NAME"),
    ],
)
def test_url_without_an_object_is_one_line(url, problem, s3_at):
    s3.require()
    s3_at("http://127.0.0.1:1")  # receives no request
    with pytest.raises(InputError, match=problem):
        expand([url], ".parquet")


def test_object_whose_name_is_too_long_for_a_disk_is_written(bucket):
    path = Url(bucket) / ("x" * 900 + ".yml")

    with output_file(path) as temporary:
        assert temporary.suffix == ".yml"
        temporary.write_bytes(b"written")

    assert path.read_bytes() == b"written"
