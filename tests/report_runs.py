"""A folder of runs for reports, on a small collection with markup in texts and ids."""

import json
import sys
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from click.testing import CliRunner
from tiny import labelled_pools, options

from aptool.cli.main import cli
from aptool.data.writing import LabelledPool, write_collection

QUESTIONS = 60
SCRIPT = "<script>alert(1)</script> & \"double\" 'single' quotes"
RIGHT_TO_LEFT = "איפה הנהר ליד הגשר?"
EMOJI = "😀 where is the 👩‍👩‍👧 river"
BREAKS = "</script><!-- \u2028 \u2029 ]]> {{ 7 * 7 }} {% raw %}"
NASTY = {
    "nasty-script": SCRIPT,
    "nasty-hebrew": RIGHT_TO_LEFT,
    "nasty-emoji": EMOJI,
    "nasty-breaks": BREAKS,
    'nasty"><img/src=x>': "an id with a mark",
}
NAME = "wikiqa"
SYSTEMS = ("random", "bm25", "qa-cnn", "ap-cnn", "ap-cnn+bm25")
TRAINED = ("qa-cnn", "ap-cnn")

TABLE = """
[collections.{name}]
path = {path}
split = "test"
[systems.random]
baseline = "random"
[systems.bm25]
baseline = "bm25"
[systems.qa-cnn]
preset = "qa-cnn"
set = {qa_cnn}
[systems.ap-cnn]
preset = "ap-cnn"
set = {ap_cnn}
[systems."ap-cnn+bm25"]
fuse = ["ap-cnn", "bm25"]
[[rows]]
collection = "{name}"
systems = {systems}
seeds = [0, 1]
"""


class ReportRuns(NamedTuple):
    runs: Path
    collection: Path


def nasty_pools() -> list[LabelledPool]:
    """Pools with texts and ids that contain markup, scripts and unusual characters."""
    texts = [*NASTY.values(), "the river near the bridge is silver"]
    pools = []
    for number, (question_id, text) in enumerate(NASTY.items()):
        names = [f"<b>{number}-{index}</b>" for index in range(len(texts))]
        pools.append(LabelledPool(question_id, text, names, texts, {names[number]: 1, "not-in-the-pool": 1}))
    return pools


def make_runs(folder: Path) -> ReportRuns:
    """Run `aptool matrix` with every system and two seeds."""
    collection = folder / "collection"
    splits = {
        "train": labelled_pools("train", 40),
        "dev": labelled_pools("dev", 10),
        "test": [*nasty_pools(), *labelled_pools("test", QUESTIONS - len(NASTY))],
    }
    write_collection(collection, splits, name=NAME, source="made for tests")
    sets = {name: json.dumps(list(options(name, "training.epochs=3"))) for name in TRAINED}
    table = TABLE.format(
        name=NAME,
        path=json.dumps(str(collection)),
        systems=json.dumps(SYSTEMS),
        qa_cnn=sets["qa-cnn"],
        ap_cnn=sets["ap-cnn"],
    )
    (folder / "table.toml").write_text(table, encoding="utf-8")
    command = ["matrix", str(folder / "table.toml"), "--output", str(folder / "runs")]
    CliRunner().invoke(cli, command, catch_exceptions=False, standalone_mode=False)
    return ReportRuns(folder / "runs", collection)


def make_report(runs: ReportRuns, page: Path, *more: str) -> Path:
    command = ["report", str(runs.runs), "--output", str(page), *more]
    with patch.object(sys, "argv", ["aptool", "report", str(runs.runs)]):  # the page shows the command
        CliRunner().invoke(cli, command, catch_exceptions=False, standalone_mode=False)
    return page


def rankings(run: Path) -> dict[str, list[str]]:
    """Answer ids by question, in the order of a run file."""
    by_question: dict[str, list[str]] = {}
    for line in run.read_text(encoding="utf-8").splitlines():
        question, _, answer, *_ = line.split()
        by_question.setdefault(question, []).append(answer)
    return by_question


def relevant_answers(collection: Path) -> dict[str, set[str]]:
    by_question: dict[str, set[str]] = {}
    for line in (collection / "test.qrels").read_text(encoding="utf-8").splitlines():
        question, _, answer, relevance = line.split()
        if int(relevance) > 0:
            by_question.setdefault(question, set()).add(answer)
    return by_question
