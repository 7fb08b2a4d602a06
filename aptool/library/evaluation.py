"""The public functions `evaluate` and `compare`."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import overload

from aptool.evaluation.compare import Comparison, Comparisons
from aptool.evaluation.evaluation import Evaluation
from aptool.evaluation.names import DEFAULT_MEASURES, measure_names
from aptool.evaluation.significance import CONFIDENCE, HIGHEST_CONFIDENCE, LOWEST_CONFIDENCE, PERMUTATIONS
from aptool.library.arguments import check_integer, check_list, check_number, check_text
from aptool.library.evaluated_runs import AnyGroups, compare_runs, evaluate_runs
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
) -> Evaluation:
    """Evaluate a run as ``trec_eval -c`` does.

    Args:
        qrels: judgements: ``Qrels``, a file, or ``{question id: {answer id: relevance}}``.
        run: ``Run``, a file, or ``{question id: {answer id: score}}``.
        measures: names of measures: MAP, MRR@10, P@1, R@10, nDCG@10, MAP(rel=2), RBP(p=.8), or the names of
            trec_eval (recip_rank, P_1, ndcg_cut_10) or ir_measures (AP, RR@10).
        level: the lowest relevance that counts as relevant (trec_eval ``-l``). It does not apply to nDCG, nor
            to measures with their own level.
        by: groups of questions: ``{question id: group}``, or a column of ``groups``. With pools also
            ``question-length``, ``answer-length`` or ``type``.
        groups: source of the column: a polars or pandas frame with question_id, a TSV, CSV or Parquet file,
            or ``Pools``.

    Returns:
        ``means`` by measure; ``per_question``, a polars frame with one column per measure; ``intervals()``,
        the confidence intervals of the means; ``groups`` by name; and the ids that only the run or only the
        qrels have: ``missing``, ``extra``, ``unjudged``.

    Raises:
        AptoolError: a measure is unknown (the message lists the nearest names), the run and the qrels share
            no question, the level is above every relevance, or no question is in a group.

    Example:
        >>> qrels = {"q1": {"a": 0, "b": 1}, "q2": {"c": 1}}
        >>> run = {"q1": {"a": 0.9, "b": 0.2}, "q2": {"c": 1.0}}
        >>> aptool.evaluate(qrels, run, ["MAP", "P@1"])
        Evaluation(MAP 0.7500, P@1 0.5000; 2 questions)
        >>> aptool.evaluate(qrels, run, ["MAP", "P@1"]).means["MAP"]
        0.75
    """
    parsed = _names(measures)
    check_integer("level", level, 1)
    judgements, loaded = as_qrels(qrels), as_run(run)
    evaluated = evaluate_runs(judgements, {loaded.tag: loaded}, parsed, level=level, by=by, groups=groups)
    return evaluated.evaluations[loaded.tag]


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
    """Test whether runs differ from a baseline, with paired tests over the questions.

    Args:
        baseline: the run to compare with: ``Run``, a file or a dict.
        systems: a run, or a list of runs.
        qrels: judgements: ``Qrels``, a file or a dict.
        measures: a measure, or a list of measures; names as in ``evaluate``.
        level: the lowest relevance that counts as relevant, as in ``evaluate``.
        on_common: whether to compare only the questions that every run ranks. Otherwise runs that lack
            different questions are an error.
        confidence: coverage of the intervals, 0.5 to 0.999.
        permutations: number of random permutations if the permutation test cannot be exact.
        seed: random seed of the intervals and the tests.

    Returns:
        A comparison for one run and one measure; otherwise a list, ordered by measure, which notebooks show
        as a table. A comparison has ``difference`` (mean of the system minus mean of the baseline),
        ``interval`` (BCa bootstrap), ``p`` (paired permutation test), ``permutation_holm`` (``p`` after
        Holm's correction for the list), ``effect`` (Cohen's d), ``detectable()`` and ``paired``.

    Raises:
        AptoolError: a measure is unknown or is not a mean over questions, or the runs lack different
            questions.

    Example:
        >>> qrels = {f"q{n}": {"a": 1, "b": 0} for n in range(6)}
        >>> right = {f"q{n}": {"a": 0.9, "b": 0.2} for n in range(6)}
        >>> wrong = {f"q{n}": {"a": 0.1, "b": 0.4} for n in range(6)}
        >>> comparison = aptool.compare(wrong, right, qrels, "P@1")
        >>> comparison.difference, comparison.p
        (1.0, 0.03125)
    """
    names = _names(measures)
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
    """The common names of the measures."""
    names = [measures] if isinstance(measures, str) else check_list("measures", measures, "names of measures")
    for number, name in enumerate(names):
        check_text("measures", name, f"item {number}", "the name of a measure (str)")
    return measure_names(names)


def _distinct(tags: list[str]) -> list[str]:
    """The tags; equal tags get the first number, from their position on, that makes them different."""
    names: list[str] = []
    for position, tag in enumerate(tags, 1):
        numbered = (f"{tag} ({number})" for number in count(position))
        taken = {*tags, *names}
        names.append(tag if tags.count(tag) == 1 else next(name for name in numbered if name not in taken))
    return names
