"""The order of the questions in a run changes no figure: runs have the order of their pools."""

import random

import pytest

import aptool as library

ANSWERS = 6


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two runs of 40 questions with qrels, and the same lines with shuffled questions in ``other``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    generator = random.Random(1)
    names = [f"q{number}" for number in range(40)]
    labels = [f"{name} 0 a{answer} {int(answer == 2)}\n" for name in names for answer in range(ANSWERS)]
    (tmp_path / "x.qrels").write_text("".join(labels))
    for run in ("one", "two"):
        scores = {name: [generator.random() for _ in range(ANSWERS)] for name in names}
        for path in (tmp_path / f"{run}.run", tmp_path / "other" / f"{run}.run"):
            lines = (
                f"{name} Q0 a{answer} 1 {score!r} {run}\n"
                for name in generator.sample(names, len(names))
                for answer, score in enumerate(scores[name])
            )
            path.write_text("".join(lines))
    return tmp_path


def printed(aptool, *arguments):
    finished = aptool(*arguments)
    assert finished.code == 0, finished.err
    return [line.replace("other/", "").split() for line in finished.out]


@pytest.mark.parametrize(
    "command",
    [
        ["eval", "--intervals", "--json"],
        ["eval", "--per-question", "each.csv"],
        ["compare", "--format", "json"],
    ],
)
def test_figures_do_not_depend_on_the_order_of_questions(aptool, folder, command):
    name, *options = command
    outputs = []
    for runs in (("one.run", "two.run"), ("other/one.run", "other/two.run")):
        lines = printed(aptool, name, *runs, "--qrels", "x.qrels", *options)
        each = folder / "each.csv"
        outputs.append((lines, each.read_text().replace("other/", "") if each.exists() else ""))
        each.unlink(missing_ok=True)

    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("options", [[], ["--train"]])
def test_a_fused_run_has_the_lines_of_any_order_and_the_order_of_the_first_run(aptool, folder, options):
    if options == ["--train"]:
        pytest.importorskip("sklearn", reason="the extra `fusion` is not installed")
        options = ["--train", "x.qrels"]
    for number, runs in enumerate((("one.run", "two.run"), ("other/one.run", "other/two.run"))):
        printed(aptool, "fuse", *runs, "--output", f"{number}.run", *options)
    lines = [(folder / f"{number}.run").read_text().splitlines() for number in range(2)]

    assert sorted(lines[0]) == sorted(lines[1])
    for fused, first in zip(lines, ("one.run", "other/one.run"), strict=True):
        questions = [line.split()[0] for line in (folder / first).read_text().splitlines()]
        assert [line.split()[0] for line in fused] == questions
    assert library.Run.load("0.run").to_dict() == library.Run.load("1.run").to_dict()
