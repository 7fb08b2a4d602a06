"""Output of `aptool eval`: rows of a table, or JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from aptool.errors import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aptool.evaluation.evaluation import Evaluation, Group
    from aptool.evaluation.limits import Limits
    from aptool.evaluation.significance import Interval

# More measures than this are shown as rows, with the runs as columns; intervals are wide.
_MOST_COLUMNS = 8
_MOST_INTERVAL_COLUMNS = 4


class RunResult(NamedTuple):
    """The evaluation of a run, the confidence of its intervals, and the limits of its candidates."""

    tag: str
    evaluation: Evaluation
    confidence: float | None
    limits: Limits | None

    def intervals(self, figures: Evaluation | Group) -> Mapping[str, Interval]:
        """The intervals of the evaluation or of one of its groups; empty if none were asked for."""
        return {} if self.confidence is None else figures.intervals(self.confidence)


def limits_line(run: str, limits: Limits) -> str:
    """The recall of a run's candidates, in a sentence."""
    without = f"{limits.without} of {limits.questions} questions have no relevant one among them"
    return f"{run}: the candidates have {100 * limits.recall:.1f}% of the relevant answers; {without}"


def as_json(facts: dict[str, Any], results: dict[str, RunResult]) -> str:
    """The document; ``facts`` are what holds for all runs."""
    import json

    runs = [
        {
            "run": run,
            "tag": result.tag,
            "questions": result.evaluation.per_question.height,
            "measures": result.evaluation.means,
            **({"intervals": result.intervals(result.evaluation)} if result.confidence is not None else {}),
            **({"limits": _limits_json(result)} if result.limits is not None else {}),
            **({"groups": _groups_json(result)} if result.evaluation.groups else {}),
            "missing": list(result.evaluation.missing),
            "extra": list(result.evaluation.extra),
            "unjudged": result.evaluation.unjudged.height,
        }
        for run, result in results.items()
    ]
    return json.dumps({**facts, "runs": runs}, indent=2, ensure_ascii=False)


def _limits_json(result: RunResult) -> dict[str, Any]:
    assert result.limits is not None
    best = {name: result.limits.best[name] for name in result.evaluation.means}
    return {**result.limits._asdict(), "best": best}


def _groups_json(result: RunResult) -> list[dict[str, Any]]:
    groups = result.evaluation.groups.values()
    if result.confidence is None:
        return [group.to_dict() for group in groups]
    return [{**group.to_dict(), "intervals": result.intervals(group)} for group in groups]


def rows_of(names: tuple[str, ...], results: dict[str, RunResult]) -> list[list[str]]:
    """The cells of the table, headings first."""
    rows = [["run", "questions", *names]]
    for run, result in results.items():
        evaluation, intervals = result.evaluation, result.intervals(result.evaluation)
        values = [_cell(name, evaluation.means[name], intervals.get(name)) for name in names]
        rows.append([run, str(evaluation.per_question.height), *values])
        if result.limits is not None:
            best = [_cell(name, result.limits.best[name], None) for name in names]
            rows.append([f"{run}, best order", "", *best])
        for group in evaluation.groups.values():
            intervals = result.intervals(group)
            means = [_cell(name, group.means[name], intervals.get(name)) for name in names]
            few = " (few)" if group.is_small else ""
            rows.append([f"  {printable(group.name)}{few}", str(group.questions), *means])
    with_intervals = any(result.confidence is not None for result in results.values())
    if len(names) > (_MOST_INTERVAL_COLUMNS if with_intervals else _MOST_COLUMNS):
        rows = [list(column) for column in zip(*rows, strict=True)]
        rows[0][0] = "measure"
    return rows


def _cell(name: str, value: float, interval: Interval | None) -> str:
    from aptool.evaluation.names import is_sum

    digits = 0 if is_sum(name) else 4
    mean = f"{value:.{digits}f}"
    return mean if interval is None else f"{mean} [{interval.low:.{digits}f}, {interval.high:.{digits}f}]"
