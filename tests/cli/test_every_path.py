"""Each command runs with local paths and with S3 URLs."""

import json
import re
import shlex
from typing import NamedTuple

import pytest
import s3
from tiny import labelled_pools, options

from aptool.files import sha256_of, stat
from aptool.paths import Url, names

SETTINGS = " ".join(
    f"--set {option}" for option in options("qa-cnn", "training.epochs=1") if not option.startswith("vectors")
)


class Case(NamedTuple):
    """A command with its paths and outputs.

    Attributes:
        command: The command's name.
        words: Arguments, with ``{w}`` for the input folder and ``{o}`` for the output folder.
        same: Outputs that have the same bytes on a disk and on S3.
        written: Outputs whose bytes may differ.
    """

    command: str
    words: str
    same: tuple[str, ...] = ()
    written: tuple[str, ...] = ()


CASES = [
    Case("score", "{w}/c/test.pools.parquet --model {w}/m --output {o}/x.run", same=("x.run",)),
    Case("score", "{w}/c/test.*.parquet --model {w}/m --output {o}/x.run.gz", same=("x.run.gz",)),
    Case("score", "{w}/s --model {w}/m --answers {w}/s/answers.parquet --output {o}/s.run", same=("s.run",)),
    Case(
        "train",
        f"{{w}}/c --preset qa-cnn --vectors {{w}}/v.bin --output {{o}}/m {SETTINGS}",
        written=("m/config.json",),
    ),
    Case("train", f"{{w}}/c --start {{w}}/m --output {{o}}/m {SETTINGS}", written=("m/config.json",)),
    Case(
        "eval",
        "{w}/a.run --qrels {w}/c/test.qrels --by length --pools {w}/c/test.pools.parquet "
        "--per-question {o}/q.csv",
        written=("q.csv",),
    ),
    Case("compare", "{w}/a.run {w}/b.run --qrels {w}/c/test.qrels --pools {w}/c/test.pools.parquet"),
    Case(
        "fuse",
        "{w}/a.run {w}/b.run --train {w}/c/test.qrels --train-run {w}/a.run --train-run {w}/b.run "
        "--output {o}/f.run",
        same=("f.run",),
    ),
    Case("explain", "--model {w}/m --question who --answer me --html {o}/x.html", written=("x.html",)),
    Case(
        "matrix",
        "{w}/t.toml --let w={w} --output {o}/t",
        same=("t/tiny/random/seed0/test.run",),
        written=("t/table.json",),
    ),
    Case("report", "{w}/t --output {o}/r.html", written=("r.html",)),
    Case("data import", "table train={w}/t.tsv --output {o}/c", same=("c/train.qrels", "c/collection.json")),
    Case("data import", "retrieval {w}/beir --run test={w}/first.run --output {o}/c", same=("c/test.qrels",)),
    Case("data folds", "{w}/c --folds 2 --output {o}/f", same=("f/fold2/dev.qrels",)),
    Case("data stats", "{w}/c"),
    Case("data check", "{w}/c {w}/a.run {w}/c/test.qrels {w}/c/test.pools.parquet"),
    Case("vectors distill", "--model {e} --collection {w}/c --dim 4 --output {o}/v.txt", written=("v.txt",)),
]


@pytest.fixture(scope="module")
def local_inputs(tmp_path_factory, collection_folder, model_folder):
    """The folder of inputs on a disk."""
    import shutil

    from aptool.data.collection import Collection
    from aptool.data.pools import list_units
    from aptool.data.writing import write_collection
    from aptool.scoring.run import score_files
    from aptool.scoring.systems import RandomScores

    folder = tmp_path_factory.mktemp("world")
    shutil.copytree(collection_folder, folder / "c")
    shutil.copytree(model_folder, folder / "m")
    pools = labelled_pools("test", 12)
    texts = {name: text for pool in pools for name, text in zip(pool.answer_ids, pool.texts, strict=True)}
    splits = {"test": [pool._replace(texts=None) for pool in pools]}
    write_collection(folder / "s", splits, name="shared", source="tests", answers=sorted(texts.items()))
    for name, seed in (("a", 0), ("b", 1)):
        score_files(
            list_units([folder / "c" / "test.pools.parquet"]), RandomScores(seed), folder / f"{name}.run"
        )
    (folder / "t.tsv").write_text("question\tanswer\tlabel\nwho is it\tme\t1\nwho is it\tyou\t0\n")
    words = {word for text in texts.values() for word in text.split()}
    (folder / "v.bin").write_text("".join(f"{word} 0.1 0.2 0.{len(word)}\n" for word in sorted(words)))
    rows = '[systems.random]\nbaseline = "random"\n[[rows]]\ncollection = "tiny"\nsystems = ["random"]\n'
    (folder / "t.toml").write_text(f'[collections.tiny]\npath = "${{w}}/c"\n{rows}')
    entry = {"collection": "tiny", "system": "random", "seed": 0, "run": "tiny/random/seed0/test.run"}
    entry |= {"measures": {"MAP": 0.5}, "seconds": {"train": 0.0, "score": 1.0}}
    run = folder / "t" / "tiny" / "random" / "seed0" / "test.run"
    run.parent.mkdir(parents=True)
    shutil.copyfile(folder / "a.run", run)
    line = {"collection": "tiny", "system": "random", "means": {"MAP": 0.5}, "train_seconds": 0.0}
    shutil.copytree(collection_folder, folder / "t" / "c")
    entry["sha256"] = sha256_of(run)
    recorded = {"path": "c", "fingerprint": Collection(collection_folder).fingerprint}
    document = {"command": "aptool matrix t.toml --output t", "collections": {"tiny": recorded}}
    document |= {"results": [entry], "lines": [{**line, "bytes_per_answer": 4.0, "pairs_per_second": 9.5}]}
    (folder / "t" / "table.json").write_text(json.dumps(document))
    beir = folder / "beir"
    (beir / "qrels").mkdir(parents=True)
    documents = [
        {"_id": f"d{n}", "title": "", "text": f"the {word} here"} for n, word in enumerate(sorted(words))
    ]
    (beir / "corpus.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in documents))
    (beir / "queries.jsonl").write_text('{"_id": "q1", "text": "the river"}\n')
    (beir / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\n")
    (folder / "first.run").write_text("q1 Q0 d1 1 1 x\n")
    return folder


@pytest.fixture(scope="module")
def input_bucket(s3_server):
    """The URL of a new bucket for the inputs."""
    return s3.new_bucket(s3_server)


@pytest.fixture
def uploaded_inputs(local_inputs, input_bucket, s3_server, s3_at):
    """The URL of the bucket with the inputs under ``w``."""
    s3_at(s3_server)
    if not names(f"{input_bucket}/w"):
        s3.put(local_inputs, f"{input_bucket}/w")
    return input_bucket


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.command} {case.words[:12]}")
def test_each_command_on_a_disk_and_on_s3(aptool, local_inputs, uploaded_inputs, tmp_path, case, request):
    encoder = request.getfixturevalue("encoder_folder") if "{e}" in case.words else ""
    folders = {
        "disk": (str(local_inputs), str(tmp_path)),
        "s3": (f"{uploaded_inputs}/w", f"{uploaded_inputs}/{tmp_path.name}"),
    }
    printed = {}
    for name, (inputs, outputs) in folders.items():
        words = shlex.split(f"{case.command} {case.words.format(w=inputs, o=outputs, e=encoder)}")

        finished = aptool(*words)

        assert finished.code == 0, finished.err
        text = "\n".join(finished.out).replace(inputs, "IN").replace(outputs, "OUT")
        printed[name] = re.sub(r"in \d+ s\b|[\d.]+ MB|\s+|-+", " ", text)
    if case.command != "train":  # it prints seconds
        assert re.sub(r"\d+\.\d+", "", printed["disk"]) == re.sub(r"\d+\.\d+", "", printed["s3"])
    for file in case.same:
        assert Url(f"{folders['s3'][1]}/{file}").read_bytes() == (tmp_path / file).read_bytes()
    for file in case.written:
        assert (tmp_path / file).stat().st_size > 0
        assert stat(f"{folders['s3'][1]}/{file}").version
