"""Commands with files on an object store: the same results as with local files."""

import hashlib

import pytest
import s3

from aptool.paths import Url, names


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def local_run(tmp_path_factory, collection_folder, model_folder):
    """A local run file, scored by one process."""
    from aptool.execution import score

    path = tmp_path_factory.mktemp("local") / "test.run"
    score(collection_folder / "test.pools.parquet", str(model_folder), path)
    return path


@pytest.fixture
def remote(bucket, collection_folder, model_folder):
    """The URL of a bucket with the collection and the model."""
    s3.put(collection_folder, f"{bucket}/c")
    s3.put(model_folder, f"{bucket}/m")
    return bucket


def ok(finished):
    assert finished.code == 0, finished.err
    return finished


def test_score_and_eval_and_compare(aptool, remote, local_run):
    run = f"{remote}/c/test.run"
    done = ok(aptool("score", f"{remote}/c/test.pools.parquet", "--model", f"{remote}/m", "--output", run))

    assert done.out[0].startswith(f"{run}: ")
    assert sha256(Url(run)) == sha256(local_run)
    assert [name for name in names(remote) if "parts" in name] == []
    # Qrels are next to the run, and texts next to the qrels.
    table = ok(aptool("eval", run)).out
    here = ok(aptool("eval", local_run, "--qrels", f"{remote}/c/test.qrels")).out
    assert [line.split()[1:] for line in table] == [line.split()[1:] for line in here]
    ok(aptool("compare", run, local_run, "--qrels", f"{remote}/c/test.qrels"))


def test_train_writes_and_resumes_and_explain_reads(aptool, remote, model_folder, local_run):
    recipe = ["--set", "encoder.features=8", "--set", "training.epochs=1"]
    out = f"{remote}/trained"
    ok(aptool("train", f"{remote}/c", "--preset", "qa-cnn", "--vectors", "random", "--output", out, *recipe))

    files = names(out)
    assert "config.json" in files
    assert "model.safetensors" in files
    assert names(f"{out}.training") == []
    again = ok(
        aptool("train", f"{remote}/c", "--preset", "qa-cnn", "--vectors", "random", "--output", out, *recipe)
    )
    assert any("up to date" in line for line in again.err)
    ok(aptool("score", f"{remote}/c/test.pools.parquet", "--model", out, "--output", f"{remote}/t.run"))
    html = f"{remote}/x.html"
    ok(aptool("explain", "--model", f"{remote}/m", "--question", "who", "--answer", "me", "--html", html))
    assert "x.html" in names(remote)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["score", "{}/none.parquet", "--model", "{}/m", "--output", "{}/x.run"], "parquet: file not found"),
        (["score", "{}/c/test.pools.parquet", "--model", "{}/none", "--output", "{}/x.run"], "none: folder"),
        (["score", "{}/c/test.pools.parquet", "--model", "{}/m"], "--output RUN is required"),
        (["score", "{}/c/test.pools.parquet", "--model", "{}/m", "--output", "s3://b-no/x"], "no such"),
        (["train", "{}/none", "--output", "{}/x"], "folder not found"),
        (["eval", "{}/c/none.run", "--qrels", "{}/c/test.qrels"], "none.run: file not found"),
        (["train", "{}/c", "--preset", "{}/r.toml", "--output", "{}/x"], "/r.toml: file not found"),
        (["matrix", "{}/t.toml", "--output", "x"], "/t.toml: file not found; expected an experiment matrix"),
        (["vectors", "distill", "--model", "{}/e", "--collection", "{}/c", "--output", "{}/v"], "/e: a URL"),
    ],
)  # fmt: skip
def test_mistakes_are_one_line(aptool, remote, arguments, expected):
    finished = aptool(*(argument.replace("{}", remote) for argument in arguments))

    assert finished.code in (1, 2)
    assert expected in finished.err[-1]
    assert names(f"{remote}/x.run.parts") == []
