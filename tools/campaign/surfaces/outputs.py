"""Damaged files at the path of an output: metadata of an earlier run, and claims of other processes."""

import contextlib
import json
import shutil
from pathlib import Path

import yaml
from case import Case, content, surface
from mutators import NASTY_VALUES, mutate_bytes, mutate_document

from surfaces.pools import same_run

_ODD_YAML = (
    *(
        "x: " + "[" * 3000,
        "x: " + "[" * 60 + "]" * 60,
        "x: &a [*a]",
        "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]",
    ),
    *("x: !!python/object/apply:os.system ['touch ran']", "x: !!binary '%'", 'x: "\\ud800"', "x: \x07"),
    *(
        "x: 2001-99-99",
        "x: " + "9" * 5000,
        "x: " + "1:" * 500 + "1",
        "? [1]\n: 2",
        "x: .nan",
        "<<: 1",
        "x: y: z",
    ),
    *("---\n---", "%YAML 9.9\n---\nx: 1", "x: 1\nx: 2", "1: 2", "null: 3", "tag: other", "- x", "x: y: z"),
)


@surface(3)
def sidecars(case: Case) -> None:
    """Metadata of a run that is overwritten: an author's entries are preserved, or the run is refused."""
    shutil.copy(case.world.run, "x.run")
    whole = content(Path(f"{case.world.run}.ir-metadata.yml"))
    kind = case.random.randrange(3)
    if kind == 0:
        data = mutate_bytes(case.random, whole)
    elif kind == 1:
        data = whole + case.random.choice(_ODD_YAML).encode() + b"\n"
    else:
        data = whole + f"mine: {mutate_document(case.random, {'a': [1, 'b']})}\n".encode(errors="replace")
    path = Path("x.run.ir-metadata.yml")
    path.write_bytes(data)
    same_run(case, str(case.world.collection / "test.pools.parquet"), content(case.world.run))
    assert not Path("ran").exists(), "ran what the metadata say"
    if case.ended != "0":
        assert path.read_bytes() == data, "failed and changed the metadata"
        return
    before, after = _document(data), _document(path.read_bytes())
    assert after is not None
    assert before is not None
    kept = {key: value for key, value in before.items() if key not in after}
    assert not kept, f"lost {list(kept)[:3]}"


def _document(data: bytes) -> dict[object, object] | None:
    with contextlib.suppress(ValueError, yaml.YAMLError, RecursionError):
        document = yaml.load(data.decode("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return document if isinstance(document, dict) else None
    return None


@surface(3)
def claims(case: Case) -> None:
    """The claim of a process that has ended: it is taken over, and other files in the folder stay."""
    from aptool.formats import claim

    owner = {"token": "0" * 16, "host": "there", "machine": "other", "process": 1, "started": "1"}
    owner |= {"since": "2026-01-01T00:00:00+0000", "renewals": 3}
    Path("x.run.parts").mkdir()
    Path("x.run.parts/notes.txt").write_text("mine")
    path = Path("x.run.parts/driver")
    kind = case.random.randrange(4)
    if kind == 0:
        path.write_bytes(mutate_bytes(case.random, json.dumps(owner).encode()))
    elif kind == 1:
        path.write_text(mutate_document(case.random, owner), errors="surrogateescape")
    else:
        owner["machine"] = claim._machine()
        owner[case.random.choice(sorted(owner))] = case.random.choice(NASTY_VALUES)
        path.write_text(json.dumps(owner))
    content_before = path.read_bytes()
    patience, claim.PATIENCE_SECONDS = claim.PATIENCE_SECONDS, 0.02
    pools = case.world.collection / "test.pools.parquet"
    outputs = ("x.run", "x.run.parts", "x.run.ir-metadata.yml")
    try:
        given = ("--model", case.world.model, "--output", "x.run")
        taken = case.run("score", pools, *given, outputs=outputs) is not None
    finally:
        claim.PATIENCE_SECONDS = patience
    if not content_before.startswith(b'{"token": '):  # not recognizable as a claim
        assert taken or path.read_bytes() == content_before, "refused and changed a file"
        return
    assert taken, "the claim of an ended process blocks the output"
    assert Path("x.run").read_bytes() == content(case.world.run), "another run"
    assert [path.name for path in Path("x.run.parts").iterdir()] == ["notes.txt"]
