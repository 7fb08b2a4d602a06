"""What a disk and an object store can both do: create, swap, publish whole, read one version."""

import os
import re
import resource
import threading
from pathlib import Path

import pytest
import s3

from aptool.errors import InputError
from aptool.formats import storage, stores
from aptool.formats.atomic import atomic_file, atomic_folder, check_writable
from aptool.formats.location import ObjectPath, location
from aptool.formats.store import ReplacedError
from aptool.formats.stores import store_of
from aptool.version import install_command


@pytest.fixture(params=["disk", "s3", "gs", "az"])
def folder(request, tmp_path):
    if request.param == "disk":
        return location(tmp_path)
    return ObjectPath(request.getfixturevalue("bucket_on")(request.param))


def test_of_many_writers_of_one_name_one_creates_it(folder):
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


def test_of_many_that_swap_what_they_saw_one_succeeds(folder):
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


def test_a_full_disk_is_one_line_that_names_the_file(tmp_path):
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


def test_nothing_is_swapped_where_nothing_is(folder):
    store, key = store_of(folder / "one")
    store.create(key, b"first")
    _, version = store.read_versioned(key)
    store.delete([key])

    assert not store.swap(key, b"x", version)
    assert store.names(store_of(folder)[1]) == []


@pytest.mark.parametrize("size", [10, 20_000_000])
def test_a_stream_that_fails_leaves_what_was_there(folder, size):
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


def test_a_file_written_through_a_temporary_one(folder):
    with atomic_file(folder / "sub" / "one") as temporary:
        temporary.write_bytes(b"whole")
        assert not (folder / "sub" / "one").exists()

    assert (folder / "sub" / "one").read_bytes() == b"whole"

    def fail():
        with atomic_file(folder / "sub" / "one") as temporary:
            temporary.write_bytes(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert (folder / "sub" / "one").read_bytes() == b"whole"


def test_ranges_of_one_version(folder):
    store, key = store_of(folder / "one")
    store.create(key, bytes(range(100)))
    version = store.stat(key).version

    assert store.read(key, 3, 7, version) == bytes([3, 4, 5, 6])
    assert store.read(key, 98, None, version) == bytes([98, 99])
    assert store.read(key, 7, 7) == b""
    with atomic_file(folder / "one") as temporary:
        temporary.write_bytes(b"another")
    with pytest.raises(ReplacedError, match=r"one: replaced while it was read"):
        store.read(key, 3, 7, version)


def test_a_file_that_is_not_there(folder):
    store, key = store_of(folder / "none")

    with pytest.raises(FileNotFoundError):
        store.stat(key)
    with pytest.raises(FileNotFoundError):
        store.read(key)
    with pytest.raises(InputError, match="none: file not found"):
        storage.open_binary(folder / "none")


def test_what_is_not_there_keeps_nothing_from_being_removed(folder):
    store, _ = store_of(folder)
    keys = [store_of(folder / str(number))[1] for number in range(6)]
    for key in keys[1::2]:
        store.create(key, b"x")

    store.delete(keys)

    assert store.names(store_of(folder)[1]) == []


def test_paths_of_objects_are_like_those_of_a_disk(bucket):
    here = ObjectPath(f"{bucket}/a/b.c.txt")

    assert (here.name, here.stem, here.suffix) == ("b.c.txt", "b.c", ".txt")
    assert str(here.parent) == f"{bucket}/a"
    assert str(here.parent.parent) == bucket == str(here.parent.parent.parent)
    assert str(here.with_name("d") / "e") == f"{bucket}/a/d/e"
    assert location(Path(str(here))) == here  # pathlib removes a slash
    assert not here.is_file()
    assert not here.parent.is_dir()
    with atomic_file(here) as temporary:
        temporary.write_text("ä", encoding="utf-8")
    assert here.is_file()
    assert not here.is_dir()
    assert here.parent.is_dir()
    assert list(here.parent.parent.iterdir()) == [here.parent]
    assert here.read_text() == "ä"
    with here.open() as file:
        assert (file.read(1), file.seek(-1, 2), file.read()) == ("ä".encode()[:1], 1, "ä".encode()[1:])
    here.unlink()
    assert not here.exists()


def test_a_folder_that_another_tool_marked_is_empty(bucket, s3_server):
    """The S3 console, for one, makes an empty object ``folder/``: a folder without files all the same."""
    s3.put_empty(f"{s3_server}/{bucket.removeprefix('s3://')}/new/")

    store, key = store_of(f"{bucket}/new")
    assert store.names(key) == []
    with atomic_folder(f"{bucket}/new", "mark") as folder:
        (folder / "mark").write_text("x")
    assert store.names(key) == ["mark"]


def test_folders_and_globs(bucket):
    for name in ("x/a.parquet", "x/b.parquet", "x/c.txt", "x/y/d.parquet", "z/a.parquet"):
        store, key = store_of(f"{bucket}/{name}")
        store.create(key, b"1")

    assert storage.expand([f"{bucket}/x"], ".parquet") == [f"{bucket}/x/a.parquet", f"{bucket}/x/b.parquet"]
    assert storage.expand([f"{bucket}/?/a.par*"], "") == [f"{bucket}/x/a.parquet", f"{bucket}/z/a.parquet"]
    assert storage.expand([f"{bucket}/z/a.parquet"], "") == [f"{bucket}/z/a.parquet"]
    with pytest.raises(InputError, match=r"x\*\.no: expected a file, a glob"):
        storage.expand([f"{bucket}/x*.no"], "")


@pytest.mark.parametrize("write", [check_writable, lambda path: store_of(path)[0].create("x", b"1")])
def test_a_bucket_that_does_not_exist(bucket, write):
    with pytest.raises(InputError, match="s3://no-such-bucket/x: no such bucket; expected a bucket"):
        write("s3://no-such-bucket/x")


def test_reading_from_a_bucket_that_does_not_exist(bucket):
    with pytest.raises(InputError, match="s3://no-such-bucket/x: no such bucket"):
        storage.open_binary("s3://no-such-bucket/x")


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        (403, "access denied; expected credentials"),
        (301, "the bucket is in another region; expected its"),
    ],
)
def test_what_a_store_refuses_is_one_line_at_once(s3_proxy, bucket, status, problem):
    s3_proxy.before = lambda method, path: status

    with pytest.raises(InputError, match=f"{bucket}/x: {problem}") as error:
        check_writable(f"{bucket}/x")

    assert "\n" not in str(error.value)
    assert len(s3_proxy.requests) == 1  # nothing that repeating could change


def test_no_keys_and_no_role(bucket, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    stores.bucket_store.cache_clear()

    with pytest.raises(InputError, match=r"no credentials; expected .* AWS_ACCESS_KEY_ID"):
        storage.open_binary(f"{bucket}/x")


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        (None, "no credentials; expected .* AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"),
        ("short", "credentials refused"),
    ],
)
def test_no_account_of_azure_or_a_key_that_is_none(key, problem, monkeypatch):
    pytest.importorskip("obstore")
    for variable in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(variable)
    if key is not None:
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "lab")
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", key)
    stores.bucket_store.cache_clear()

    with pytest.raises(InputError, match=problem):
        storage.open_binary("az://container/x")


def test_a_store_that_fails_now_and_then(s3_proxy, bucket):
    """One request in three, before or after it was carried out: the library repeats it."""
    count = iter(range(10**6))
    s3_proxy.before = lambda method, path: 503 if next(count) % 6 == 1 else None
    s3_proxy.after = lambda method, path: 500 if next(count) % 6 == 3 else None
    store, _ = store_of(bucket)

    for number in range(10):
        data = b"%d" % number
        assert store.create(f"{number}", data)
        assert not store.create(f"{number}", b"other")
        found, version = store.read_versioned(f"{number}")
        assert found == data
        assert store.swap(f"{number}", data * 2, version)
        assert not store.swap(f"{number}", b"third", version)
        assert store.read(f"{number}", 0, 2) == (data * 2)[:2]


def test_other_protocols_are_read_only():
    with pytest.raises(InputError, match="http://host/x: expected a path, or a URL of S3"):
        check_writable("http://host/x")


def test_without_the_library(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    stores.bucket_store.cache_clear()

    with pytest.raises(
        InputError, match=re.escape(f"obstore is not installed; expected {install_command('cloud')}")
    ):
        storage.open_binary("s3://bucket/x")


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
def test_a_url_that_names_no_object_is_one_line(url, problem, s3_at):
    s3.require()
    s3_at("http://127.0.0.1:1")  # never asked
    with pytest.raises(InputError, match=problem):
        storage.expand([url], ".parquet")
