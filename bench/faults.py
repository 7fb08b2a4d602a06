"""Twelve faults of runs and qrels, and what six tools print for each: `python -m bench.faults`.

Every fault is a handful of lines whose AP and RR can be computed by hand under trec_eval's rules: ties go by
document id, a question without a ranking counts 0, what is not judged is not relevant. A tool may refuse to
give a figure; one that prints another figure without a word is silent, and inflated where it is higher.

The extra `faults` installs the other tools. The column of a tool that is not installed is empty.
"""

import contextlib
import io
import math
import warnings
from collections.abc import Callable
from importlib import metadata
from typing import Any, NamedTuple

from aptool.version import __version__
from bench.common import benchmark_parser

Line = tuple[str, str, float]  # question, document, score
Qrels = dict[str, dict[str, int]]
Figures = tuple[float, float]  # AP, RR

NAN = math.nan

JUDGED: Qrels = {question: {"a": 1, "b": 0, "c": 0} for question in ("q1", "q2", "q3", "q4")}


class Fault(NamedTuple):
    """Qrels and a run with one fault.

    Attributes:
        name: of the fault.
        qrels: relevance by question and document.
        lines: of the run file, in its order.
        truth: AP and RR by trec_eval's rules; None where only a refusal is right.
        empty: questions that the run names without any candidate.
    """

    name: str
    qrels: Qrels
    lines: list[Line]
    truth: Figures | None
    empty: tuple[str, ...] = ()


def ranked(question: str, documents: str) -> list[Line]:
    """Lines of a question whose documents have the scores 1, 1/2, 1/3 and so on."""
    return [(question, document, 1 / rank) for rank, document in enumerate(documents, 1)]


# Relevant (a) first, second, third and first: RR is 1, 1/2, 1/3 and 1.
PLAIN = ranked("q1", "abc") + ranked("q2", "bac") + ranked("q3", "bca") + ranked("q4", "abc")
MEAN = (1 + 1 / 2 + 1 / 3 + 1) / 4

FAULTS = [
    # a ties with b for the first place of q1, and b comes first by its id: RR falls from 1 to 1/2.
    Fault(
        "ties",
        JUDGED,
        [("q1", "a", 0.5), ("q1", "b", 0.5), ("q1", "c", 0.1), *PLAIN[3:]],
        (MEAN - 1 / 8, MEAN - 1 / 8),
    ),
    # c, b, a in every question: a is third.
    Fault("constant scorer", JUDGED, [(q, d, 0.5) for q in JUDGED for d in "abc"], (1 / 3, 1 / 3)),
    Fault("missing question", JUDGED, PLAIN[:9], ((1 + 1 / 2 + 1 / 3) / 4,) * 2),
    Fault("extra question", JUDGED, [*PLAIN, *ranked("q9", "abc")], (MEAN, MEAN)),
    Fault("duplicate candidate", JUDGED, [*PLAIN, ("q3", "a", 2.0)], None),
    Fault("NaN", JUDGED, [("q1", "a", NAN), *PLAIN[1:]], None),
    # An unjudged d goes before a in q1.
    Fault("unjudged", JUDGED, [("q1", "d", 2.0), *PLAIN], (MEAN - 1 / 8, MEAN - 1 / 8)),
    # The second relevant document of q1 was never retrieved: AP of q1 is 1/2, its RR stays 1.
    Fault("missed by the first stage", {**JUDGED, "q1": {"a": 1, "m": 1}}, PLAIN, (MEAN - 1 / 8, MEAN)),
    # Grades count as relevant from 1 on: q2 has b (1) and a (2) first and second.
    Fault(
        "graded labels",
        {**JUDGED, "q2": {"a": 2, "b": 1, "c": 0}},
        PLAIN,
        (MEAN + 1 / 8, MEAN + 1 / 8),
    ),
    # b of q2 is junk (-1): not relevant.
    Fault("negative label", {**JUDGED, "q2": {"a": 1, "b": -1, "c": 0}}, PLAIN, (MEAN, MEAN)),
    Fault("empty pool", JUDGED, PLAIN[:9], ((1 + 1 / 2 + 1 / 3) / 4,) * 2, empty=("q4",)),
    Fault("order of lines", JUDGED, PLAIN[::-1], (MEAN, MEAN)),
]


def nested(fault: Fault) -> dict[str, dict[str, float]]:
    """The run as question -> document -> score, as most tools take it; of two lines the last one stays."""
    run: dict[str, dict[str, float]] = {question: {} for question in fault.empty}
    for question, document, score in fault.lines:
        run.setdefault(question, {})[document] = score
    return run


def by_aptool(fault: Fault) -> Figures:
    """Run and qrels as files, read and evaluated as `aptool eval` does."""
    import tempfile
    from pathlib import Path

    from aptool.evaluation.measures import evaluate
    from aptool.formats.trec import read_qrels, read_run

    with tempfile.TemporaryDirectory() as folder:
        run, qrels = Path(folder) / "x.run", Path(folder) / "x.qrels"
        run.write_text("".join(f"{q} Q0 {d} 0 {score!r} x\n" for q, d, score in fault.lines))
        qrels.write_text(
            "".join(
                f"{q} 0 {d} {label}\n" for q, judged in fault.qrels.items() for d, label in judged.items()
            )
        )
        means = evaluate(read_qrels(qrels), read_run(run).frame, ["map", "recip_rank"]).means
    return means["map"], means["recip_rank"]


def by_pytrec_eval(fault: Fault) -> Figures:
    """`RelevanceEvaluator` and the mean of what it returns."""
    import pytrec_eval

    evaluator = pytrec_eval.RelevanceEvaluator(fault.qrels, {"map", "recip_rank"})
    values = evaluator.evaluate(nested(fault)).values()
    return _mean(value["map"] for value in values), _mean(value["recip_rank"] for value in values)


def by_ir_measures(fault: Fault) -> Figures:
    """`calc_aggregate` over the lines."""
    import ir_measures
    from ir_measures import AP, RR

    qrels = [
        ir_measures.Qrel(q, d, label) for q, judged in fault.qrels.items() for d, label in judged.items()
    ]
    run = [ir_measures.ScoredDoc(*line) for line in fault.lines]
    values = ir_measures.calc_aggregate([AP, RR], qrels, run)
    return float(values[AP]), float(values[RR])


def by_ranx(fault: Fault) -> Figures:
    """`evaluate` with its defaults."""
    import ranx

    values = ranx.evaluate(ranx.Qrels(fault.qrels), ranx.Run(nested(fault)), ["map", "mrr"])
    return float(values["map"]), float(values["mrr"])


def by_sentence_transformers(fault: Fault) -> Figures:
    """`CrossEncoderRerankingEvaluator` with its defaults, over a model that knows the scores."""
    from sentence_transformers.cross_encoder.evaluation import CrossEncoderRerankingEvaluator

    run = nested(fault)
    samples = [
        {
            "query": question,
            "positive": [document for document, label in judged.items() if label > 0],
            "documents": list(run[question]),
        }
        for question, judged in fault.qrels.items()
        if question in run
    ]
    values = CrossEncoderRerankingEvaluator(samples, at_k=1000, write_csv=False)(_Scores(run))
    return float(values["map"]), float(values["mrr@1000"])


class _Scores:
    """A model whose scores are those of a run; what it never scored comes last."""

    def __init__(self, run: dict[str, dict[str, float]]) -> None:
        self._run = run
        self.model_card_data = self

    def set_evaluation_metrics(self, *given: Any) -> None:
        """Do nothing: there is no model card."""

    def predict(self, pairs: list[list[str]], **options: Any) -> Any:
        """The score of each (question, document)."""
        import numpy as np

        return np.array([self._run[question].get(document, -1.0) for question, document in pairs])


def by_mteb(fault: Fault) -> Figures:
    """What its retrieval tasks compute from the scores of a model."""
    from importlib import import_module

    # It offers no other way to its numbers than a whole task.
    scores = import_module("mteb._evaluators.retrieval_metrics").calculate_retrieval_scores
    values = scores(nested(fault), fault.qrels, [1000])
    return float(values.map["MAP@1000"]), float(values.mrr["MRR@1000"])


TOOLS: dict[str, tuple[str, Callable[[Fault], Figures]]] = {
    "aptool": ("aptool", by_aptool),
    "pytrec_eval": ("pytrec-eval-terrier", by_pytrec_eval),
    "ir_measures": ("ir_measures", by_ir_measures),
    "ranx": ("ranx", by_ranx),
    "sentence-transformers": ("sentence-transformers", by_sentence_transformers),
    "MTEB": ("mteb", by_mteb),
}


def outcome(fault: Fault, tool: Callable[[Fault], Figures], index: int) -> str:
    """What a tool does with a fault.

    Args:
        fault: the fault.
        tool: gives AP and RR.
        index: 0 for AP, 1 for RR.

    Returns:
        The figure, with what it is off by where it is; ``refused`` for an error.
    """
    quiet = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            warnings.simplefilter("ignore")
            value = tool(fault)[index]
    except Exception:  # each tool has its own errors
        return "refused"
    if fault.truth is None:
        return f"{value:.4f}, silent"
    off = value - fault.truth[index]
    if math.isnan(value):
        return "nan"
    return f"{value:.4f}" if abs(off) < 5e-5 else f"{value:.4f} ({off:+.4f})"


def table(index: int) -> list[list[str]]:
    """A row for each fault: its name, the truth, and every installed tool's outcome; headings first."""
    installed = {}
    for name, (package, tool) in TOOLS.items():
        if package == "aptool":
            installed[f"aptool {__version__}"] = tool
            continue
        with contextlib.suppress(metadata.PackageNotFoundError):
            installed[f"{name} {metadata.version(package)}"] = tool
    rows = [["fault", "trec_eval's rules", *installed]]
    for fault in FAULTS:
        truth = "to be refused" if fault.truth is None else f"{fault.truth[index]:.4f}"
        rows.append([fault.name, truth, *(outcome(fault, tool, index) for tool in installed.values())])
    return rows


def _mean(values: Any) -> float:
    values = list(values)
    return sum(values) / len(values)


def main() -> None:
    """Print the table in Markdown."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--measure", choices=["AP", "RR"], default="RR", help="The measure.  [default: RR]")
    rows = table(["AP", "RR"].index(parser.parse_args().measure))
    print("".join(f"| {' | '.join(row)} |\n" for row in [rows[0], ["---"] * len(rows[0]), *rows[1:]]))


if __name__ == "__main__":
    main()
