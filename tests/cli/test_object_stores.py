"""Every command with its files on an object store: the same results as with files on a disk."""

import hashlib

import pytest

from aptool.formats.location import ObjectPath
from aptool.formats.stores import store_of


def put(source, folder):
    """Copies a file, or the files of a folder, to a store."""
    store, key = store_of(folder)
    if source.is_file():
        store.upload(key, source)
    for file in source.rglob("*") if source.is_dir() else ():
        if file.is_file():
            store.upload(f"{key}/{file.relative_to(source)}", file)


def names(url):
    store, key = store_of(url)
    return store.names(key)


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def local_run(tmp_path_factory, collection_folder, model_folder):
    """The run file that one process writes on a disk."""
    from aptool.library.scoring import score

    path = tmp_path_factory.mktemp("local") / "test.run"
    score(collection_folder / "test.pools.parquet", str(model_folder), path)
    return path


@pytest.fixture(params=["s3"])
def there(request, bucket_on, collection_folder, model_folder):
    """A bucket with the collection and the model, as another tool copied them; on S3 unless said."""
    bucket = bucket_on(request.param)
    put(collection_folder, f"{bucket}/c")
    put(model_folder, f"{bucket}/m")
    return bucket


on_each_store = pytest.mark.parametrize("there", ["s3", "gs", "az"], indirect=True)


def ok(finished):
    assert finished.code == 0, finished.err
    return finished


@on_each_store
def test_score_and_eval_and_compare(aptool, there, local_run):
    run = f"{there}/c/test.run"
    done = ok(aptool("score", f"{there}/c/test.pools.parquet", "--model", f"{there}/m", "--output", run))

    assert done.out[0].startswith(f"{run}: ")
    assert sha256(ObjectPath(run)) == sha256(local_run)
    assert [name for name in names(there) if "parts" in name] == []
    # Qrels are found beside the run, and texts beside the qrels.
    table = ok(aptool("eval", run)).out
    here = ok(aptool("eval", local_run, "--qrels", f"{there}/c/test.qrels")).out
    assert [line.split()[1:] for line in table] == [line.split()[1:] for line in here]
    ok(aptool("compare", run, local_run, "--qrels", f"{there}/c/test.qrels"))


def test_score_gzip(aptool, there, local_run, tmp_path):
    run = f"{there}/test.run.gz"
    ok(aptool("score", f"{there}/c/test.pools.parquet", "--model", f"{there}/m", "--output", run))

    import gzip

    assert gzip.decompress(ObjectPath(run).read_bytes()) == local_run.read_bytes()


@on_each_store
def test_train_writes_and_resumes_and_explain_reads(aptool, there, model_folder, local_run):
    recipe = ["--set", "encoder.features=8", "--set", "training.epochs=1"]
    out = f"{there}/trained"
    ok(aptool("train", f"{there}/c", "--preset", "qa-cnn", "--vectors", "random", "--output", out, *recipe))

    found = names(out)
    assert "config.json" in found
    assert sum(name.startswith("model-") and name.endswith(".safetensors") for name in found) == 1
    assert names(f"{out}.training") == []
    again = ok(
        aptool("train", f"{there}/c", "--preset", "qa-cnn", "--vectors", "random", "--output", out, *recipe)
    )
    assert any("up to date" in line for line in again.err)
    ok(aptool("score", f"{there}/c/test.pools.parquet", "--model", out, "--output", f"{there}/t.run"))
    html = f"{there}/x.html"
    ok(aptool("explain", "--model", f"{there}/m", "--question", "who", "--answer", "me", "--html", html))
    assert "x.html" in names(there)


def test_a_folder_and_a_glob_of_pools(aptool, there, local_run):
    put(local_run.parent, f"{there}/other")
    for pools in (f"{there}/c/*test.pools.parquet", f"{there}/t"):
        if pools.endswith("/t"):
            for file in ("test.pools.parquet", "answers.parquet"):
                store, key = store_of(f"{there}/c/{file}")
                target, name = store_of(f"{there}/t/{file}")
                target.create(name, store.read(key))
        ok(aptool("score", pools, "--model", f"{there}/m", "--output", f"{there}/g.run"))
        assert sha256(ObjectPath(f"{there}/g.run")) == sha256(local_run)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["score", "{}/none.parquet", "--model", "{}/m", "--output", "{}/x.run"], "parquet: file not found"),
        (["score", "{}/c/test.pools.parquet", "--model", "{}/none", "--output", "{}/x.run"], "none: folder"),
        (["score", "{}/c/test.pools.parquet", "--model", "{}/m"], "--output RUN is required"),
        (["score", "{}/c/test.pools.parquet", "--model", "{}/m", "--output", "s3://b-no/x"], "no such"),
        (["train", "{}/none", "--output", "{}/x"], "no collection.json in it"),
        (["eval", "{}/c/none.run", "--qrels", "{}/c/test.qrels"], "none.run: file not found"),
        (["train", "{}/c", "--preset", "{}/r.toml", "--output", "{}/x"], "/r.toml: file not found"),
        (["matrix", "{}/t.toml", "--output", "x"], "/t.toml: file not found; expected an experiment matrix"),
        (["vectors", "distill", "--model", "{}/e", "--collection", "{}/c", "--output", "{}/v"], "/e: a URL"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(aptool, there, arguments, expected):
    finished = aptool(*(one.replace("{}", there) for one in arguments))

    assert finished.code in (1, 2)
    assert expected in finished.err[-1]
    assert names(f"{there}/x.run.parts") == []
