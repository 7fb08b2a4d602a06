"""Runs as folders of shards: the single file's ranking wherever a run is read; no run before it is whole."""

import hashlib
import json
import shutil

import polars as pl
import pytest
import pytrec_eval
from tiny import labelled_pools, row, write_pools

import aptool
from aptool.errors import InputError
from aptool.formats.location import ObjectPath, location
from aptool.formats.pools import list_units
from aptool.formats.schemas import check_document
from aptool.formats.stores import store_of
from aptool.formats.trec import read_run
from aptool.scoring.baselines import RandomSystem
from aptool.scoring.parts import parts_folder
from aptool.scoring.score import score

UNITS = 6


@pytest.fixture
def local(tmp_path):
    """Pools of six row groups, in whose order questions are not sorted, their qrels and a single run file."""
    pools = labelled_pools("test", 12)
    rows = [row(p.question_id, p.question, list(zip(p.answer_ids, p.texts, strict=True))) for p in pools]
    mixed = [rows[start::UNITS] for start in range(UNITS)]
    write_pools(tmp_path / "test.pools.parquet", *mixed)
    lines = [f"{p.question_id} 0 {a} {r}\n" for p in pools for a, r in p.relevance.items()]
    (tmp_path / "test.qrels").write_text("".join(lines))
    score(list_units([tmp_path / "test.pools.parquet"]), RandomSystem(), tmp_path / "test.run")
    return tmp_path


@pytest.fixture(params=["disk", "s3"])
def place(request, local):
    """The folder with the pools, on a disk or an object store."""
    if request.param == "disk":
        return local
    there = ObjectPath(request.getfixturevalue("bucket"))
    for name in ("test.pools.parquet", "test.qrels", "test.run"):
        store, key = store_of(there / name)
        store.upload(key, local / name)
    return there


def run(place, seed=0, output="big/"):
    return score(list_units([place / "test.pools.parquet"]), RandomSystem(seed), f"{place}/{output}")


def names(folder):
    store, key = store_of(folder)
    return store.names(key)


def manifest(folder):
    document = json.loads((folder / "run.json").read_bytes())
    check_document("run", document, folder)
    return document


def overwrite(path, data):
    store, key = store_of(path)
    assert store.swap(key, data, store.read_versioned(key)[1])


class Stopping(RandomSystem):
    """Scores three row groups, and fails."""

    scored = 0

    def score(self, prepared):
        if self.scored == 3:
            raise RuntimeError("the power went out")
        self.scored += 1
        return super().score(prepared)


def test_a_folder_is_the_run_of_the_single_file(place):
    done = run(place)

    assert (done.units, done.resumed, done.pairs) == (UNITS, 0, 72)
    single, folder = read_run(place / "test.run"), read_run(place / "big")
    assert folder.frame.equals(single.frame)
    assert folder.tag == single.tag == "random"
    assert read_run(f"{place}/big/").frame.equals(single.frame)
    assert names(parts_folder(place / "big")) == []
    assert (place / "big.ir-metadata.yml").is_file()


def test_shards_are_run_files_for_every_other_tool(place):
    """Their lines are those of the single file; as one text, trec_eval's library gives the same figures."""
    run(place)

    shards = manifest(place / "big")["shards"]
    files = [place / "big" / shard["file"] for shard in shards]
    assert sorted(names(place / "big")) == sorted(["run.json", *(file.name for file in files)])
    contents = [file.read_bytes() for file in files]
    whole = (place / "test.run").read_bytes()
    assert sorted(b"".join(contents).splitlines()) == sorted(whole.splitlines())
    for shard, content in zip(shards, contents, strict=True):
        assert shard["sha256"] == hashlib.sha256(content).hexdigest()
        assert (shard["bytes"], shard["candidates"]) == (len(content), len(content.splitlines()))
        assert shard["questions"] == len({line.split()[0] for line in content.splitlines()}) == 2
        lines = content.splitlines()
        assert lines == [line for line in whole.splitlines() if line in set(lines)]  # in the same order
    qrels = pytrec_eval.parse_qrel((place / "test.qrels").read_text().splitlines(True))
    figures = [
        pytrec_eval.RelevanceEvaluator(qrels, {"map"}).evaluate(
            pytrec_eval.parse_run(text.decode().splitlines(True))
        )
        for text in (b"".join(contents), whole)
    ]
    assert figures[0] == figures[1]
    assert len(figures[0]) == 12


def test_an_interrupted_run_resumes_and_is_no_run_before(place):
    units = list_units([place / "test.pools.parquet"])
    with pytest.raises(RuntimeError, match="the power went out"):
        score(units, Stopping(), f"{place}/big/")
    assert "run.json" not in names(place / "big")
    assert len(names(place / "big")) == 3
    with pytest.raises(InputError, match=r"big: no run\.json in it; expected a run file, or a folder that"):
        read_run(f"{place}/big/")

    assert run(place).resumed == 3

    assert read_run(place / "big").frame.equals(read_run(place / "test.run").frame)


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_damaged_shard_of_an_interrupted_run_is_scored_again(place, damage):
    units = list_units([place / "test.pools.parquet"])
    with pytest.raises(RuntimeError, match="the power went out"):
        score(units, Stopping(), f"{place}/big/")
    shard = place / "big" / names(place / "big")[0]
    if damage == "changed":
        overwrite(shard, shard.read_bytes().replace(b" 1 ", b" 2 ", 1))
    else:
        shard.unlink()

    assert run(place).resumed == 2

    assert read_run(place / "big").frame.equals(read_run(place / "test.run").frame)


def test_a_run_is_whole_until_another_replaces_it(place):
    """Nothing of it changes before the new manifest; then its shards are gone, and other files stay."""
    run(place)
    before = read_run(place / "big").frame
    old = {shard["file"] for shard in manifest(place / "big")["shards"]}
    store, key = store_of(place / "big" / "notes.txt")
    store.create(key, b"mine")

    class Looking(RandomSystem):
        def score(self, prepared):
            assert read_run(place / "big").frame.equals(before)
            return super().score(prepared)

    units = list_units([place / "test.pools.parquet"])
    score(units, Looking(1), f"{place}/big/")

    after = read_run(place / "big").frame
    run(place, 1, "other.run")
    assert after.equals(read_run(place / "other.run").frame)
    assert not after.equals(before)
    left = set(names(place / "big"))
    assert "notes.txt" in left
    assert not left & old
    assert len(left) == UNITS + 2


def test_a_file_and_a_folder_of_one_name_share_no_parts(place):
    """An interrupted run into a file is not taken for one into a folder, nor the other way round."""
    units = list_units([place / "test.pools.parquet"])
    for first, second in (("one", "one/"), ("two/", "two")):
        with pytest.raises(RuntimeError, match="the power went out"):
            score(units, Stopping(), f"{place}/{first}")
        if first.endswith("/"):
            for name in names(place / "two"):
                (place / "two" / name).unlink()
            if (place / "two").is_dir():
                (place / "two").rmdir()
        assert run(place, output=second).resumed == 0
        assert read_run(place / second.rstrip("/")).frame.equals(read_run(place / "test.run").frame)


def test_every_command_reads_it_as_the_file(aptool_lines, place):
    run(place)
    score(list_units([place / "test.pools.parquet"]), RandomSystem(7), place / "base.run")
    qrels = f"{place}/test.qrels"
    for words in (
        ["eval", "{}", "--qrels", qrels, "--intervals", "--limits"],
        ["compare", f"{place}/base.run", "{}", "--qrels", qrels],
        ["data", "check", "{}"],
        ["fuse", f"{place}/base.run", "{}", "--output", f"{place}/fused.run"],
    ):
        results = [aptool_lines(words, f"{place}/{name}") for name in ("big/", "big", "test.run")]
        assert results[0] == results[1] == results[2]
    assert aptool.Run.load(f"{place}/big").frame.equals(aptool.Run.load(f"{place}/test.run").frame)


@pytest.fixture
def aptool_lines(request):
    """The figures that a command prints."""
    command = request.getfixturevalue("aptool")

    def lines(words, name):
        finished = command(*(name if word == "{}" else word for word in words))
        assert finished.code == 0, finished.err
        # Figures alone: the names of runs are shortened as they differ from others.
        words = [word for line in finished.out for word in line.split() if "/" not in word]
        return [word for word in words if word.strip("+-(").replace(".", "")[:1].isdigit()]

    return lines


def test_qrels_beside_it_are_found(aptool, place):
    run(place, output="test/")

    finished = aptool("eval", f"{place}/test/")

    assert finished.code == 0, finished.err
    assert any(line.endswith("/test.qrels") for line in finished.err)


def broken(folder, how):
    """Damages a whole run folder; returns what the error has to say."""
    document = manifest(folder)
    shard = document["shards"][2]
    path = folder / shard["file"]
    if how == "missing":
        path.unlink()
        return rf"{path.name}: file not found"
    if how == "changed":
        overwrite(path, path.read_bytes().replace(b" 1 ", b" 2 ", 1))
        return (
            rf"{path.name}: column 'sha256': '[0-9a-f]{{12}}…': expected {shard['sha256'][:12]}…, as run.json"
        )
    if how == "twice":
        lines = path.read_bytes() + b"new Q0 a1 1 0.5 random\n"
        digest = hashlib.sha256(lines).hexdigest()
        store, key = store_of(folder / f"{digest[:24]}.run")
        store.create(key, lines)
        entry = {**shard, "file": f"{digest[:24]}.run", "sha256": digest, "bytes": len(lines)}
        overwrite(
            folder / "run.json", json.dumps({**document, "shards": [*document["shards"], entry]}).encode()
        )
        return rf"{digest[:24]}\.run: 'test-q[0-9]+': expected each question in one shard; {path.name} has it"
    text = {
        "elsewhere": json.dumps({**document, "shards": [{**shard, "file": "../other.run"}]}),
        "empty": json.dumps({**document, "shards": []}),
        "listed twice": json.dumps({**document, "shards": [shard, shard]}),
        "no json": "{",
        "other": json.dumps({"results": []}),
    }[how]
    overwrite(folder / "run.json", text.encode())
    return r"run\.json: .*expected"


@pytest.mark.parametrize(
    "how", ["missing", "changed", "twice", "elsewhere", "empty", "listed twice", "no json", "other"]
)
def test_what_is_not_a_whole_run_is_one_line(aptool, place, how):
    run(place)
    message = broken(place / "big", how)

    with pytest.raises(InputError, match=message) as error:
        read_run(place / "big")

    assert "\n" not in str(error.value)
    finished = aptool("eval", f"{place}/big/", "--qrels", f"{place}/test.qrels")
    assert (finished.code, finished.out, finished.err[-1]) == (1, [], f"aptool: {error.value}")


def test_outputs_that_cannot_be_a_run_are_said_first(place, monkeypatch):
    """A folder with other files, and a file."""
    store, key = store_of(place / "mine" / "thesis.txt")
    location(place / "mine").mkdir(exist_ok=True)
    store.create(key, b"of value")
    monkeypatch.setattr(RandomSystem, "score", None)  # never called

    with pytest.raises(InputError, match=r"mine: no run\.json in it; expected a folder to replace"):
        run(place, output="mine/")
    with pytest.raises(InputError, match=r"test\.run: a file; expected a folder, or nothing yet"):
        run(place, output="test.run/")

    assert (place / "mine" / "thesis.txt").read_bytes() == b"of value"


def test_a_bucket_is_no_folder(bucket, local):
    with pytest.raises(InputError, match="a bucket; expected a folder in it"):
        score(list_units([local / "test.pools.parquet"]), RandomSystem(), f"{bucket}/")


def test_a_report_of_a_matrix_whose_run_was_replaced_by_a_folder(local):
    """What reads runs by their paths reads folders as well."""
    from aptool.reporting.runs import read_runs

    run(local, output="c/random/seed0/test.run/")
    entry = {"collection": "c", "system": "random", "seed": 0, "run": "c/random/seed0/test.run"}
    entry |= {"measures": {"map": 0.5}, "seconds": {"train": 0.0, "score": 1.0}}
    (local / "table.json").write_text(json.dumps({"results": [entry]}))

    runs = read_runs(local)

    assert isinstance(read_run(runs.entries[0].run).frame, pl.DataFrame)
    assert runs.entries[0].split == "test"
    shutil.rmtree(local / "c")
    with pytest.raises(InputError, match="file not found"):
        read_runs(local)
