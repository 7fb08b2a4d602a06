"""`aptool encode` and `aptool score --encoded`: the same run as without stored answers, and errors."""

import os
import shutil
import signal
from collections import namedtuple

import forked
import numpy as np
import pytest
from dying import die_after
from networks import network_recipe, write_network
from tiny import labelled_pools, recipe, row, write_pools

import aptool as library
from aptool.formats import claim
from aptool.formats.collection import CollectionFiles, CollectionWriter
from aptool.formats.location import ObjectPath, store_of
from aptool.formats.pools import write_answers
from aptool.scoring import answer_store, stored_answers
from aptool.scoring import encode as encoding
from aptool.training.fit import fit


@pytest.fixture(scope="module")
def pools(collection_folder):
    return collection_folder / "test.pools.parquet"


@pytest.fixture(scope="module")
def other_model(tmp_path_factory, collection_folder):
    folder = tmp_path_factory.mktemp("other") / "model"
    fit(CollectionFiles(collection_folder), recipe("qa-cnn", "training.epochs=0"), folder, seed=1)
    return folder


@pytest.fixture
def run(aptool, pools, model_folder, tmp_path):
    """Run a command on the tiny pools and model."""

    def start(command, output, *more, inputs=pools, model=model_folder):
        return aptool(command, inputs, "--model", model, "--output", output, *more)

    return start


def ok(finished):
    assert finished.code == 0, finished.err
    return finished


def refused(finished, *phrases, code=1):
    assert (finished.code, finished.out, len(finished.err)) == (code, [], 1), finished.err
    for phrase in phrases:
        assert phrase in finished.err[0]


def parts(folder):
    return sorted(folder.glob("*.safetensors"))


def changed(pools, folder):
    """Write the pools with one changed text of one candidate."""
    rows = []
    for pool in labelled_pools("test", 20):
        texts = list(pool.texts)
        if pool.question_id == "test-q0":
            texts[0] += " mirror"
        rows.append(row(pool.question_id, pool.question, list(zip(pool.answer_ids, texts, strict=True))))
    return write_pools(folder / "changed.pools.parquet", rows)


def test_stored_answers_give_the_same_run(run, tmp_path):
    ok(run("score", tmp_path / "a.run"))
    first = ok(run("encode", tmp_path / "store"))
    again = ok(run("encode", tmp_path / "store"))
    ok(run("score", tmp_path / "b.run", "--encoded", tmp_path / "store"))

    assert (tmp_path / "a.run").read_bytes() == (tmp_path / "b.run").read_bytes()
    assert f"{tmp_path}/store: 20 answers, 20 encoded now, " in first.out[0]
    assert "20 answers, 0 encoded now, 0.0 MB" in again.out[0]
    assert len(parts(tmp_path / "store")) == 1


@pytest.mark.parametrize("system", ["ap-minilm", "mean-minilm"])
def test_stored_answers_of_a_pretrained_network_give_the_same_run(system, run, collection_folder, tmp_path):
    network = write_network(tmp_path / "network")
    fit(
        CollectionFiles(collection_folder),
        network_recipe(system, network, "training.epochs=0"),
        tmp_path / "m",
        seed=1,
    )
    for command, output, *more in (
        ("score", "a.run"),
        ("encode", "store"),
        ("score", "b.run", "--encoded", tmp_path / "store"),
    ):
        ok(run(command, tmp_path / output, *more, model=tmp_path / "m"))

    assert (tmp_path / "a.run").read_bytes() == (tmp_path / "b.run").read_bytes()


def test_shared_answers_are_encoded_once(run, tmp_path):
    with CollectionWriter(tmp_path / "c", name="c", source="here") as writer:
        pools = labelled_pools("test", 20)
        texts = {a: t for pool in pools for a, t in zip(pool.answer_ids, pool.texts, strict=True)}
        writer.add_answers([*texts.items(), ("nobody", "is it there")])
        writer.add_split("test", [pool._replace(texts=None) for pool in pools])
    inputs = tmp_path / "c" / "test.pools.parquet"
    ok(run("score", tmp_path / "a.run", inputs=inputs))

    assert "20 answers, 20 encoded" in ok(run("encode", tmp_path / "s", inputs=inputs)).out[0]
    ok(run("score", tmp_path / "b.run", "--encoded", tmp_path / "s", inputs=inputs))
    assert (tmp_path / "a.run").read_bytes() == (tmp_path / "b.run").read_bytes()
    whole = ok(run("encode", tmp_path / "s", inputs=tmp_path / "c"))  # answers.parquet and the pools
    assert "21 answers, 1 encoded" in whole.out[0]


def test_changed_text_is_refused_until_it_is_encoded(run, pools, tmp_path):
    other = changed(pools, tmp_path)
    ok(run("encode", tmp_path / "store"))
    ok(run("score", tmp_path / "a.run", inputs=other))

    again = run("score", tmp_path / "b.run", "--encoded", tmp_path / "store", inputs=other)
    refused(again, "1 of 21 answers", "aptool encode")
    assert "21 answers, 1 encoded" in ok(run("encode", tmp_path / "store", inputs=other)).out[0]
    ok(run("score", tmp_path / "c.run", "--encoded", tmp_path / "store", inputs=other))
    assert (tmp_path / "a.run").read_bytes() == (tmp_path / "c.run").read_bytes()
    assert len(parts(tmp_path / "store")) == 2


def test_store_of_another_model_is_refused_with_both_fingerprints(run, model_folder, other_model, tmp_path):
    from aptool.models.model import model_fingerprint

    ok(run("encode", tmp_path / "store"))
    phrases = (model_fingerprint(model_folder), model_fingerprint(other_model))
    phrases += (f"`aptool encode ANSWERS --model {other_model} --output STORE`",)

    refused(run("encode", tmp_path / "store", model=other_model), *phrases)
    refused(run("score", tmp_path / "x.run", "--encoded", tmp_path / "store", model=other_model), *phrases)


def test_mistakes_are_one_line(run, tmp_path, pools):
    ok(run("encode", tmp_path / "store", "--precision", "fp16"))

    wrong = run("encode", tmp_path / "store", "--precision", "int8")
    refused(wrong, "--precision int8", "holds fp16", "another --output", code=2)
    refused(
        run("score", tmp_path / "x.run", "--encoded", tmp_path / "no"), "folder not found", "aptool encode"
    )
    tf32 = run("score", tmp_path / "x.run", "--encoded", tmp_path / "store", "--precision", "tf32")
    refused(tf32, "'tf32'", "auto or fp32", code=2)
    bf16 = run("score", tmp_path / "x.run", "--encoded", tmp_path / "store", "--precision", "bf16")
    refused(bf16, "'bf16'", "auto or fp32", code=2)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    refused(run("encode", tmp_path / "full"), "no encoded.json in it")
    refused(run("encode", tmp_path / "t", inputs=tmp_path / "full" / "thesis.txt"), "readable Parquet")
    assert not (tmp_path / "no").exists()


def test_scores_of_rounded_stores_are_close(run, tmp_path):
    ok(run("score", tmp_path / "a.run"))
    scores = {}
    for precision in ("fp16", "int8"):
        ok(run("encode", tmp_path / precision, "--precision", precision))
        ok(run("score", tmp_path / f"{precision}.run", "--encoded", tmp_path / precision))
    for name in ("a", "fp16", "int8"):
        lines = [line.split() for line in (tmp_path / f"{name}.run").read_text().splitlines()]
        scores[name] = {(line[0], line[2]): float(line[4]) for line in lines}
    exact = np.array(list(scores["a"].values()))
    for name, tolerance in (("fp16", 1e-3), ("int8", 3e-2)):
        rounded = np.array([scores[name][key] for key in scores["a"]])
        assert 0 < np.abs(rounded - exact).max() < tolerance


def encode_until_the_third_part(pools, model, store):
    """Encode answers in parts; SIGKILL when the third part is written."""
    answer_store.write_part = die_after(2, answer_store.write_part)
    stored_answers.PART_BYTES, encoding.CHUNK = 1, 4
    encoding.encode([pools], store, model=model, device="cpu")


def test_killed_encoding_resumes(run, pools, model_folder, tmp_path):
    store = tmp_path / "store"
    killed = forked.run(
        tmp_path / "process", encode_until_the_third_part, str(pools), str(model_folder), str(store)
    )
    assert killed.code == -signal.SIGKILL, killed.err
    assert len(parts(store)) == 2

    done = ok(run("encode", store))

    assert any("has ended: its output is taken over" in line for line in done.err)
    encoded_before = 20 - int(done.out[0].split(" encoded now")[0].split()[-1])
    assert 2 <= encoded_before < 20
    assert not list(store.glob(".*"))
    ok(run("score", tmp_path / "a.run"))
    ok(run("score", tmp_path / "b.run", "--encoded", store))
    assert (tmp_path / "a.run").read_bytes() == (tmp_path / "b.run").read_bytes()


def test_one_writer_at_a_time(run, pools, tmp_path):
    from aptool.scoring.answer_store import writing_to

    ok(run("encode", tmp_path / "store"))
    with writing_to(tmp_path / "store"):
        refused(run("encode", tmp_path / "store"), "being written by process")
        ok(run("score", tmp_path / "a.run", "--encoded", tmp_path / "store"))  # reading needs no claim


def test_encoding_killed_before_the_manifest_starts_again(run, tmp_path, monkeypatch):
    monkeypatch.setattr(claim, "PATIENCE_SECONDS", 0.1)
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "writer").write_text("{")
    (tmp_path / "store" / ".encoded.json.0a1b2c3d.part").write_text("{")

    ok(run("encode", tmp_path / "store"))
    assert sorted(path.name for path in (tmp_path / "store").iterdir())[-1] == "encoded.json"


def test_truncated_part_is_refused_and_encoded_again(run, tmp_path):
    ok(run("encode", tmp_path / "store"))
    (part,) = parts(tmp_path / "store")
    part.write_bytes(part.read_bytes()[:-100])

    broken = run("score", tmp_path / "a.run", "--encoded", tmp_path / "store")
    refused(broken, str(part), "truncated", "remove it and encode again")
    repaired = ok(run("encode", tmp_path / "store"))
    assert "20 encoded now" in repaired.out[0]
    assert any("truncated" in line for line in repaired.err)
    ok(run("score", tmp_path / "a.run", "--encoded", tmp_path / "store"))


def test_full_disk_is_reported_before_encoding(run, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9 - 1000, 1000))

    refused(run("encode", tmp_path / "store"), "1,000 bytes free", "expected about", "--precision fp16")
    assert not (tmp_path / "store").exists()


def test_input_replaced_during_encoding_is_refused(run, pools, tmp_path, monkeypatch):
    copy = tmp_path / "own.pools.parquet"
    library.Pools.load(pools).save(copy)
    encode = encoding._encode_locally

    def encode_then_replace(*arguments):
        yield from encode(*arguments)
        os.utime(copy, (1, 1))

    monkeypatch.setattr(encoding, "_encode_locally", encode_then_replace)
    refused(run("encode", tmp_path / "store", inputs=copy), "own.pools.parquet: replaced while it was read")


def test_replaced_answers_are_read_again_by_the_same_process(tmp_path):
    """A worker of a cluster serves several commands, and gets no versions of local files."""
    answers, pools = tmp_path / "answers.parquet", tmp_path / "own.pools.parquet"
    write_answers(answers, [("a1", "one"), ("a2", "two"), ("a3", "three")])
    write_pools(pools, [row("q1", "who?", [("a2", None), ("b1", "unshared")])])

    def read():
        chunks = [chunk._replace(version=None) for chunk in encoding.list_chunks([str(pools)])]
        return sorted(text for chunk in chunks for text in encoding.read_chunk(chunk).to_pylist())

    assert read() == ["two", "unshared"]
    write_answers(answers, [("a2", "zwei"), ("a3", "three")])  # in another row, with another text
    assert read() == ["unshared", "zwei"]


def test_library_functions_match_the_commands(collection_folder, model_folder, pools, tmp_path):
    model = library.load(model_folder, device="cpu")
    test_pools = library.Collection(collection_folder).pools("test")
    plain = model.run(test_pools)
    done = library.encode(pools, model, tmp_path / "store")

    assert (done.texts, done.encoded) == (20, 20)
    assert model.run(test_pools, encoded=tmp_path / "store").frame.equals(plain.frame)
    shutil.rmtree(tmp_path / "store")
    with pytest.raises(library.AptoolError, match="folder not found"):
        model.run(test_pools, encoded=tmp_path / "store")
    library.encode(collection_folder / "dev.pools.parquet", model_folder, tmp_path / "store", device="cpu")
    with pytest.raises(library.AptoolError, match="20 of 20 answers"):
        model.run(test_pools, encoded=tmp_path / "store")
    library.encode(pools, model, tmp_path / "store")
    assert model.run(test_pools, encoded=tmp_path / "store").frame.equals(plain.frame)
    library.score(test_pools, model, tmp_path / "a.run", encoded=tmp_path / "store")
    library.score(test_pools, model, tmp_path / "b.run")
    assert (tmp_path / "a.run").read_bytes() == (tmp_path / "b.run").read_bytes()


def test_on_an_object_store(run, bucket, s3_proxy, tmp_path):
    ok(run("score", tmp_path / "a.run"))
    ok(run("encode", f"{bucket}/store"))
    assert "0 encoded now" in ok(run("encode", f"{bucket}/store")).out[0]
    before = s3_proxy.bytes_read
    ok(run("score", f"{bucket}/b.run", "--encoded", f"{bucket}/store"))

    assert ObjectPath(f"{bucket}/b.run").read_bytes() == (tmp_path / "a.run").read_bytes()
    assert s3_proxy.bytes_read > before
    store, key = store_of(f"{bucket}/store")
    assert len(store.names(key)) == 2  # the manifest and a part; no claim, no temporary file


def test_only_required_rows_are_fetched(run, bucket, s3_proxy, model_folder, tmp_path, monkeypatch):
    from aptool.formats import answer_part
    from aptool.scoring import answer_store

    monkeypatch.setattr(answer_part, "_HEAD_BYTES", 64)
    monkeypatch.setattr(answer_store, "_GAP_REMOTE", 0)
    many = labelled_pools("train", 60)
    rows = [row(p.question_id, p.question, list(zip(p.answer_ids, p.texts, strict=True))) for p in many]
    ok(run("encode", f"{bucket}/store", inputs=write_pools(tmp_path / "many.parquet", rows)))
    store, key = store_of(f"{bucket}/store")
    (part,) = (name for name in store.names(key) if name.endswith(".safetensors"))
    size, width = store.stat(f"{key}/{part}").size, 16 * 4
    few = write_pools(tmp_path / "few.parquet", rows[:1])
    before = s3_proxy.bytes_read

    ok(run("score", tmp_path / "few.run", "--encoded", f"{bucket}/store", inputs=few))

    index = 60 * 32 + 1000  # with the header and the manifest
    assert s3_proxy.bytes_read - before < index + 6 * 12 * width < size / 3
