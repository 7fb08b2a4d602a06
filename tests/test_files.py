"""Files are read by path and by URL alike; a replaced file and a refused request are one line."""

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import s3
from s3 import put_bytes

from aptool.data.parquet import open_parquet
from aptool.errors import InputError
from aptool.files import ReplacedError, expand, local_copy, open_binary, open_input, stat
from aptool.outputs import check_output, output_file, output_folder
from aptool.paths import Url, location, names


@pytest.mark.parametrize("name", ["a b/ü+#%20.bin", "deep/er/x", "empty"])
def test_a_file_is_read_as_it_was_written(folder, name):
    content = b"" if name == "empty" else bytes(range(256)) * 20_000
    put_bytes(folder / name, content)

    assert (folder / name).read_bytes() == content
    assert stat(folder / name).size == len(content)
    with open_binary(folder / name) as file:
        assert isinstance(file, io.BufferedReader)
        assert file.read() == content
    with local_copy(folder / name) as copy:
        assert copy.read_bytes() == content
    assert names(folder) == [name]


def test_the_version_changes_with_the_content(folder):
    put_bytes(folder / "x", b"first")
    version = stat(folder / "x").version
    open_input(folder / "x", version).close()

    put_bytes(folder / "x", b"second")

    assert stat(folder / "x").version != version
    with pytest.raises(ReplacedError, match="x: replaced while it was read"):
        open_input(folder / "x", version)


def test_a_missing_file_is_one_line(folder):
    for read in (stat, open_binary, open_input):
        with pytest.raises(InputError, match="none: file not found; expected a file that exists"):
            read(folder / "none")
    assert names(folder / "none") == []
    assert not (folder / "none").exists()


def test_folders_and_globs_are_expanded(folder):
    for name in ("x/a.parquet", "x/b.parquet", "x/c.txt", "x/y/d.parquet", "z/a.parquet"):
        put_bytes(folder / name)

    assert expand([f"{folder}/x"], ".parquet") == [f"{folder}/x/a.parquet", f"{folder}/x/b.parquet"]
    assert expand([f"{folder}/?/a.par*"], "") == [f"{folder}/x/a.parquet", f"{folder}/z/a.parquet"]
    assert expand([f"{folder}/z/a.parquet", f"{folder}/z"], ".parquet") == [f"{folder}/z/a.parquet"]
    with pytest.raises(InputError, match=r"x\*\.no: expected a file, a glob"):
        expand([f"{folder}/x*.no"], "")


@pytest.mark.parametrize("name", ["star*.parquet", "[d]/a.parquet"])
def test_a_file_whose_name_looks_like_a_glob_is_one_file(folder, name):
    put_bytes(folder / name)

    assert expand([f"{folder}/{name}"], "") == [f"{folder}/{name}"]


def test_urls_behave_like_local_paths(bucket):
    path = Url(f"{bucket}/a/b.c.txt")

    assert (path.name, path.stem, path.suffix) == ("b.c.txt", "b.c", ".txt")
    assert str(path.parent) == f"{bucket}/a"
    assert str(path.parent.parent) == bucket == str(path.parent.parent.parent)
    assert str(path.parent / f"{path.stem}.d" / "e") == f"{bucket}/a/b.c.d/e"
    assert location(Path(str(path))) == path  # pathlib removes a slash
    assert not path.is_file()
    assert not path.parent.is_dir()
    put_bytes(path, "ä".encode())
    assert path.is_file()
    assert not path.is_dir()
    assert path.parent.is_dir()
    assert list(path.parent.parent.iterdir()) == [path.parent]
    with path.open() as file:
        assert (file.read(1), file.seek(-1, 2), file.read()) == ("ä".encode()[:1], 1, "ä".encode()[1:])
    path.unlink()
    assert not path.exists()
    path.unlink()


def test_folder_marker_of_another_tool_is_not_a_file(bucket, s3_server):
    """The S3 console, for example, creates an empty object ``folder/``."""
    s3.put_empty(f"{s3_server}/{bucket.removeprefix('s3://')}/new/")

    assert names(f"{bucket}/new") == []
    with output_folder(f"{bucket}/new", "mark") as folder:
        (folder / "mark").write_text("x")
    assert names(f"{bucket}/new") == ["mark"]


def test_a_folder_is_copied(folder):
    put_bytes(folder / "m" / "a", b"1")
    put_bytes(folder / "m" / "deep" / "b", b"2")

    with local_copy(folder / "m") as copy:
        assert {name: (copy / name).read_bytes() for name in names(copy)} == {"a": b"1", "deep/b": b"2"}


@pytest.mark.parametrize("use", [check_output, open_binary, names])
def test_a_missing_bucket_is_one_line(bucket, use):
    with pytest.raises(
        InputError, match=r"^s3://no-such-bucket/x: (no such bucket|file not found); expected"
    ):
        use("s3://no-such-bucket/x")


@pytest.mark.parametrize(
    ("status", "problem"),
    [(403, "access denied; expected credentials"), (301, "another region; expected its region")],
)
def test_a_refused_request_is_one_line_without_retries(s3_proxy, bucket, status, problem):
    s3_proxy.before = lambda method, path: status

    with pytest.raises(InputError, match=f"^{bucket}/x: {problem}"):
        check_output(f"{bucket}/x")

    assert len(s3_proxy.requests) == 1


def test_occasional_failures_of_a_store_are_retried(s3_proxy, bucket):
    """One request in three fails, before or after its execution."""
    count = iter(range(10**6))
    s3_proxy.before = lambda method, path: 503 if next(count) % 6 == 1 else None
    s3_proxy.after = lambda method, path: 500 if next(count) % 6 == 3 else None

    for number in range(10):
        put_bytes(f"{bucket}/{number}", b"%d" % number)
    assert [Url(f"{bucket}/{number}").read_bytes() for number in range(10)] == [b"%d" % n for n in range(10)]


def test_a_small_file_is_one_request_to_write_and_a_row_group_few_to_read(s3_proxy, bucket):
    table = pa.table({"number": list(range(1000))})
    s3_proxy.requests.clear()
    with output_file(f"{bucket}/x.parquet") as temporary:
        pq.write_table(table, temporary, row_group_size=100)
    assert [method for method, _ in s3_proxy.requests] == ["PUT"]

    s3_proxy.requests.clear()
    with open_input(f"{bucket}/x.parquet") as file:
        assert pq.ParquetFile(file, pre_buffer=True).read_row_group(3) == table.slice(300, 100)
    assert len(s3_proxy.requests) <= 3

    s3_proxy.requests.clear()
    with open_parquet(f"{bucket}/x.parquet") as reader:  # small: all of it at once
        assert reader.read_row_groups([3], ["number"]) == table.slice(300, 100)
    assert len(s3_proxy.requests) == 2


def test_other_urls_are_refused():
    for use in (check_output, open_binary, open_input, stat, names):
        with pytest.raises(InputError, match="http://host/x: expected a path, or a URL of S3"):
            use("http://host/x")


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("s3://*", r"s3://\*: a wildcard in the bucket; expected the bucket's name"),
        ("s3://", "expected s3://BUCKET/NAME"),
    ],
)
def test_url_without_an_object_is_one_line(url, problem, bucket):
    with pytest.raises(InputError, match=problem):
        expand([url], ".parquet")


def test_object_whose_name_is_too_long_for_a_disk_is_written(bucket):
    path = Url(bucket) / ("x" * 900 + ".yml")

    put_bytes(path, b"written")

    assert path.read_bytes() == b"written"
