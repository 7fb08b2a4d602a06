"""Values of options, URLs, and texts in HTML pages."""

import functools
import shutil
from pathlib import Path
from typing import Any

from case import Case, surface
from world import World, command, small_options


@surface(8)
def options(case: Case) -> None:
    """Any option of the fast commands, with any value."""
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
    case.run(*arguments, outputs=tuple(names - {"x.run", "x.qrels"}))


def _commands() -> list[tuple[str, tuple[str, ...]]]:
    return [
        ("eval", ("eval", "x.run", "--qrels", "x.qrels")),
        ("compare", ("compare", "x.run", "x.run")),
        ("data check", ("data", "check", "x.run")),
        ("data import table", ("data", "import", "table", "test=x.run", "--output", "c")),
        ("score", ("score", "x.run", "--model", "none", "--output", "o.run")),
        ("train", ("train", "none", "--output", "m")),
        ("explain", ("explain", "--model", "none")),
        ("report", ("report", "none")),
        ("fuse", ("fuse", "x.run", "x.run", "--output", "f.run")),
        ("encode", ("encode", "x.run", "--model", "none", "--output", "s")),
        ("matrix", ("matrix", "none", "--output", "o")),
        ("data folds", ("data", "folds", "none", "--output", "f")),
        ("data stats", ("data", "stats", "none")),
        ("data import wikiqa", ("data", "import", "wikiqa", "test=x.run", "--output", "c")),
        ("data import trecqa", ("data", "import", "trecqa", "test=x.run", "--output", "c")),
        ("data import retrieval", ("data", "import", "retrieval", "none", "--output", "c")),
        ("vectors distill", ("vectors", "distill", "--model", "none", "--output", "v.bin")),
    ]


@functools.cache
def _options(name: str) -> list[str]:
    """Options of a command with a value, except options that write to any path or wait."""
    import click

    from aptool.cli.main import cli

    group: Any = cli
    context = click.Context(group)
    for word in name.split():
        group = group.get_command(context, word)
        if group is None:
            return []
    left_out = {"--cluster", "--output", "--html", "--per-question"}
    return [
        option
        for parameter in group.params
        if isinstance(parameter, click.Option) and not parameter.is_flag
        for option in parameter.opts
        if option not in left_out
    ]


@surface(3)
def urls(case: Case) -> None:
    """URLs that lead nowhere: none to another machine, and S3 without credentials is not asked.

    Other stores are left out: their client looks for credentials in the network.
    """
    url = _url(case)
    pools, qrels = case.world.collection / "test.pools.parquet", case.world.collection / "test.qrels"
    model = ("--model", case.world.model)
    chosen = case.random.choice(
        (
            ("score", url, *model, "--output", "x.run"),
            ("score", pools, *model, "--output", url),
            ("score", pools, "--model", url, "--output", "x.run"),
            ("score", pools, *model, "--answers", url, "--output", "x.run"),
            ("score", pools, *model, "--encoded", url, "--output", "x.run"),
            ("encode", url, *model, "--output", "s"),
            ("eval", url, "--qrels", qrels),
            ("eval", case.world.run, "--qrels", url),
            ("compare", case.world.run, url, "--qrels", qrels),
            ("fuse", case.world.run, url, "--output", "f.run"),
            ("data", "import", "table", f"test={url}", "--output", "c"),
            ("data", "import", "retrieval", url, "--run", "test=x.run", "--output", "c"),
            ("data", "check", url),
            ("data", "stats", url),
            ("matrix", url, "--output", "t"),
            ("report", url, "--output", "r.html"),
            ("train", url, *small_options(), "--output", "m"),
            ("train", case.world.collection, *small_options(), "--vectors", url, "--output", "m"),
            ("train", case.world.collection, "--start", url, "--output", "m"),
        )
    )
    begin = url.partition("/")[0]
    outputs = ("x.run", "x.run.parts", "x.run.ir-metadata.yml", "c", "m", "m.training", "s", "t")
    case.run(*chosen, outputs=(*outputs, begin, f"{begin}.parts", f"{begin}.ir-metadata.yml"))


def _url(case: Case) -> str:
    schemes = (
        "file",
        "memory",
        "local",
        "http",
        "nothing",
        "zip",
        "tar",
        "cached",
        "data",
        "::",
        "reference",
    )
    more = ("simplecache::memory", "simplecache::s3", "s3", "s3", "s3a", "S3", "x" * 300)
    places = ("", "/", "//", "127.0.0.1:1/x", "127.0.0.1:99999/", "[::1]:1/x", "/none/x.run", "*", "?", "%00")
    names = ("é", "b", "b/x.run", "b//x", "b/../x", "b/./x", "b/" + "x" * 2000, "B_/x", "b/*.parquet", "b/x?")
    slashes = case.random.choice(("//", "//", "/", ""))
    return f"{case.random.choice(schemes + more)}:{slashes}{case.random.choice(places + names)}"


@surface(3)
def texts(case: Case) -> None:
    """Arbitrary texts in a page: the page is well-formed, and contains no script of a text."""
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
