"""The files that the inputs of the campaign are derived from: a tiny collection, a model and their runs."""

import contextlib
import importlib.util
import io
import json
import os
import random
import shutil
import sys
from pathlib import Path
from typing import Any, NamedTuple

import libraries
import numpy as np
from checkpoints import write_all
from tiny import OPTIONS, SIZES, labelled_pools, recipe


class Finished(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: list[str]


class World:
    """The files that inputs are derived from; created once and read only."""

    def __init__(self, folder: Path) -> None:
        from aptool.formats.collection import CollectionFiles, CollectionWriter
        from aptool.models.initialization import TrainingTexts  # noqa: F401 - loads torch once, before any clock runs
        from aptool.training.fit import fit

        self.folder = folder
        self.collection = folder / "c"
        self.shared = folder / "s"
        self.model = folder / "m"
        self.trained = folder / "trained"  # by `small_options`
        self.run = folder / "test.run"
        self.other_run = folder / "other.run"  # the same candidates in a different order
        self.encoded = folder / "encoded"  # answer store of the test pools
        self.train_run = folder / "train.run"
        self.matrix = folder / "matrix"
        self.checkpoints = folder / "checkpoints"
        self.libraries = folder / "libraries"
        if folder.exists():
            return
        folder.mkdir(parents=True)
        with CollectionWriter(self.collection, name="tiny", source="made for the campaign") as writer:
            for split, questions in (("train", 20), ("dev", 8), ("test", 8)):
                writer.add_split(split, labelled_pools(split, questions))
        texts: dict[str, str] = {}
        with CollectionWriter(self.shared, name="shared", source="made for the campaign") as writer:
            pools = labelled_pools("test", 8)
            for pool in pools:
                texts |= dict(zip(pool.answer_ids, pool.texts or (), strict=True))
            writer.add_answers(texts.items())
            writer.add_split("test", (pool._replace(texts=None) for pool in pools))
        small = recipe("ap-cnn", "training.epochs=1", "vectors.dim=8", "encoder.features=8")
        fit(CollectionFiles(self.collection), small, self.model, seed=1)
        self._write_more()

    def _write_more(self) -> None:
        from aptool.text.vectors import WordVectors, write_vectors

        pools = self.collection / "test.pools.parquet"
        shared = self.shared / "test.pools.parquet"
        assert command("score", pools, "--model", self.model, "--output", self.run).code == 0
        assert command("score", shared, "--model", self.model, "--output", self.folder / "s.run").code == 0
        assert command("encode", pools, "--model", self.model, "--output", self.encoded).code == 0
        train = self.collection / "train.pools.parquet"
        assert command("score", train, "--model", self.model, "--output", self.train_run).code == 0
        given = ("train", self.collection, "--output", self.trained, *small_options())
        assert command(*given).code == 0
        table = self.folder / "t.toml"
        table.write_text(matrix_table(self.collection))
        assert command("matrix", table, "--output", self.matrix).code == 0
        random_ = random.Random(4)
        pairs = [line.split()[::2] for line in self.run.read_text().splitlines()]
        lines = [f"{question} Q0 {answer} 1 {random_.random()} other" for question, answer, _ in pairs]
        self.other_run.write_text("\n".join([*lines, ""]))
        rows = [
            f"{pool.question}\t{text}\t{pool.relevance.get(answer, 0)}"
            for pool in labelled_pools("test", 8)
            for answer, text in zip(pool.answer_ids, pool.texts or (), strict=True)
        ]
        (self.folder / "x.tsv").write_text(
            "\n".join(["question\tanswer\tlabel", *rows, ""]), encoding="utf-8"
        )
        lines = [
            json.dumps(
                {
                    "question": pool.question,
                    "candidates": [
                        {"text": text, "label": pool.relevance.get(answer, 0)}
                        for answer, text in zip(pool.answer_ids, pool.texts or (), strict=True)
                    ],
                }
            )
            for pool in labelled_pools("test", 8)
        ]
        (self.folder / "x.jsonl").write_text("\n".join([*lines, ""]), encoding="utf-8")
        words = ["river", "mountain", "kitchen", "engine", "naïve", "the"]
        matrix = np.arange(24, dtype=np.float32).reshape(6, 4) / 7
        write_vectors(self.folder / "v.bin", WordVectors(words, matrix, "made"))
        rows = zip(words, matrix, strict=True)
        text = "".join(f"{word} {' '.join(map(str, row))}\n" for word, row in rows)
        (self.folder / "v.txt").write_text(f"6 4\n{text}", encoding="utf-8")
        (self.folder / "glove.txt").write_text(text, encoding="utf-8")
        self._write_state()
        if importlib.util.find_spec("transformers"):
            write_all(self.checkpoints)
        if importlib.util.find_spec("sentence_transformers"):
            libraries.write_all(self.libraries)

    def _write_state(self) -> None:
        import torch

        from aptool.training.checkpoint import TrainingState, save_state

        weights = {"u": torch.arange(6.0), "v": torch.ones(2, 3)}
        moments = {"state": {0: {"step": torch.tensor(3.0), "exp_avg": torch.zeros(6)}}, "param_groups": []}
        state = TrainingState([{"epoch": 1, "dev": {"map": 0.5}}], 1, weights, dict(weights), [moments])
        save_state(self.folder / "state", "key", state)


def matrix_table(collection: Path, seeds: str = "[1]") -> str:
    """A matrix file with two baselines and their fusion."""
    return (
        f'measures = ["map", "P_1"]\n[collections.c]\npath = "{collection}"\nsplit = "test"\n'
        '[systems.r]\nbaseline = "random"\n[systems.b]\nbaseline = "bm25"\n[systems.f]\nfuse = ["r", "b"]\n'
        f'[[rows]]\ncollection = "c"\nsystems = ["r", "b", "f"]\nseeds = {seeds}\n'
    )


def small_options() -> list[str]:
    """Options of `aptool train` for a minimal training."""
    options = (*OPTIONS, *SIZES["cnn"], "training.epochs=1")
    return [word for option in options for word in ("--set", option)]


def command(*arguments: Any) -> Finished:
    """Run a command in this process.

    Raises:
        Exception: an exception that the command does not convert to an error of one line.
    """
    from aptool.cli.main import main

    out, err = io.StringIO(), io.StringIO()
    before = sys.argv
    sys.argv = ["aptool", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
            except SystemExit as end:
                code = end.code or 0
    finally:
        sys.argv = before
    assert isinstance(code, int)
    return Finished(code, out.getvalue(), err.getvalue().splitlines())


@contextlib.contextmanager
def inside(folder: Path) -> Any:
    """Run the block in a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        shutil.rmtree(folder, ignore_errors=True)
