"""Damaged Parquet files of pools and answers, and parts of a run."""

import functools
import shutil
import tempfile
from pathlib import Path
from typing import Any

import readers
from case import Case, content, flipped_or_worse, surface
from mutators import mutate_bytes
from world import World


def same_run(case: Case, pools: str, expected: bytes, *more: Any) -> None:
    outputs = ("x.run", "x.run.parts", "x.run.ir-metadata.yml")
    given = ("--model", case.world.model, "--output", "x.run", *more)
    if case.run("score", pools, *given, outputs=outputs) is not None:
        assert Path("x.run").read_bytes() == expected, "another run"
        assert not Path("x.run.parts").exists(), "parts are left"


@surface(8)
def pools(case: Case) -> None:
    data = content(case.world.collection / "test.pools.parquet")
    changed = flipped_or_worse(case, data)
    Path("x.pools.parquet").write_bytes(changed)
    shutil.copy(case.world.collection / "answers.parquet", ".")
    checked = case.run("data", "check", "x.pools.parquet") is not None
    same_run(case, "x.pools.parquet", content(case.world.run))
    assert checked == (case.ended == "0"), "check and score differ"


@surface(4)
def answers(case: Case) -> None:
    data = content(case.world.shared / "answers.parquet")
    changed = flipped_or_worse(case, data)
    Path("a.parquet").write_bytes(changed)
    shutil.copy(case.world.shared / "test.pools.parquet", "x.pools.parquet")
    same_run(case, "x.pools.parquet", content(case.world.folder / "s.run"), "--answers", "a.parquet")


@surface(6)
def rows(case: Case) -> None:
    """Pools of another program: any values of the types of the columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = ("q1", "a 1", "", "#x", "\ufeffq", "a\tb", "é", "\u00a0", "\u2028", "x" * 3000, "a\0b", "1", None)

    def text(common: str) -> str | None:
        return common if case.random.random() < 0.85 else case.random.choice(texts)

    table = []
    for number in range(case.random.choice((0, 1, 2, 4))):
        few = [
            {"answer_id": text(f"a{number}"), "text": text(f"some words {number}")}
            for number in range(case.random.choice((0, 1, 2, 3)) or case.random.choice((0, 2)))
        ]
        table.append({"question_id": text(f"q{number}"), "question": text("where is it"), "candidates": few})
    kind = case.random.choice((pa.string(), pa.string(), pa.large_string()))
    candidate = pa.struct([("answer_id", kind), ("text", kind)])
    listed = case.random.choice((pa.list_, pa.large_list))(candidate)
    schema = pa.schema([("question_id", kind), ("question", kind), ("candidates", listed)])
    pq.write_table(pa.Table.from_pylist(table, schema=schema), "x.pools.parquet", row_group_size=2)
    checked = case.run("data", "check", "x.pools.parquet") is not None
    outputs = ("x.run", "x.run.parts", "x.run.ir-metadata.yml")
    given = ("--model", case.world.model, "--output", "x.run")
    scored = case.run("score", "x.pools.parquet", *given, outputs=outputs) is not None
    assert checked == scored, f"check says {checked}, score {scored}"
    if scored:
        expected = {
            (row["question_id"], candidate["answer_id"]) for row in table for candidate in row["candidates"]
        }
        scores = readers.scores(Path("x.run").read_bytes())
        assert {(question, answer) for question in scores for answer in scores[question]} == expected


@surface(4)
def parts(case: Case) -> None:
    """A damaged part of an earlier run."""
    pools = case.world.collection / "test.pools.parquet"
    name, whole = _part(case.world)
    Path("x.run.parts").mkdir()
    Path("x.run.parts", name).write_bytes(mutate_bytes(case.random, whole))
    same_run(case, str(pools), content(case.world.run))


@functools.cache
def _part(world: World) -> tuple[str, bytes]:
    from aptool.formats.pools import list_units
    from aptool.scoring import score as scoring
    from aptool.scoring.model_system import ModelSystem

    kept: dict[str, bytes] = {}
    merge = scoring.merge

    def kept_first(some: Any, *rest: Any) -> Any:
        kept.update({part.path.name: part.path.read_bytes() for part in some})
        return merge(some, *rest)

    scoring.merge = kept_first
    try:
        units = list_units([str(world.collection / "test.pools.parquet")])
        # Not in the folder of the world: other processes compare it with its earlier state.
        with tempfile.TemporaryDirectory() as folder:
            scoring.score_files(units, ModelSystem(str(world.model)), Path(folder) / "kept.run")
    finally:
        scoring.merge = merge
    return next(iter(kept.items()))
