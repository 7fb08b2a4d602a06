"""A cluster trains and scores as one process does: systems of all kinds, on a disk and on an object store."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest
import s3
from networks import QUICK, REASON, SENTENCE_TRANSFORMERS, colbert, cross_encoder, write_network
from recorded import recorded
from scene import wait_for
from small_matrix import TABLE, TRIALS, contents, table
from tiny import labelled_pools, options

from aptool.cluster.connection import Resources
from aptool.data.writing import write_collection
from aptool.experiments.matrix import read_matrix
from aptool.experiments.runner import run_matrix
from aptool.models.model import opened_folder
from aptool.outputs import upload
from aptool.paths import Url, names
from aptool.text.vectors import WordVectors, write_vectors

FILES = ("model.safetensors", "config.json", "tokenizer.json")
QA_CNN = options("qa-cnn", "training.epochs=1")


def sets(settings):
    return [word for option in settings for word in ("--set", option)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def succeeds(aptool, folder):
    """A function that runs a command in this process and returns its lines on stderr."""

    def run(*arguments):
        finished = aptool(*arguments)
        assert finished.code == 0, finished.err
        return finished.err

    return run


@pytest.fixture
def assert_same_run(succeeds, cluster, folder, collection_folder):
    """A function that checks that a cluster writes the run file of one process; returns lines on stderr."""

    def check(*model, pools=collection_folder / "test.pools.parquet", workers=()):
        score = ("score", pools, "--model", *model, "--output")
        succeeds(*score, "one.run")
        lines = succeeds(*score, "many.run", "--cluster", cluster.address, *workers)
        assert (folder / "one.run").read_bytes() == (folder / "many.run").read_bytes()
        return lines

    return check


@pytest.mark.parametrize("preset", ["ap-cnn", "ap-minilm"])
def test_one_worker_trains_and_scores_as_one_process(
    succeeds, assert_same_run, cluster, collection_folder, folder, preset
):
    """With word vectors, and with a pretrained encoder."""
    if preset == "ap-cnn":
        settings = options(preset, "vectors.source=learned", "training.in_batch=true")
    else:
        pytest.importorskip("transformers", reason=REASON)
        settings = [*QUICK, f"encoder.name={write_network(folder / 'network')}"]
    train = ("train", collection_folder, "--preset", preset, *sets(settings), "--output")

    succeeds(*train, "alone")
    succeeds(*train, "there", "--cluster", cluster.address, "--workers", "1")

    for file in FILES:
        assert (folder / "alone" / file).read_bytes() == (folder / "there" / file).read_bytes()
    assert_same_run("there")


@pytest.mark.parametrize(
    "build", [lambda network, folder: folder.symlink_to(network), colbert, cross_encoder]
)
def test_a_checkpoint_of_another_library_is_scored_as_in_one_process(assert_same_run, folder, build):
    pytest.importorskip("sentence_transformers", reason=SENTENCE_TRANSFORMERS)
    network = write_network(folder / "network")
    build(network, folder / "model", *([1] if build is cross_encoder else []))

    assert_same_run("model")


def test_shared_answers_are_scored_as_in_one_process(assert_same_run, folder):
    """BM25 counts document frequencies over all row groups; the number of workers is fixed."""
    pools = labelled_pools("test", 12)
    texts = {a: t for pool in pools for a, t in zip(pool.answer_ids, pool.texts, strict=True)}
    splits = {"test": [pool._replace(texts=None) for pool in pools]}
    write_collection(folder / "shared", splits, name="shared", source="tests", answers=texts.items())

    assert_same_run("bm25", pools=folder / "shared" / "test.pools.parquet", workers=("--workers", 1))


@pytest.fixture
def bucket(object_server, collection_folder):
    """A bucket with the collection."""
    s3.require()
    url = s3.new_bucket(object_server)
    for file in collection_folder.iterdir():
        upload(file, Url(f"{url}/c/{file.name}"))
    return url


def test_training_from_vectors_and_a_model_on_a_store(succeeds, cluster, bucket, collection_folder, folder):
    """All paths are on the store; one worker trains what one process trains from files on a disk."""
    words = sorted({word for pool in labelled_pools("train", 12) for word in pool.question.split()})
    matrix = np.random.default_rng(3).standard_normal((len(words), 16)).astype(np.float32)
    write_vectors(folder / "v.bin", WordVectors(words, matrix, "made"))
    upload(folder / "v.bin", Url(f"{bucket}/v.bin"))
    train = ("--preset", "qa-cnn", "--seed", 1, *sets(QA_CNN), "--output")
    there = ("--cluster", cluster.address, "--workers", 1)

    for name, option, source in (("first", "--vectors", "v.bin"), ("second", "--start", "first")):
        remote = ("train", f"{bucket}/c", option, f"{bucket}/{source}", *train, f"{bucket}/{name}", *there)
        succeeds(*remote)
        succeeds("train", collection_folder, option, source, *train, name)
        with opened_folder(f"{bucket}/{name}") as model:
            weights = (model / "model.safetensors").read_bytes()
        assert weights == (folder / name / "model.safetensors").read_bytes()


def test_trials_of_a_matrix_on_a_store_have_the_results_of_one_process(
    succeeds, cluster, bucket, folder, collection_folder
):
    text = TABLE.replace('"random", "bm25", "qa-cnn", "ap-cnn", "ap-bilstm", "fused"', '"random", "qa-cnn"')
    settings = {"qa_cnn": str([*QA_CNN]), "ap_cnn": "[]", "ap_bilstm": "[]"}
    (folder / "there.toml").write_text(text.format(collection=f"{bucket}/c", **settings))
    upload(folder / "there.toml", Url(f"{bucket}/t.toml"))
    (folder / "t.toml").write_text(text.format(collection=collection_folder, **settings))

    succeeds("matrix", "t.toml", "--output", "out")
    there = ("--output", f"{bucket}/out", "--cluster", cluster.address)
    lines = succeeds("matrix", f"{bucket}/t.toml", *there)

    assert "room for 2 trials with 1 CPU and 0 GPUs each" in lines[0]
    for name in ("tiny/qa-cnn/seed1/dev.run", "tiny/qa-cnn/seed1/test.run", "tiny/random/seed1/test.run"):
        assert Url(f"{bucket}/out/{name}").read_bytes() == (folder / "out" / name).read_bytes()
    assert "table.json" in names(f"{bucket}/out")


def process_named(title):
    """The id of the process whose title starts with a text."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_text().startswith(title):
                return int(folder.name)
        except OSError:
            continue
    raise LookupError(title)


def test_a_trial_whose_worker_is_killed_is_run_again(cluster, collection_folder, tmp_path, in_thread):
    """Parallel trials have the results of serial trials in this process."""
    from aptool.cluster.tasks import ClusterProcesses

    (tmp_path / "eval.toml").write_text(table(collection_folder, "training.epochs=2"))
    plan = read_matrix(tmp_path / "eval.toml")
    run_matrix(plan, tmp_path / "serial")
    killed = []

    def kill():
        wait_for(lambda: list((tmp_path / "out").rglob("*.training")))
        killed.append(process_named("ray::trial tiny: "))
        os.kill(killed[0], signal.SIGKILL)

    with recorded() as records:
        done = in_thread(kill)
        results = run_matrix(plan, tmp_path / "out", processes=ClusterProcesses(cluster, Resources(1)))
        done.result()

    assert killed
    assert not any(line.startswith("failed") for line in records.messages)
    assert len(results) == len(list((tmp_path / "out").rglob("*.run"))) == 2 * TRIALS
    assert contents(tmp_path / "out") == contents(tmp_path / "serial")
