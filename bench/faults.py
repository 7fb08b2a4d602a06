"""Results of six evaluation tools for twelve faults of runs and qrels: `python -m bench.faults`.

Each fault has a few lines, whose AP and RR are computed by hand under trec_eval's rules: ties are ordered by
document id, a question without a ranking counts as 0, and an unjudged document is not relevant. A tool may
refuse the input, or print another value without a warning ("silent").

The extra `faults` installs the other tools. The table has the installed tools.
"""

import contextlib
import io
import math
import warnings
from collections.abc import Callable
from importlib import metadata
from typing import Any, NamedTuple

from aptool.environment import __version__
from bench.common import benchmark_parser

Line = tuple[str, str, float]  # question, document, score
Qrels = dict[str, dict[str, int]]
Figures = tuple[float, float]  # AP, RR

NAN = math.nan

JUDGED: Qrels = {question: {"a": 1, "b": 0, "c": 0} for question in ("q1", "q2", "q3", "q4")}


class Fault(NamedTuple):
    """Qrels and a run with one fault.

    Attributes:
        name: name of the fault.
        qrels: relevance by question and document.
        lines: lines of the run file, in order.
        truth: AP and RR by trec_eval's rules; None if the tool should refuse the input.
        empty: questions of the run without candidates.
    """

    name: str
    qrels: Qrels
    lines: list[Line]
    truth: Figures | None
    empty: tuple[str, ...] = ()


def ranked(question: str, documents: str) -> list[Line]:
    """Lines of a question, whose documents have the scores 1, 1/2, 1/3 and so on."""
    return [(question, document, 1 / rank) for rank, document in enumerate(documents, 1)]


# Rank of the relevant document (a): 1, 2, 3 and 1, so RR is 1, 1/2, 1/3 and 1.
PLAIN = ranked("q1", "abc") + ranked("q2", "bac") + ranked("q3", "bca") + ranked("q4", "abc")
MEAN = (1 + 1 / 2 + 1 / 3 + 1) / 4

FAULTS = [
    # a and b of q1 have equal scores, and b is ranked first by its id: RR falls from 1 to 1/2.
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
    # In q1, an unjudged document d is ranked before a.
    Fault("unjudged", JUDGED, [("q1", "d", 2.0), *PLAIN], (MEAN - 1 / 8, MEAN - 1 / 8)),
    # The second relevant document of q1 was never retrieved: AP of q1 is 1/2, its RR stays 1.
    Fault("missed by the first stage", {**JUDGED, "q1": {"a": 1, "m": 1}}, PLAIN, (MEAN - 1 / 8, MEAN)),
    # Grades of at least 1 are relevant: q2 has b (1) first and a (2) second.
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
    """The run as {question: {document: score}}, the input of most tools; the last of equal keys wins."""
    run: dict[str, dict[str, float]] = {question: {} for question in fault.empty}
    for question, document, score in fault.lines:
        run.setdefault(question, {})[document] = score
    return run


def by_aptool(fault: Fault) -> Figures:
    """AP and RR of `aptool eval`, from files."""
    import tempfile
    from pathlib import Path

    from aptool.data.runs import read_run
    from aptool.data.trec import read_qrels
    from aptool.evaluation.measures import evaluate_frames

    with tempfile.TemporaryDirectory() as folder:
        run, qrels = Path(folder) / "x.run", Path(folder) / "x.qrels"
        run.write_text("".join(f"{q} Q0 {d} 0 {score!r} x\n" for q, d, score in fault.lines))
        qrels.write_text(
            "".join(
                f"{q} 0 {d} {label}\n" for q, judged in fault.qrels.items() for d, label in judged.items()
            )
        )
        means = evaluate_frames(read_qrels(qrels), read_run(run).frame, ["MAP", "MRR"]).means
    return means["MAP"], means["MRR"]


def by_pytrec_eval(fault: Fault) -> Figures:
    """AP and RR as the means of the values of `RelevanceEvaluator`."""
    import pytrec_eval

    evaluator = pytrec_eval.RelevanceEvaluator(fault.qrels, {"map", "recip_rank"})
    values = evaluator.evaluate(nested(fault)).values()
    return _mean(value["map"] for value in values), _mean(value["recip_rank"] for value in values)


def by_ir_measures(fault: Fault) -> Figures:
    """AP and RR of `calc_aggregate`."""
    import ir_measures
    from ir_measures import AP, RR

    qrels = [
        ir_measures.Qrel(q, d, label) for q, judged in fault.qrels.items() for d, label in judged.items()
    ]
    run = [ir_measures.ScoredDoc(*line) for line in fault.lines]
    values = ir_measures.calc_aggregate([AP, RR], qrels, run)
    return float(values[AP]), float(values[RR])


def by_ranx(fault: Fault) -> Figures:
    """AP and RR of `evaluate` with its defaults."""
    import ranx

    values = ranx.evaluate(ranx.Qrels(fault.qrels), ranx.Run(nested(fault)), ["map", "mrr"])
    return float(values["map"]), float(values["mrr"])


def by_sentence_transformers(fault: Fault) -> Figures:
    """AP and RR of `CrossEncoderRerankingEvaluator` with its defaults, for a model with the scores."""
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
    """A model with the scores of a run, and -1 for other documents."""

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
    """AP and RR as MTEB's retrieval tasks compute them."""
    from importlib import import_module

    # The public API computes measures only as part of a task.
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
    """The result of a tool for a fault, as text.

    Args:
        fault: the fault.
        tool: function that computes AP and RR.
        index: 0 for AP, 1 for RR.

    Returns:
        The value, with its difference from the truth; ``refused`` for an error.
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
    """A header row, and a row per fault: its name, the truth, and the result of each installed tool."""
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
