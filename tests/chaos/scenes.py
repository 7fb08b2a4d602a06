"""The commands that are disturbed, and what they start from."""

from pathlib import Path
from typing import NamedTuple

from tiny import labelled_pools, row, write_pools
from world import World, small_options

OUT = "o"  # the folder of a command's outputs


class Scene(NamedTuple):
    """A command; it writes into ``OUT`` of the current folder."""

    name: str
    arguments: tuple[str, ...]


def prepare(folder: Path) -> None:
    """Writes what the commands read."""
    world = World(folder)
    rows = [
        row(pool.question_id, pool.question, list(zip(pool.answer_ids, pool.texts or (), strict=True)))
        for pool in labelled_pools("test", 12)
    ]
    write_pools(folder / "x.pools.parquet", *(rows[start : start + 2] for start in range(0, 12, 2)))
    (folder / "t.toml").write_text(
        f'measures = ["map", "P_1"]\n[collections.c]\npath = "{world.collection}"\nsplit = "test"\n'
        '[systems.r]\nbaseline = "random"\n[systems.b]\nbaseline = "bm25"\n[systems.f]\nfuse = ["r", "b"]\n'
        '[[rows]]\ncollection = "c"\nsystems = ["r", "b", "f"]\nseeds = [1, 2]\n'
    )


def scenes(folder: Path) -> list[Scene]:
    """The commands, over the files of ``prepare``."""
    collection, run, other = folder / "c", folder / "test.run", folder / "other.run"
    small = [option.replace("training.epochs=1", "training.epochs=3") for option in small_options()]
    pools, model = folder / "x.pools.parquet", folder / "m"
    learn = ("--dim", "8", "--epochs", "1")
    return [
        _scene("score", "score", pools, "--model", model, "--output", f"{OUT}/x.run"),
        _scene("train", "train", collection, "--output", f"{OUT}/m", "--seed", "3", *small),
        _scene("import", "data", "import", "tsv", f"test={folder / 'x.tsv'}", "--output", f"{OUT}/c"),
        _scene("folds", "data", "folds", collection, "--folds", "2", "--output", f"{OUT}/f"),
        _scene("fuse", "fuse", run, other, "--output", f"{OUT}/f.run"),
        _scene("vectors", "vectors", "learn", collection, "--output", f"{OUT}/v.bin", *learn),
        _scene("matrix", "matrix", folder / "t.toml", "--output", f"{OUT}/t"),
        _scene("eval", "eval", run, "--qrels", collection / "test.qrels", "--per-question", f"{OUT}/p.csv"),
    ]


def _scene(name: str, *arguments: object) -> Scene:
    return Scene(name, tuple(map(str, arguments)))
