"""The surfaces of aptool: for each, an input that differs from a sound one, and what must hold of the result.

A surface is a function of a ``Case``. It writes an input, runs a command on it, and asserts that what came
out is what an independent reader finds in the input, wherever the command was content.
"""

import contextlib
import functools
import gzip
import itertools
import json
import math
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import readers
from mutators import NASTY_TEXTS, NASTY_VALUES, flip, mutate_bytes, mutate_document, mutate_lines
from world import World, command, small_options

Surface = Callable[["Case"], None]
SURFACES: dict[str, tuple[int, Surface]] = {}  # its weight: how many of all inputs are for it


class Case:
    """One input: where it may write, its random numbers, and the command that it runs."""

    def __init__(self, world: World, random_: random.Random) -> None:
        self.world = world
        self.random = random_
        self.ended = "-"  # exit code, for the totals

    def run(self, *arguments: Any, outputs: tuple[str, ...] = ()) -> str | None:
        """Runs a command; its stdout, or None where it ended in one line.

        Args:
            arguments: of the command.
            outputs: the names that it may write, and what it may leave behind if it fails.
        """
        here = Path.cwd()
        before = readers.listing(here)
        done = command(*arguments)
        self.ended = str(done.code)
        after = readers.listing(here)
        changed = {name for name in before | after if before.get(name) != after.get(name)}
        foreign = [name for name in changed if name.partition("/")[0] not in outputs]
        assert not foreign, f"wrote or changed {sorted(foreign)[:5]}"
        assert done.code in (0, 1, 2), f"exit code {done.code}"
        if done.code == 0:
            return done.out
        half = [name for name in changed if "/" not in name and not name.endswith((".parts", ".training"))]
        assert not half, f"failed and left {half[:5]}"
        errors = [line for line in done.err if line.startswith("aptool: ")]
        faults = [line for line in done.err if line.endswith(" invalid")]
        assert len(errors) + len(faults) == 1, f"{len(errors)} lines of errors: {done.err[:3]}"
        assert len("".join(errors)) < 2100, "a line of more than 2,100 characters"
        assert not any("Traceback" in line for line in done.err)
        return None

    def nasty(self) -> str:
        return self.random.choice(NASTY_TEXTS)


def surface(weight: int) -> Callable[[Surface], Surface]:
    def add(function: Surface) -> Surface:
        SURFACES[function.__name__] = (weight, function)
        return function

    return add


@functools.cache
def content(path: Path) -> bytes:
    """A file of the world, read once."""
    return path.read_bytes()


def packed(case: Case, name: str, data: bytes) -> str:
    """Writes a file, sometimes as gzip, sometimes damaged gzip."""
    if case.random.random() < 0.8:
        Path(name).write_bytes(data)
        return name
    data = gzip.compress(data, 1, mtime=0)
    name = f"{name}.gz"
    Path(name).write_bytes(mutate_bytes(case.random, data) if case.random.random() < 0.4 else data)
    return name


def flipped_or_worse(case: Case, data: bytes) -> bytes:
    return flip(case.random, data) if case.random.random() < 0.7 else mutate_bytes(case.random, data)


def same_measures(case: Case, qrels: str, run: str) -> None:
    out = case.run("eval", run, "--qrels", qrels, "--json")
    if out is None:
        return
    found = json.loads(out)["runs"][0]["measures"]
    expected = readers.measures(readers.judgements(unpacked(qrels)), readers.scores(unpacked(run)))
    for name, value in expected.items():
        assert math.isclose(found[name], value, abs_tol=1e-6), f"{name} {found[name]}, not {value}"


def unpacked(name: str) -> bytes:
    data = Path(name).read_bytes()
    return gzip.decompress(data) if name.endswith(".gz") else data


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
    out = case.run("compare", "a.run", "b.run", "--qrels", "x.qrels", "--permutations", "1000", "--json")
    assert out is None or json.loads(out)


@surface(3)
def fusions(case: Case) -> None:
    data = mutate_lines(case.random, content(case.world.run), b" ")
    shutil.copy(case.world.run, "a.run")
    Path("b.run").write_bytes(data)
    if case.run("fuse", "a.run", "b.run", "--output", "f.run", outputs=("f.run",)) is not None:
        fused = readers.scores(Path("f.run").read_bytes())
        both = (readers.scores(content(case.world.run)), readers.scores(data))
        pairs = {(question, answer) for one in both for question in one for answer in one[question]}
        assert {(question, answer) for question in fused for answer in fused[question]} == pairs


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
    """Pools as another program may write them: any values in the columns' types."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = ("q1", "a 1", "", "#x", "\ufeffq", "a\tb", "é", "\u00a0", "\u2028", "x" * 3000, "a\0b", "1", None)

    def text(common: str) -> str | None:
        return common if case.random.random() < 0.85 else case.random.choice(texts)

    table = []
    for number in range(case.random.choice((0, 1, 2, 4))):
        few = [
            {"answer_id": text(f"a{one}"), "text": text(f"some words {one}")}
            for one in range(case.random.choice((0, 1, 2, 3)) or case.random.choice((0, 2)))
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
        expected = {(row["question_id"], one["answer_id"]) for row in table for one in row["candidates"]}
        found = readers.scores(Path("x.run").read_bytes())
        assert {(question, answer) for question in found for answer in found[question]} == expected


@surface(4)
def parts(case: Case) -> None:
    """A part of an earlier run that was damaged since."""
    pools = case.world.collection / "test.pools.parquet"
    name, whole = _part(case.world)
    Path("x.run.parts").mkdir()
    Path("x.run.parts", name).write_bytes(mutate_bytes(case.random, whole))
    same_run(case, str(pools), content(case.world.run))


@functools.cache
def _part(world: World) -> tuple[str, bytes]:
    from aptool.formats.pools import list_units
    from aptool.scoring import score as scoring
    from aptool.scoring.systems import ModelLoader

    kept: dict[str, bytes] = {}
    merge = scoring.merge

    def kept_first(some: Any, *rest: Any) -> Any:
        kept.update({part.path.name: part.path.read_bytes() for part in some})
        return merge(some, *rest)

    scoring.merge = kept_first
    try:
        units = list_units([str(world.collection / "test.pools.parquet")])
        scoring.score(units, ModelLoader(str(world.model)), world.folder / "kept.run")
    finally:
        scoring.merge = merge
    return next(iter(kept.items()))


@surface(8)
def tables(case: Case) -> None:
    data = mutate_lines(case.random, content(case.world.folder / "x.tsv"), b"\t")
    name = packed(case, "x.tsv", data)
    if case.run("data", "import", "tsv", f"test={name}", "--output", "c", outputs=("c",)) is not None:
        same_pairs(readers.table(unpacked(name)))


@surface(8)
def json_lines(case: Case) -> None:
    lines = content(case.world.folder / "x.jsonl").decode().splitlines()
    at = case.random.randrange(len(lines))
    if case.random.random() < 0.5:
        lines[at] = mutate_document(case.random, json.loads(lines[at]))
        data = "\n".join(lines).encode("utf-8", "surrogateescape")
    else:
        data = mutate_bytes(case.random, "\n".join(lines).encode())
    name = packed(case, "x.jsonl", data)
    if case.run("data", "import", "jsonl", f"test={name}", "--output", "c", outputs=("c",)) is not None:
        text = unpacked(name).removeprefix(b"\xef\xbb\xbf").decode()
        pools = [json.loads(line) for line in text.split("\n") if line.strip()]
        same_pairs(
            [
                (pool["question"], one["text"], int(one["label"]))
                for pool in pools
                for one in pool["candidates"]
            ]
        )


def same_pairs(expected: list[tuple[str, str, int]]) -> None:
    """Compares an imported collection, read by pyarrow alone, with the rows that it is from."""
    import pyarrow.parquet as pq

    labels = readers.judgements(Path("c/test.qrels").read_bytes())
    found = {
        (row["question"], one["text"], labels[row["question_id"]][one["answer_id"]])
        for row in pq.read_table("c/test.pools.parquet").to_pylist()
        for one in row["candidates"]
    }
    assert found == set(expected), f"other pairs: {list(found ^ set(expected))[:3]}"


@surface(8)
def vectors(case: Case) -> None:
    from aptool.errors import AptoolError
    from aptool.text.vectors import read_vectors

    kind = case.random.choice(("v.bin", "v.txt", "glove.txt"))
    data = content(case.world.folder / kind)
    mutate = mutate_bytes if kind == "v.bin" or case.random.random() < 0.5 else _mutate_words
    name = packed(case, kind, mutate(case.random, data))
    wanted = case.random.choice((None, ["river", "engine", "Kitchen", "none"]))
    try:
        found = read_vectors(name, wanted)
    except AptoolError as error:
        case.ended = str(error.exit_code)
        assert "\n" not in str(error)
        return
    case.ended = "0"
    data = unpacked(name)
    words: dict[str, Any] = {}
    with contextlib.suppress(ValueError, struct.error, MemoryError, OverflowError):
        if kind == "v.bin":
            words = {word.decode(): row for word, row in readers.binary_vectors(data).items()}
        else:
            words = readers.text_vectors(data, found.matrix.shape[1])
    for word, row in zip(found.words, found.matrix.tolist(), strict=True):
        known = next(
            (words[one] for one in (word, word.lower(), word.title(), word.upper()) if one in words), row
        )
        single = [struct.unpack("f", struct.pack("f", value))[0] for value in known]
        assert row == single, f"other numbers of {word!r}"


def _mutate_words(random_: random.Random, data: bytes) -> bytes:
    return mutate_lines(random_, data, b" ")


@surface(3)
def weights(case: Case) -> None:
    _copy_model(case)
    path = Path("m/model.safetensors")
    path.write_bytes(
        flip(case.random, path.read_bytes())
        if case.random.random() < 0.8
        else mutate_bytes(case.random, path.read_bytes())
    )
    _score_model(case, same=True)


@surface(6)
def configs(case: Case) -> None:
    _copy_model(case)
    path = Path("m/config.json")
    path.write_text(mutate_document(case.random, json.loads(path.read_text())), errors="surrogateescape")
    _score_model(case, same=False)


@surface(4)
def tokenizers(case: Case) -> None:
    _copy_model(case)
    path = Path("m/tokenizer.json")
    document = json.loads(path.read_text())
    only = case.random.random() < 0.4
    if only:
        document[case.random.choice(("truncation", "padding"))] = case.random.choice(
            (
                {"direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0},
                {"direction": "Left", "max_length": 2, "strategy": "OnlyFirst", "stride": 9},
                {
                    "strategy": {"Fixed": 10**7},
                    "direction": "Right",
                    "pad_id": 10**7,
                    "pad_type_id": 0,
                    "pad_token": "x",
                },
                *NASTY_VALUES[:20],
            )
        )
        path.write_text(json.dumps(document))
    else:
        path.write_text(mutate_document(case.random, document), errors="surrogateescape")
    _score_model(case, same=only)


def _copy_model(case: Case) -> None:
    shutil.copytree(case.world.model, "m")


def _score_model(case: Case, *, same: bool) -> None:
    pools = case.world.collection / "test.pools.parquet"
    outputs = ("x.run", "x.run.parts", "x.run.ir-metadata.yml")
    if case.run("score", pools, "--model", "m", "--output", "x.run", outputs=outputs) is None:
        return
    found, expected = (readers.scores(data) for data in (Path("x.run").read_bytes(), content(case.world.run)))
    assert {q: set(found[q]) for q in found} == {q: set(expected[q]) for q in expected}
    assert not same or found == expected, "other scores"


@surface(5)
def states(case: Case) -> None:
    from aptool.errors import AptoolError
    from aptool.training.checkpoint import STATE, load_state

    expected = load_state(case.world.folder / "state", "key")
    Path("s").mkdir()
    data = content(case.world.folder / "state" / STATE)
    Path("s", STATE).write_bytes(
        flip(case.random, data) if case.random.random() < 0.7 else mutate_bytes(case.random, data)
    )
    try:
        found = load_state(Path("s"), "key")
    except AptoolError as error:
        case.ended = str(error.exit_code)
        assert "\n" not in str(error)
        return
    case.ended = "0"
    assert found is None or (repr(found) == repr(expected)), "another state"


@surface(3)
def caches(case: Case) -> None:
    import torch

    from aptool.errors import AptoolError
    from aptool.models.tensor_file import read_tensors, write_tensors

    matrix = torch.arange(60.0).reshape(20, 3)
    write_tensors(Path("x"), {"vectors": matrix}, {})
    Path("x").write_bytes(flip(case.random, Path("x").read_bytes()))
    try:
        found, _ = read_tensors(Path("x"), checked=True)
    except AptoolError as error:
        case.ended = str(error.exit_code)
        return
    case.ended = "0"
    assert torch.equal(found["vectors"], matrix)


@surface(4)
def manifests(case: Case) -> None:
    shutil.copytree(case.world.collection, "c")
    path = Path("c/collection.json")
    path.write_text(mutate_document(case.random, json.loads(path.read_text())), errors="surrogateescape")
    case.run("data", case.random.choice(("check", "check", "stats")), "c")


@surface(2)
def collections(case: Case) -> None:
    shutil.copytree(case.world.collection, "c")
    name = case.random.choice(("test.qrels", "test.pools.parquet", "train.qrels", "dev.pools.parquet"))
    data = content(case.world.collection / name)
    changed = flip(case.random, data)
    Path("c", name).write_bytes(changed)
    out = case.run("data", "check", "c")
    assert out is None or changed == data, "a changed collection is accepted"


@surface(4)
def recipes(case: Case) -> None:
    import aptool

    presets = sorted((Path(aptool.__file__).parent / "presets").glob("*.toml"))
    data = content(case.random.choice(presets))
    lines = data.split(b"\n")
    at = case.random.randrange(len(lines))
    if b"=" in lines[at] and case.random.random() < 0.7:
        lines[at] = lines[at].partition(b"=")[0] + b"= " + case.nasty().encode("utf-8", "surrogatepass")
        data = b"\n".join(lines)
    else:
        data = mutate_bytes(case.random, data)
    Path("r.toml").write_bytes(data)
    case.run("train", "none", "--preset", "r.toml", "--output", "m")


@surface(5)
def overrides(case: Case) -> None:
    preset = case.random.choice(("ap-cnn", "qa-bilstm", "ap-bilstm", "qa-cnn", "nothing"))
    key = f"{case.random.choice(_sections())}={case.nasty()}"
    more = case.random.choice((["--set", case.nasty()], []))
    case.run("train", "none", "--preset", preset, "--output", "m", "--set", key, *more)


@functools.cache
def _sections() -> list[str]:
    from aptool.config import load_recipe
    from aptool.models.build import ENCODERS, POOLINGS

    table = load_recipe("ap-cnn").to_dict()
    names = [f"{part}.{name}" for part, entry in table.items() if isinstance(entry, dict) for name in entry]
    for part, registry in (("encoder", ENCODERS), ("pooling", POOLINGS)):
        for one in registry.values():
            names += [f"{part}.{name}" for name in one.Options.__dataclass_fields__]
    return [*names, "training", "x.y", "training.x", ".", "training.epochs.x"]


@surface(2)
def trainings(case: Case) -> None:
    """A whole training with one option changed to a value in its bounds, or just outside."""
    key = case.random.choice(
        [name for name in _sections() if name.startswith(("training.", "text.", "vectors."))]
    )
    value = case.random.choice(("0", "1", "2", "0.5", "1e-12", "999", "0.999", "100", "-1", "1.0", "true"))
    if key in ("training.epochs", "vectors.epochs") and value in ("999", "100"):
        value = "2"
    options = ("--output", "m", "--set", "training.epochs=1", "--set", f"{key}={value}")
    case.run("train", case.world.collection, *small_options(), *options, outputs=("m", "m.training"))


@surface(3)
def matrices(case: Case) -> None:
    text = (
        f'measures = ["map", "P_1"]\n[collections.c]\npath = "{case.world.collection}"\nsplit = "test"\n'
        '[systems.r]\nbaseline = "random"\n[systems.b]\nbaseline = "bm25"\n[systems.f]\nfuse = ["r", "b"]\n'
        '[[rows]]\ncollection = "c"\nsystems = ["r", "b", "f"]\nseeds = [1]\n'
    )
    lines = text.split("\n")
    at = case.random.randrange(len(lines))
    if "=" in lines[at] and case.random.random() < 0.6:
        lines[at] = lines[at].partition("=")[0] + "= " + case.nasty()
        data = "\n".join(lines).encode("utf-8", "surrogatepass")
    else:
        data = mutate_bytes(case.random, text.encode())
    Path("t.toml").write_bytes(data)
    before = readers.listing(case.world.folder)
    case.run("matrix", "t.toml", "--output", "o.training", outputs=("o.training",))
    assert readers.listing(case.world.folder) == before, "changed the collection"


@surface(3)
def results(case: Case) -> None:
    """The folder of a matrix, as `aptool report` reads it, and the history of a model."""
    from aptool.errors import AptoolError
    from aptool.reporting.curves import read_history
    from aptool.reporting.runs import find_collections, read_runs

    document = {
        "results": [
            {
                "collection": "c",
                "system": "r",
                "seed": 1,
                "run": "c/r/seed1/test.run",
                "split": "test",
                "measures": {"map": 0.5},
                "questions": 8,
                "seconds": {"train": 0.0, "score": 0.1},
            }
        ],
        "collections": {"c": {"path": str(case.world.collection), "name": "tiny"}},
        "command": "aptool matrix",
    }
    history = [{"epoch": n, "loss": 0.5, "dev": {"map": 0.5}, "seconds": {"update": 0.1}} for n in (1, 2)]
    Path("o/c/r/seed1").mkdir(parents=True)
    shutil.copy(case.world.run, "o/c/r/seed1/test.run")
    Path("o/table.json").write_text(mutate_document(case.random, document), errors="surrogateescape")
    Path("m/training").mkdir(parents=True)
    lines = [json.dumps(history[0]), mutate_document(case.random, history[1])]
    Path("m/training/history.jsonl").write_text("\n".join(lines), errors="surrogateescape")
    case.ended = "0"
    for read in (lambda: find_collections(read_runs("o"), {}), lambda: read_history("m")):
        try:
            read()
        except OSError as error:  # the command says its reason in a line
            assert error.strerror
            case.ended = "1"
        except AptoolError as error:
            case.ended = str(error.exit_code)
            assert "\n" not in str(error)


@surface(8)
def options(case: Case) -> None:
    """Any option of the cheaper commands with any value."""
    shutil.copy(case.world.run, "x.run")
    shutil.copy(case.world.collection / "test.qrels", "x.qrels")
    name, given = case.random.choice(_commands())
    arguments = list(given)
    for _ in range(case.random.choice((1, 1, 2))):
        option = case.random.choice(_options(name) or ["--none"])
        arguments += [option, case.nasty()]
    if case.random.random() < 0.1:
        arguments.insert(case.random.randrange(1, len(arguments)), case.nasty())
    written = [value for value in arguments[1:] if value]
    names = {Path(value).parts[0] for value in written if Path(value).parts}
    names |= {f"{name}{end}" for name in names for end in (".csv", ".png", ".svg")}
    case.run(*arguments, outputs=tuple(names - {"x.run", "x.qrels"}))


def _commands() -> list[tuple[str, tuple[str, ...]]]:
    return [
        ("eval", ("eval", "x.run", "--qrels", "x.qrels")),
        ("compare", ("compare", "x.run", "x.run")),
        ("data check", ("data", "check", "x.run")),
        ("data import tsv", ("data", "import", "tsv", "test=x.run", "--output", "c")),
        ("data import jsonl", ("data", "import", "jsonl", "test=x.run", "--output", "c")),
        ("score", ("score", "x.run", "--model", "none", "--output", "o.run")),
        ("train", ("train", "none", "--output", "m")),
        ("explain", ("explain", "--model", "none")),
        ("vectors learn", ("vectors", "learn", "none", "--output", "v.bin")),
        ("report", ("report", "none")),
        ("fuse", ("fuse", "x.run", "x.run", "--output", "f.run")),
    ]


@functools.cache
def _options(name: str) -> list[str]:
    """The options of a command that take a value, but for those that would write anywhere or wait."""
    import click

    from aptool.cli.main import cli

    found: Any = cli
    context = click.Context(found)
    for word in name.split():
        found = found.get_command(context, word)
        if found is None:
            return []
    left_out = {"--cluster", "--output", "--html", "--png", "--per-question"}
    return [
        option
        for parameter in found.params
        if isinstance(parameter, click.Option) and not parameter.is_flag
        for option in parameter.opts
        if option not in left_out
    ]


@surface(3)
def urls(case: Case) -> None:
    """URLs that lead nowhere; none leads to another machine."""
    scheme = case.random.choice(
        (
            "file",
            "memory",
            "local",
            "http",
            "nothing",
            "zip",
            "tar",
            "cached",
            "simplecache::memory",
            "x" * 300,
            "data",
            "::",
            "reference",
        )
    )
    rest = case.random.choice(
        ("", "/", "//", "127.0.0.1:1/x", "127.0.0.1:99999/", "[::1]:1/x", "/none/x.run", "*", "?", "%00", "é")
    )
    url = f"{scheme}:{case.random.choice(('//', '/', ''))}{rest}"
    pools = ("score", url, "--model", case.world.model, "--output", "x.run")
    runs = ("eval", url, "--qrels", str(case.world.collection / "test.qrels"))
    written = (
        "score",
        case.world.collection / "test.pools.parquet",
        "--model",
        case.world.model,
        "--output",
        url,
    )
    imported = ("data", "import", "tsv", f"test={url}", "--output", "c")
    begin = url.partition("/")[0]
    outputs = ("x.run.parts", begin, f"{begin}.parts", f"{begin}.ir-metadata.yml", "c")
    case.run(*case.random.choice((pools, runs, imported, written)), outputs=outputs)


@surface(3)
def texts(case: Case) -> None:
    """Texts of every kind in a page: it stays well-formed and holds no code of theirs."""
    from html.parser import HTMLParser

    pieces = (
        "<script>alert(1)</script>",
        "'\"><img src=x onerror=alert(1)>",
        "\u202e",
        "\u2028",
        "é",
        "🎈",
        "{{ 1 }}",
        "a" * 500,
        "&lt;",
        "]]>",
        "\x1b[31m",
        "the river",
        "0",
        "-",
        "  ",
        "\ufffd",
        "\u0301",
        "{% x %}",
    )
    question, answer = (
        " ".join(case.random.choice(pieces) for _ in range(case.random.randrange(0, 6))) for _ in range(2)
    )
    given = ("explain", "--model", case.world.model, f"--question={question}", f"--answer={answer}")
    if case.run(*given, "--html", "e.html", outputs=("e.html",)) is None:
        return

    class Parser(HTMLParser):
        scripts = images = 0

        def handle_starttag(self, tag: str, attributes: Any) -> None:
            self.scripts += tag == "script"
            self.images += tag == "img" or any(name.startswith("on") for name, _ in attributes)

    parser = Parser()
    parser.feed(Path("e.html").read_text(encoding="utf-8"))
    assert parser.images == 0
    assert parser.scripts == _scripts(case.world)


@functools.cache
def _scripts(world: World) -> int:
    import os
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        before = Path.cwd()
        os.chdir(folder)
        try:
            command(
                "explain",
                "--model",
                world.model,
                "--question",
                "where",
                "--answer",
                "here",
                "--html",
                "e.html",
            )
            return Path("e.html").read_text().count("<script")
        finally:
            os.chdir(before)


def schedule() -> list[str]:
    """The surfaces in the order of the inputs, over and over: each as often as its weight."""
    rounds = [[name] * weight for name, (weight, _) in SURFACES.items()]
    return [name for row in itertools.zip_longest(*rounds) for name in row if name is not None]
