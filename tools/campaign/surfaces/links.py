"""Outputs and inputs under names that lead through links, `..`, devices and pipes."""

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import readers
from case import Case, content, surface

from aptool.formats.claim import claimed_beside, claimed_folder
from aptool.scoring.parts import parts_folder

# Names of the same file, for the name NAME of an output in d, with the links of `_links`.
ALIASES = (
    *("d/NAME", "./d/NAME", "d//NAME", "d/../d/NAME", "l/NAME", "ll/NAME", "l/../d/NAME", "w/up/d/NAME"),
    *("file", "chain", "w/up/chain", "d/sub/../NAME", "{root}/l/NAME", "{root}/w/../file"),
)


def _links(name: str) -> None:
    for folder in ("d/sub", "w"):
        Path(folder).mkdir(parents=True)
    targets = {"l": "d", "ll": "l", "w/up": "..", "file": f"d/{name}", "chain": "file"}
    for link, target in targets.items():
        Path(link).symlink_to(target)


@surface(6)
def linked_outputs(case: Case) -> None:
    """Two names of one output: the second writer is refused; a link stays a link."""
    name, act = case.random.choice((("x.run", _score), ("c", _import), ("s", _encode)))
    _links(name)
    first, second = (
        case.random.choice(ALIASES).replace("NAME", name).format(root=Path.cwd()) for _ in range(2)
    )
    if case.random.random() < 0.4 and act is not _encode:
        owner = claimed_folder(parts_folder(first), first) if act is _score else claimed_beside(first)
        with owner:
            assert act(case, second) is None, "two writers"
    elif act(case, first) is not None:
        before = readers.listing(Path("d"))
        assert act(case, second) is not None, "an output of aptool is refused under another name"
        assert set(readers.listing(Path("d"))) == set(before), "files beside the output"
        if act is _score:
            assert Path("d/x.run").read_bytes() == content(case.world.run), "another run"
    assert all(Path(link).is_symlink() for link in ("l", "ll", "w/up", "file", "chain")), "replaced a link"
    assert sorted(map(str, Path().iterdir())) == ["chain", "d", "file", "l", "ll", "w"], "files beside a link"


def _score(case: Case, output: str) -> str | None:
    pools = case.world.collection / "test.pools.parquet"
    given = ("score", pools, "--model", case.world.model, "--output", output, "--overwrite")
    return case.run(*given, outputs=("d",))


def _import(case: Case, output: str) -> str | None:
    given = ("data", "import", "table", f"test={case.world.folder / 'x.tsv'}", "--output", output)
    return case.run(*given, "--overwrite", outputs=("d",))


def _encode(case: Case, output: str) -> str | None:
    pools = case.world.collection / "test.pools.parquet"
    return case.run("encode", pools, "--model", case.world.model, "--output", output, outputs=("d",))


def _pipe() -> None:
    os.mkfifo("x")


def _socket() -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("x")


SPECIAL: tuple[Callable[[], None], ...] = (
    _pipe,
    _socket,
    lambda: Path("x").symlink_to("x"),
    lambda: Path("x").symlink_to("none/y"),
    lambda: Path("x").symlink_to("/dev/null"),
    lambda: Path("x").symlink_to("/dev/full"),
    lambda: Path("x").symlink_to("/dev/zero"),
    lambda: Path("x").symlink_to("/proc/self/mem"),
    lambda: Path("x").mkdir(),
    lambda: Path("x").symlink_to("folder"),
)


@surface(6)
def special_files(case: Case) -> None:
    """A pipe, a socket, a device, a loop of links or a folder as output or input: one line, or a result."""
    Path("folder").mkdir()
    case.random.choice(SPECIAL)()
    before = os.lstat("x")
    pools, model = case.world.collection / "test.pools.parquet", case.world.model
    run, qrels = case.world.run, case.world.collection / "test.qrels"
    commands = (
        ("score", pools, "--model", model, "--output", "x"),
        ("encode", pools, "--model", model, "--output", "x"),
        ("fuse", run, case.world.other_run, "--output", "x"),
        ("report", case.world.matrix, "--output", "x"),
        ("data", "import", "table", f"test={case.world.folder / 'x.tsv'}", "--output", "x"),
        ("matrix", case.world.folder / "t.toml", "--output", "x"),
        ("train", case.world.collection, "--output", "x", "--set", "training.epochs=0"),
        ("score", "x", "--model", model, "--output", "y.run"),
        ("score", pools, "--model", "x", "--output", "y.run"),
        ("eval", "x", "--qrels", qrels),
        ("eval", run, "--qrels", "x"),
        ("data", "import", "table", "test=x", "--output", "y"),
        ("train", case.world.collection, "--preset", "x", "--output", "y"),
        ("report", "x", "--output", "y.html"),
    )
    if Path("x").is_fifo():  # as `cat`, reading a pipe waits for a writer
        commands = commands[:8]
    outputs = ("x", "x.csv", "x.png", "x.svg", "none", "folder")
    case.run(*case.random.choice(commands), outputs=outputs)
    after = os.lstat("x")
    is_same = (before.st_mode, before.st_ino) == (after.st_mode, after.st_ino)
    assert is_same or stat.S_ISDIR(before.st_mode), "replaced a special file"
