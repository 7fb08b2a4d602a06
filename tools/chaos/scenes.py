"""The commands that are disturbed, and what they start from."""

import json
from pathlib import Path
from typing import NamedTuple

from tiny import labelled_pools, row, write_pools
from world import World, command, matrix_table, small_options

OUT = "o"  # the folder of a command's outputs


class Scene(NamedTuple):
    """A command that writes into ``OUT`` in the current folder."""

    name: str
    arguments: tuple[str, ...]


def prepare(folder: Path) -> None:
    """Write the inputs of the commands."""
    world = World(folder)
    rows = [
        row(pool.question_id, pool.question, list(zip(pool.answer_ids, pool.texts or (), strict=True)))
        for pool in labelled_pools("test", 12)
    ]
    write_pools(folder / "x.pools.parquet", *(rows[start : start + 2] for start in range(0, 12, 2)))
    pools = str(folder / "x.pools.parquet")
    encoded = command("encode", pools, "--model", world.model, "--output", folder / "store")
    assert encoded.code == 0, encoded.err
    write_beir(folder / "b")
    small = json.dumps([option for option in small_options() if option != "--set"])
    table = matrix_table(world.collection, seeds="[1, 2]").replace('["r", "b", "f"]', '["r", "b", "f", "n"]')
    (folder / "t.toml").write_text(f'{table}[systems.n]\npreset = "ap-cnn"\nset = {small}\n')


def write_beir(folder: Path) -> None:
    """Write retrieval data in BEIR's layout."""
    (folder / "qrels").mkdir(parents=True)
    documents = [{"_id": f"d{n}", "title": "", "text": f"river {n} of the mountain"} for n in range(30)]
    queries = [{"_id": f"q{n}", "text": f"where is river {n}"} for n in range(6)]
    for name, rows in (("corpus", documents), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    judged = "".join(f"q{n}\td{n}\t1\n" for n in range(6))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    ranked = "".join(f"q{q} Q0 d{d} {d} {30 - d} x\n" for q in range(6) for d in range(30))
    folder.with_suffix(".run").write_text(ranked)


def scenes(folder: Path) -> list[Scene]:
    """The commands, with the files of ``prepare`` as inputs."""
    collection, run, other = folder / "c", folder / "test.run", folder / "other.run"
    small = [option.replace("training.epochs=1", "training.epochs=3") for option in small_options()]
    pools, model = folder / "x.pools.parquet", folder / "m"
    learned = ("fuse", run, other, "--train", collection / "test.qrels", "--folds", "2")
    return [
        _scene("score", "score", pools, "--model", model, "--output", f"{OUT}/x.run"),
        _scene("shards", "score", pools, "--model", model, "--output", f"{OUT}/x.parquet/"),
        _scene("encode", "encode", pools, "--model", model, "--output", f"{OUT}/s"),
        _scene(
            "encoded",
            "score",
            pools,
            "--model",
            model,
            "--encoded",
            folder / "store",
            "--output",
            f"{OUT}/x.run",
        ),
        _scene("train", "train", collection, "--output", f"{OUT}/m", "--seed", "3", *small),
        _scene("import", "data", "import", "table", f"test={folder / 'x.tsv'}", "--output", f"{OUT}/c"),
        _scene("folds", "data", "folds", collection, "--folds", "2", "--output", f"{OUT}/f"),
        _scene("fuse", "fuse", run, other, "--output", f"{OUT}/f.run"),
        _scene("learned", *learned, "--output", f"{OUT}/f.run"),
        _scene(
            "beir",
            "data",
            "import",
            "retrieval",
            folder / "b",
            "--run",
            f"test={folder / 'b.run'}",
            "--output",
            f"{OUT}/b",
        ),
        _scene("matrix", "matrix", folder / "t.toml", "--output", f"{OUT}/t"),
        _scene("report", "report", folder / "matrix", "--output", f"{OUT}/r.html"),
        _scene("eval", "eval", run, "--qrels", collection / "test.qrels", "--per-question", f"{OUT}/p.csv"),
    ]


def store_scenes(folder: Path, bucket: str) -> list[Scene]:
    """Commands that write to a bucket; the last argument is the output."""
    pools, model = folder / "x.pools.parquet", folder / "m"
    return [
        _scene("score", "score", pools, "--model", model, "--output", f"{bucket}/x.run"),
        _scene("encode", "encode", pools, "--model", model, "--output", f"{bucket}/s"),
        _scene("import", "data", "import", "table", f"test={folder / 'x.tsv'}", "--output", f"{bucket}/c"),
        _scene("train", "train", folder / "c", "--seed", "3", *small_options(), "--output", f"{bucket}/m"),
    ]


def _scene(name: str, *arguments: object) -> Scene:
    return Scene(name, tuple(map(str, arguments)))
