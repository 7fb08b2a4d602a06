"""How comparisons of runs are shown: a table and sentences for people, JSON for programs."""

from __future__ import annotations

import math
import shutil
import sys
from typing import TYPE_CHECKING, Any

import click

from aptool.cli.tables import print_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aptool.evaluation.compare import Comparison, Deltas, Move
    from aptool.evaluation.texts import Texts

# Columns of a line where stdout is not a terminal.
_WIDTH = 110


def print_comparisons(
    baseline: str, comparisons: list[Comparison], confidence: float, names: Mapping[str, str]
) -> None:
    """The means and differences, the p-values, and a sentence for each comparison."""
    means = [["", "mean", "difference", f"{100 * confidence:g}% interval", "wins", "ties", "losses", "d"]]
    tests = [["p-values", "permutation", "Holm", "t-test", "Holm"]]
    measure = ""
    for one in comparisons:
        paired = one.paired
        if measure != one.measure:
            measure = one.measure
            means.append([measure, *[""] * 7])
            means.append([f"  {names[baseline]}", f"{paired.baseline:.4f}", *[""] * 6])
            tests.append([measure, *[""] * 4])
        means.append(
            [
                f"  {names[one.system]}",
                f"{paired.system:.4f}",
                f"{paired.difference:+.4f}",
                f"[{paired.interval.low:.4f}, {paired.interval.high:.4f}]",
                *(str(count) for count in (paired.wins, paired.ties, paired.losses)),
                f"{paired.effect:+.2f}",
            ]
        )
        p_values = (paired.permutation.p, one.permutation_holm, paired.t_test.p, one.t_holm)
        tests.append([f"  {names[one.system]}", *map(_p, p_values)])
    print_table(means)
    click.echo()
    print_table(tests)
    click.echo()
    count = len(comparisons)
    click.echo(
        f"{comparisons[0].paired.questions} questions; p of the permutation test, corrected for "
        f"{count} comparison{'s'[: count > 1]}:"
    )
    for one in comparisons:
        click.echo(_verdict(names[baseline], names[one.system], one, confidence))


def _verdict(baseline: str, system: str, one: Comparison, confidence: float) -> str:
    shown = _p(one.permutation_holm)
    p = f"p {shown}" if shown.startswith("<") else f"p = {shown}"
    if not _significant(one, confidence):
        return f"{one.measure}: {system} and {baseline} do not differ significantly ({p})"
    way = "better" if one.paired.difference > 0 else "worse"
    difference = abs(one.paired.difference)
    return f"{one.measure}: {system} is significantly {way} than {baseline}, by {difference:.4f} ({p})"


def _significant(one: Comparison, confidence: float) -> bool:
    return one.permutation_holm <= 1 - confidence


def _p(value: float) -> str:
    return f"{value:.4f}" if value >= 0.0001 else "<0.0001"


def print_moved(baseline: str, moved: Deltas, texts: Texts | None, names: Mapping[str, str]) -> None:
    """The questions that gained and lost most, two or three lines each."""
    groups = (("gained", moved.better, moved.gained), ("lost", moved.worse, moved.lost))
    for what, total, shown in groups:
        if not shown:
            continue
        number = f"{len(shown)} of {total}" if len(shown) < total else f"{total}"
        click.echo()
        click.echo(
            f"{moved.measure} {what} most by {names[moved.system]} against {names[baseline]}: {number}"
        )
        for move in shown:
            _print_move(names[baseline], names[moved.system], move, texts)


def _print_move(baseline: str, run: str, move: Move, texts: Texts | None) -> None:
    question = texts.questions.get(move.question_id, "") if texts else ""
    lines = [f"  {move.question_id}  {move.before:.4f} → {move.after:.4f}  {question}"]
    if move.right is None:
        lines.append("      no right answer is ranked")
    else:
        ranks = f"rank {_rank(move.right_before)} → {_rank(move.right_after)}"
        lines.append(f"      right, {ranks}: {_answer(move, move.right, texts)}")
    gained = move.after > move.before
    wrong = move.first_before if gained else move.first_after
    if wrong is None:
        lines.append(f"      not in {baseline if gained else run}")
    elif wrong != move.right:
        lines.append(f"      first in {baseline if gained else run}: {_answer(move, wrong, texts)}")
    width = shutil.get_terminal_size((_WIDTH, 0)).columns if sys.stdout.isatty() else _WIDTH
    for line in lines:
        click.echo(_one_line(line, width))


def _rank(rank: int | None) -> str:
    return "none" if rank is None else str(rank)


def _answer(move: Move, answer: str, texts: Texts | None) -> str:
    text = texts.answers.get((move.question_id, answer), "") if texts else ""
    return f"{answer}  {text}" if text else answer


def _one_line(line: str, width: int) -> str:
    """The line cut to a width; what a terminal could take for a command becomes a space."""
    indent = len(line) - len(line.lstrip(" "))
    shown = "".join(character if character.isprintable() else " " for character in line)
    shown = " " * indent + shown.strip()
    return shown if len(shown) <= width else shown[: width - 1] + "…"


def as_json(
    facts: dict[str, Any],
    baseline: str,
    tags: dict[str, str],
    comparisons: list[Comparison],
    moved: list[Deltas],
    texts: Texts | None,
) -> str:
    """Everything, in full precision.

    Args:
        facts: of the command line; with the confidence.
        baseline: the run that the others are compared with.
        tags: of each run.
        comparisons: all of them.
        moved: the questions that moved most, for each run.
        texts: of these questions, if there are any.
    """
    import json

    document = {
        **facts,
        "questions": comparisons[0].paired.questions,
        "baseline": {
            "run": baseline,
            "tag": tags[baseline],
            "measures": {one.measure: one.paired.baseline for one in comparisons},
        },
        "comparisons": [_comparison_json(one, tags, facts["confidence"]) for one in comparisons],
        "moved": [
            {
                "run": one.system,
                "measure": one.measure,
                "better": one.better,
                "worse": one.worse,
                "gained": [_move_json(move, texts) for move in one.gained],
                "lost": [_move_json(move, texts) for move in one.lost],
            }
            for one in moved
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)


def _comparison_json(one: Comparison, tags: dict[str, str], confidence: float) -> dict[str, Any]:
    """One comparison; what is not finite, as the effect of a constant difference, is null."""
    paired = one.paired
    return {
        "run": one.system,
        "tag": tags[one.system],
        "measure": one.measure,
        "mean": paired.system,
        "difference": paired.difference,
        "interval": paired.interval,
        "wins": paired.wins,
        "ties": paired.ties,
        "losses": paired.losses,
        "effect": paired.effect if math.isfinite(paired.effect) else None,
        "permutation": {**paired.permutation._asdict(), "holm": one.permutation_holm},
        "t_test": {
            "t": paired.t_test.t if math.isfinite(paired.t_test.t) else None,
            "degrees": paired.t_test.degrees,
            "p": paired.t_test.p,
            "holm": one.t_holm,
        },
        "significant": _significant(one, confidence),
    }


def _move_json(move: Move, texts: Texts | None) -> dict[str, Any]:
    names = ("right", "first_before", "first_after")
    answers = {name: getattr(move, name) for name in names}
    known = texts.answers if texts else {}
    return {
        **move._asdict(),
        "question": texts.questions.get(move.question_id) if texts else None,
        **{f"{name}_text": known.get((move.question_id, answer)) for name, answer in answers.items()},
    }
