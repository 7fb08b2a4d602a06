"""Damaged qrels and runs: evaluation, comparison and fusion."""

import json
import math
import shutil
from pathlib import Path

import readers
from case import Case, content, packed, surface, unpacked
from mutators import mutate_lines


def same_measures(case: Case, qrels: str, run: str) -> None:
    out = case.run("eval", run, "--qrels", qrels, "--json")
    if out is None:
        return
    measures = json.loads(out)["runs"][0]["measures"]
    expected = readers.measures(readers.judgements(unpacked(qrels)), readers.scores(unpacked(run)))
    for name, value in expected.items():
        assert math.isclose(measures[name], value, abs_tol=1e-6), f"{name} {measures[name]}, not {value}"


@surface(12)
def qrels(case: Case) -> None:
    data = mutate_lines(case.random, content(case.world.collection / "test.qrels"), b" ")
    shutil.copy(case.world.run, "x.run")
    same_measures(case, packed(case, "x.qrels", data), "x.run")


@surface(12)
def runs(case: Case) -> None:
    data = mutate_lines(case.random, content(case.world.run), b" ")
    shutil.copy(case.world.collection / "test.qrels", "x.qrels")
    same_measures(case, "x.qrels", packed(case, "x.run", data))


@surface(3)
def comparisons(case: Case) -> None:
    data = mutate_lines(case.random, content(case.world.run), b" ")
    shutil.copy(case.world.run, "a.run")
    shutil.copy(case.world.collection / "test.qrels", "x.qrels")
    Path("b.run").write_bytes(data)
    out = case.run("compare", "a.run", "b.run", "--qrels", "x.qrels", "--json")
    assert out is None or json.loads(out)


@surface(3)
def fusions(case: Case) -> None:
    data = mutate_lines(case.random, content(case.world.run), b" ")
    shutil.copy(case.world.run, "a.run")
    Path("b.run").write_bytes(data)
    if case.run("fuse", "a.run", "b.run", "--output", "f.run", outputs=("f.run",)) is not None:
        both = [readers.scores(content(case.world.run)), readers.scores(data)]
        same_pairs(readers.scores(Path("f.run").read_bytes()), both)


@surface(3)
def learned_fusions(case: Case) -> None:
    """A learned fusion with a changed input."""
    data = {
        "a.run": content(case.world.run),
        "b.run": content(case.world.other_run),
        "x.qrels": content(case.world.collection / "test.qrels"),
    }
    changed = case.random.choice(sorted(data))
    data[changed] = mutate_lines(case.random, data[changed], b" ")
    for name, lines in data.items():
        Path(name).write_bytes(lines)
    more = case.random.choice(
        ((), ("--folds=2",), ("--folds=8",), ("--train-run=a.run", "--train-run=b.run"))
    )
    given = ("fuse", "a.run", "b.run", "--train", "x.qrels", *more, "--output", "f.run")
    if case.run(*given, outputs=("f.run",)) is not None:
        both = [readers.scores(data[name]) for name in ("a.run", "b.run")]
        same_pairs(readers.scores(Path("f.run").read_bytes()), both)


def same_pairs(fused: dict[str, dict[str, float]], runs: list[dict[str, dict[str, float]]]) -> None:
    """Check that the fused run has the candidates of all runs, and no other candidates."""
    pairs = {(question, answer) for run in runs for question in run for answer in run[question]}
    assert {(question, answer) for question in fused for answer in fused[question]} == pairs
