"""Evaluation and comparison of runs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import overload

from aptool.evaluation.compare import Comparison, Comparisons, check_comparable
from aptool.evaluation.evaluation import Evaluation
from aptool.evaluation.names import DEFAULT_MEASURES, NAMINGS, Naming, measure_names
from aptool.evaluation.significance import CONFIDENCE, HIGHEST_CONFIDENCE, LOWEST_CONFIDENCE, PERMUTATIONS
from aptool.library.arguments import check_choice, check_integer, check_list, check_number, check_text
from aptool.library.evaluated_runs import compare_runs, evaluate_runs
from aptool.library.groups import AnyGroups
from aptool.library.qrels import AnyQrels, as_qrels
from aptool.library.run import AnyRun, as_run


def evaluate(
    qrels: AnyQrels,
    run: AnyRun,
    measures: str | Iterable[str] = DEFAULT_MEASURES,
    *,
    level: int = 1,
    by: Mapping[str, object] | str | None = None,
    groups: AnyGroups | None = None,
    names: Naming = "common",
) -> Evaluation:
    """Evaluate a run as ``trec_eval -c`` does.

    Args:
        qrels: judgements: ``Qrels``, a file, or ``{question id: {answer id: relevance}}``.
        run: ``Run``, a file, or ``{question id: {answer id: score}}``.
        measures: MAP, MRR@10, P@1, R@10, nDCG@10, MAP(rel=2), RBP(p=.8); trec_eval's names (recip_rank, P_1,
            ndcg_cut_10) and those of ir_measures (AP, RR@10) are accepted too.
        level: the lowest relevance that counts as relevant (trec_eval ``-l``), for measures without one of
            their own; nDCG takes every relevance as a gain.
        by: groups of questions: ``{question id: group}``, or the name of a column of ``groups``; with pools
            also ``question-length``, ``answer-length`` or ``type``, as ``aptool eval --by``.
        groups: a polars or pandas frame with question_id and the column, a TSV, CSV or Parquet file, or
            ``Pools``.
        names: names of the measures in the result: ``common`` (MAP, P@1), ``trec_eval`` (map, P_1) or
            ``ir_measures`` (AP, P@1).

    Returns:
        ``means`` by measure (any name of a measure finds its value), ``per_question`` (a polars frame with a
        column per measure), ``intervals()``, ``groups`` by name, and the ids that the run and the qrels do
        not share: ``missing``, ``extra``, ``unjudged``.

    Raises:
        AptoolError: a measure is unknown (the nearest names are listed), the run and the qrels have no
            question in common, the level is above every relevance, or no question is in a group.
    """
    parsed = _names(measures)
    check_integer("level", level, 1)
    check_choice("names", names, NAMINGS)
    judgements, loaded = as_qrels(qrels), as_run(run)
    evaluated = evaluate_runs(judgements, {loaded.tag: loaded}, parsed, level=level, by=by, groups=groups)
    return evaluated.evaluations[loaded.tag].named(names)


@overload
def compare(
    baseline: AnyRun,
    systems: AnyRun,
    qrels: AnyQrels,
    measures: str = ...,
    *,
    level: int = ...,
    on_common: bool = ...,
    confidence: float = ...,
    permutations: int = ...,
    seed: int = ...,
) -> Comparison: ...


@overload
def compare(
    baseline: AnyRun,
    systems: AnyRun | Sequence[AnyRun],
    qrels: AnyQrels,
    measures: str | Iterable[str] = ...,
    *,
    level: int = ...,
    on_common: bool = ...,
    confidence: float = ...,
    permutations: int = ...,
    seed: int = ...,
) -> Comparison | list[Comparison]: ...


def compare(
    baseline: AnyRun,
    systems: AnyRun | Sequence[AnyRun],
    qrels: AnyQrels,
    measures: str | Iterable[str] = "MAP",
    *,
    level: int = 1,
    on_common: bool = False,
    confidence: float = CONFIDENCE,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> Comparison | list[Comparison]:
    """Tests whether runs differ from a baseline, question by question.

    Args:
        baseline: a run.
        systems: a run, or a list of runs.
        qrels: judgements.
        measures: a measure, or a list of measures; names as in ``evaluate``.
        level: the lowest relevance that counts as relevant, as in ``evaluate``.
        on_common: whether to compare only the questions that every run ranks; False refuses runs that lack
            different questions.
        confidence: of the intervals.
        permutations: assignments of signs drawn where the permutation test cannot count them all.
        seed: random seed of the intervals and the tests.

    Returns:
        For one run and one measure a comparison; otherwise, as for a name that stands for several measures
        (``P``), a list, measure by measure. A comparison has ``p``
        (of the paired permutation test), ``difference`` (mean, system less baseline), ``interval`` (BCa
        bootstrap), ``effect`` (Cohen's d), ``permutation_holm`` (p corrected for all comparisons of the
        list), and all figures in ``paired``. A list shows as a table in notebooks.

    Raises:
        AptoolError: a measure is unknown or is no mean over questions, or the runs lack different questions.
    """
    names = _names(measures)
    check_comparable(names)
    check_integer("level", level, 1)
    check_number("confidence", confidence, LOWEST_CONFIDENCE, HIGHEST_CONFIDENCE)
    check_integer("permutations", permutations, 1)
    check_integer("seed", seed, 0)
    several = isinstance(systems, Sequence) and not isinstance(systems, str)
    runs = [as_run(baseline), *map(as_run, check_list("systems", systems, "runs") if several else [systems])]
    compared = compare_runs(
        as_qrels(qrels),
        dict(zip(_distinct([run.tag for run in runs]), runs, strict=True)),
        names,
        level=level,
        on_common=on_common,
        confidence=confidence,
        permutations=permutations,
        seed=seed,
    )
    comparisons = compared.comparisons
    as_list = several or not isinstance(measures, str) or len(names) > 1
    return Comparisons(comparisons) if as_list else comparisons[0]


def _names(measures: object) -> tuple[str, ...]:
    """The name of each measure in results."""
    given = [measures] if isinstance(measures, str) else check_list("measures", measures, "names of measures")
    for number, name in enumerate(given):
        check_text("measures", name, f"item {number}", "the name of a measure (str)")
    return measure_names(given)


def _distinct(tags: list[str]) -> list[str]:
    """The tags, numbered where several runs have the same tag."""
    return [f"{tag} ({n + 1})" if tags.count(tag) > 1 else tag for n, tag in enumerate(tags)]
