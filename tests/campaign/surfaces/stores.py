"""What grows over several commands: stores of encoded answers, and runs in folders of shards."""

import json
import math
import shutil
from pathlib import Path

import readers
from case import Case, content, surface
from mutators import flip, mutate_bytes, mutate_document

from surfaces.pools import same_run


@surface(3)
def encoded(case: Case) -> None:
    """A store with a damaged file: its answers are scored as before or not at all, and encoding mends it."""
    shutil.copytree(case.world.encoded, "s")
    pools = case.world.collection / "test.pools.parquet"
    manifest, part = Path("s/encoded.json"), next(Path("s").glob("*.safetensors"))
    kind = case.random.randrange(4)
    if kind == 0:
        document = json.loads(manifest.read_text())
        manifest.write_text(mutate_document(case.random, document), errors="surrogateescape")
    elif kind == 1:
        part.write_bytes(mutate_bytes(case.random, part.read_bytes()))
    else:
        part.write_bytes(flip(case.random, part.read_bytes()))
    same_run(case, str(pools), content(case.world.run), "--encoded", "s")
    if case.run("encode", pools, "--model", case.world.model, "--output", "s", outputs=("s",)) is None:
        return
    Path("x.run").unlink(missing_ok=True)
    same_run(case, str(pools), content(case.world.run), "--encoded", "s")


@surface(3)
def run_folders(case: Case) -> None:
    """A run in shards, read by what reads runs: what its manifest lists, or nothing."""
    _copy_run(case)
    read = case.random.choice(("eval", "eval", "compare", "fuse"))
    qrels = case.world.collection / "test.qrels"
    if read == "eval":
        out = case.run("eval", "o", "--qrels", qrels, "--json")
        if out is not None:
            expected = readers.measures(readers.judgements(content(qrels)), readers.run_folder(Path("o")))
            found = json.loads(out)["runs"][0]["measures"]
            assert all(math.isclose(found[name], expected[name], abs_tol=1e-6) for name in expected)
    elif read == "compare":
        case.run("compare", case.world.run, "o", "--qrels", qrels, "--permutations", "1000")
    elif case.run("fuse", case.world.run, "o", "--output", "f.run", outputs=("f.run",)) is not None:
        both = [readers.scores(content(case.world.run)), readers.run_folder(Path("o"))]
        pairs = {(question, answer) for one in both for question in one for answer in one[question]}
        found = readers.scores(Path("f.run").read_bytes())
        assert {(question, answer) for question in found for answer in found[question]} == pairs


@surface(2)
def replaced_run_folders(case: Case) -> None:
    """A run in shards that is made anew where a damaged one stands: whole and right, other files kept."""
    _copy_run(case)
    Path("o/notes.txt").write_text("mine")
    pools = case.world.collection / "test.pools.parquet"
    given = ("--model", case.world.model, "--output", "o/")
    if case.run("score", pools, *given, outputs=("o", "o.parts", "o.ir-metadata.yml")) is not None:
        assert readers.run_folder(Path("o")) == readers.scores(content(case.world.run)), "another run"
        assert not Path("o.parts").exists(), "parts are left"
    assert Path("o/notes.txt").read_text() == "mine"


def _copy_run(case: Case) -> None:
    shutil.copytree(case.world.run_folder, "o")
    manifest = Path("o/run.json")
    if case.random.random() < 0.6:
        document = json.loads(manifest.read_text())
        if case.random.random() < 0.2:
            document["shards"] *= case.random.choice((0, 2))
            manifest.write_text(json.dumps(document))
        else:
            manifest.write_text(mutate_document(case.random, document), errors="surrogateescape")
    else:
        shard = case.random.choice(sorted(Path("o").glob("*.run")))
        shard.write_bytes(flip(case.random, shard.read_bytes()))
