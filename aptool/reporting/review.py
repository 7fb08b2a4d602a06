"""Questions a reviewer asks of a table of results, each with its answer in plain words and a table.

One home for the words: `aptool eval` and `aptool compare` print the answers, the report shows them.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from aptool.datasets.leaks import Leak
from aptool.evaluation.agreement import PERSISTENCE, Agreement, mean_agreement
from aptool.evaluation.compare import Comparison
from aptool.evaluation.evaluation import Group
from aptool.evaluation.gap import Gap
from aptool.evaluation.limits import Limits
from aptool.evaluation.power import POWER, detectable_effect
from aptool.evaluation.significance import CONFIDENCE, Interval
from aptool.reporting.breakdown import Kind

_KINDS: dict[Kind, str] = {
    "question-length": "by length of the question",
    "answer-length": "by length of the shortest relevant answer",
    "type": "by question word",
}


class Answer(NamedTuple):
    """The answer to a question.

    Attributes:
        question: the question.
        sentences: the answer.
        rows: its table, column titles first; empty if it has none.
    """

    question: str
    sentences: list[str]
    rows: list[list[str]]


def power_answer(
    questions: int,
    comparisons: Sequence[Comparison] = (),
    names: Mapping[str, str] | None = None,
    confidence: float = CONFIDENCE,
) -> Answer:
    """How large a difference the questions could show.

    Args:
        questions: how many there are.
        comparisons: with the baseline; without them the answer is in standard deviations.
        names: what systems are called; None is as in the comparisons.
        confidence: 1 minus the level of the tests.
    """
    asked = "How large a difference could these questions show?"
    if questions < 2:
        return Answer(asked, ["None: a test needs two questions or more."], [])
    effect = detectable_effect(questions, alpha=1 - confidence)
    sentences = [
        f"A paired t-test of {questions:,} questions finds a true difference of {effect:.2f} standard "
        f"deviations of the questions' differences with probability {POWER:g} (level {1 - confidence:.3g})."
    ]
    rows = [["", "measure", "difference", "interval", "could be found"]]
    for one in comparisons:
        detectable = one.detectable(confidence)
        rows.append(
            [
                (names or {}).get(one.system, one.system),
                one.measure,
                f"{one.difference:+.4f}",
                _interval(one.interval),
                "none" if detectable is None else f"{detectable:.4f}",
            ]
        )
    if comparisons:
        sentences.append("A difference that is smaller than what could be found may well be missed.")
    return Answer(asked, sentences, rows if comparisons else [])


def limits_answer(limits: Mapping[str, Limits], measures: Sequence[str]) -> Answer:
    """Whether the first stage is the limit.

    Args:
        limits: of each run by its name.
        measures: to show of the best order.
    """
    titles = [f"highest {measure}" for measure in measures]
    rows = [["candidates of", "recall", *titles, "questions without a relevant candidate"]]
    same: dict[str, list[str]] = {}
    for name, one in limits.items():
        same.setdefault(repr(one), []).append(name)
    for names in same.values():
        one = limits[names[0]]
        best = [f"{one.best[measure]:.4f}" for measure in measures]
        who = "all" if len(names) == len(limits) > 1 else ", ".join(names)
        rows.append([who, f"{one.recall:.4f}", *best, f"{one.without:,} of {one.questions:,}"])
    worst = min(limits.values(), key=lambda one: one.found / max(one.relevant, 1))
    missed = worst.relevant - worst.found
    sentence = (
        "No: every relevant answer is a candidate."
        if not missed
        else f"In part: {missed:,} of {worst.relevant:,} relevant answers are not among the candidates, "
        "where no reranker finds them."
    )
    highest = "The highest figures are those of the candidates in their best order."
    unanswerable = "A question without any relevant answer counts 0."
    return Answer("Is the first stage the limit?", [sentence, highest, unanswerable], rows)


def groups_answer(kind: Kind, groups: Mapping[str, Mapping[str, Group]], measure: str) -> Answer:
    """A measure by kind of question.

    Args:
        kind: what the questions are grouped by.
        groups: of each run by its name; the same groups of all.
        measure: the measure.
    """
    rows = [[_KINDS[kind].removeprefix("by "), "questions", *groups]]
    for same in zip(*(figures.values() for figures in groups.values()), strict=True):
        means = [f"{group.means[measure]:.4f}" for group in same]
        rows.append([same[0].name, f"{same[0].questions:,}", *means])
    few = "A group of a few questions says little: it shows where to look, not what is significant."
    return Answer(f"For which questions? {measure} {_KINDS[kind]}", [few], rows)


def agreement_answer(
    pairs: Mapping[str, Sequence[Agreement]],
    measure: str,
    *,
    what: str = "runs",
    asked: str = "Do the runs agree?",
) -> Answer:
    """Whether runs agree.

    Args:
        pairs: by name the agreement of one pair, or of every two seeds of a system.
        measure: the measure whose figures are correlated.
        what: column title of the names.
        asked: the question.
    """
    titles = ["Kendall's tau", "rank-biased overlap", f"correlation of {measure}"]
    rows = [[what, "pairs", *titles]]
    for name, found in pairs.items():
        mean = mean_agreement(found)
        rows.append([name, str(len(found)), *("none" if one is None else f"{one:.3f}" for one in mean)])
    sentences = [
        "Kendall's tau is 1 where the candidates are in the same order, about 0 for unrelated orders, and -1 "
        "for opposite ones.",
        f"Rank-biased overlap (p = {PERSISTENCE:g}) is the share of candidates in common from the top down: "
        "1 for the same ranking; the first ten ranks have 86% of its weight. It is high in small pools.",
        "The correlation is Pearson's, over the questions: low where a similar mean comes from other ones.",
    ]
    return Answer(asked, sentences, rows)


def gap_answer(gaps: Mapping[str, Mapping[str, Gap]], split: str, *, dev_sampled: bool = True) -> Answer:
    """How far figures on a split are from those on dev.

    Args:
        gaps: by run and measure.
        split: the split.
        dev_sampled: whether intervals are of the questions of both splits, not of this one alone.
    """
    rows = [["", "measure", "dev", split, "difference", "interval"]]
    for name, by_measure in gaps.items():
        for measure, gap in by_measure.items():
            figures = [f"{gap.dev:.4f}", f"{gap.test:.4f}", f"{gap.difference:+.4f}"]
            rows.append([name, measure, *figures, _interval(gap.interval)])
    sampled = "both splits" if dev_sampled else f"{split} alone"
    sentences = [
        f"The interval is of the questions of {sampled}: where it includes 0, the gap may be chance.",
        "Figures on dev are too high where they chose the epoch or the recipe.",
    ]
    return Answer(f"How far is {split} from dev?", sentences, rows)


def leaks_answer(leaks: Sequence[Leak], split: str) -> Answer:
    """Whether questions or answers of a split stand in an earlier one.

    Args:
        leaks: from `find_leaks`, of this split.
        split: the split.
    """
    asked = f"Does {split} leak from what was trained on?"
    if not leaks:
        return Answer(asked, [f"There is no split before {split} in the collection."], [])
    rows = [["near copies in", "questions", "word for word", "relevant answers", "word for word"]]
    for one in leaks:
        near = [f"{one.near_questions:,} of {one.questions:,}", f"{one.same_questions:,}"]
        rows.append([one.earlier, *near, f"{one.near_answers:,} of {one.answers:,}", f"{one.same_answers:,}"])
    copies = "Near copies share four fifths of their distinct words or more (Jaccard similarity .8)."
    examples = [
        f"{own} of {split} and {other} of {one.earlier}" for one in leaks for own, other in one.examples
    ]
    shown = [f"Questions such as {', '.join(examples[:3])}."] if examples else []
    return Answer(asked, [copies, *shown], rows)


def _interval(interval: Interval | None) -> str:
    return "none" if interval is None else f"[{interval.low:+.4f}, {interval.high:+.4f}]"
