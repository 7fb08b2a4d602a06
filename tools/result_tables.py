"""Tables of recorded results as Markdown, and the captions below them."""

import contextlib
import io
import re
from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from aptool.cli.tables import print_table
from aptool.evaluation.compare import shown_p
from aptool.evaluation.significance import Spread
from bench.fingerprint import is_same_version
from jobs.paper_tables import CITATIONS, CLOSE, TABLES, PaperTable, paper_names

Document = dict[str, Any]
Rows = list[list[str]]
ONLY = re.compile(r" --only ('[^']*'|\S+)")


def table_of(file: str, table: str, result: Document) -> str:
    """A table as Markdown, the terminal's output for ``make eval``."""
    if special := SPECIAL.get(f"{file}/{table}" if table else file):
        return special(result)
    if table == "pairs":
        cells = pair_cells(result)
        return markdown(cells, left=cells[0].index("difference in MAP"))
    tables = result.get("tables", {})
    if not table and "systems" not in result:
        (table,) = tables  # the only one
    if not table:
        return markdown(system_cells(result), left=2)
    columns, rows = tables[table]["columns"], tables[table]["rows"]
    cells = [[text(cell) for cell in row] for row in rows]
    return markdown([columns, *cells], left=tables[table].get("left", 1))


def text(cell: str | float | None) -> str:
    """A cell; numbers have three decimals below 10 and commas from 1,000."""
    if not isinstance(cell, float):
        return "" if cell is None else f"{cell:,}" if isinstance(cell, int) else cell
    return f"{cell:,.0f}" if abs(cell) >= 100 else f"{cell:.1f}" if abs(cell) >= 10 else f"{cell:.3g}"


def caption(result: Document, current: Mapping[str, str]) -> str:
    """Command, version, date, machine and seeds of a result, and whether its code has changed since."""
    machine, seeds = result["machine"], result["seeds"]
    commit = f" ({result['commit']})" if result["commit"] else ""
    hardware = machine.get("gpu") or f"{machine['processor']}, {machine['cores']:g} cores"
    setting = [
        f"{hardware}" + (f", PyTorch {machine['torch'].partition('+')[0]}" if machine["torch"] else "")
    ]
    if "threads" in machine:
        setting.append(f"{machine['threads']} thread{'s' * (machine['threads'] > 1)}")
    if seeds:
        listed = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 2 else " and ".join(map(str, seeds))
        setting.append(f"seed{'s' * (len(seeds) > 1)} {listed}")
    command = ONLY.sub("", result["command"])  # the JSON has the rows of a matrix
    sentences = [
        f"{result['measured']}: `{command}`",
        f"aptool {result['version']}{commit}, {result['date']}",
        ", ".join(setting),
        *filter(None, (result.get("note"), numeric_version(result, current))),
    ]
    return " ".join(
        f"{sentence[0].upper()}{sentence[1:]}.".replace("Aptool", "aptool", 1) for sentence in sentences
    )


def numeric_version(result: Document, current: Mapping[str, str]) -> str | None:
    """A remark if the code of a result has changed since, or may have; None otherwise."""
    if result["fingerprint"] is None:
        return None
    if not result["fingerprint"]:
        return "Numeric version not recorded"
    older = older_presets(result, current)
    return f"**Measured with an older version of the code of {', '.join(older)}**" if older else None


def older_presets(result: Document, current: Mapping[str, str]) -> list[str]:
    """The presets of a result whose numeric fingerprint is not the current one."""
    return [
        preset
        for preset, value in (result["fingerprint"] or {}).items()
        if preset not in current or not is_same_version(value, current[preset])
    ]


def system_cells(result: Document) -> Rows:
    """The systems of a result, column titles first; columns without a value are left out."""
    systems = result["systems"]
    measures = list(systems[0]["means"])
    rows = []
    for system in systems:
        row = {
            "collection": system["collection"],
            "system": system["system"],
            **{measure: spread(system, measure) for measure in measures},
            "seeds": str(system["seeds"]),
            "training, s": number(system.get("train_seconds"), "{:,.0f}"),
            "pairs/s": number(system.get("pairs_per_second"), "{:,.0f}"),
            "bytes/answer": number(system.get("bytes_per_answer"), "{:,.0f}"),
        }
        rows.append(row)
    columns = [column for column in rows[0] if any(row[column] for row in rows)]
    return [columns, *([row[column] for column in columns] for row in rows)]


def spread(system: Document, measure: str) -> str:
    """Mean ± standard deviation over seeds; the mean alone if the deviation is unknown."""
    deviation = system["deviations"].get(measure)
    seeds = system["seeds"] if deviation is not None else 1
    return Spread(system["means"][measure], deviation or 0.0).text(seeds)


def markdown(rows: Rows, left: int = 1) -> str:
    """A table of cells that are Markdown, column titles first."""
    rule = ["---" if column < left else "---:" for column in range(len(rows[0]))]
    head, *lines = (f"| {' | '.join(row)} |\n" for row in rows)
    return "".join([head, f"|{'|'.join(rule)}|\n", *lines])


def number(value: float | None, form: str) -> str:
    return form.format(value) if value else ""


def pair_cells(result: Document) -> Rows:
    """The paired tests of MAP, column titles first."""
    corrected = any(pair["holm"] is not None for pair in result["pairs"])
    head = ["collection", "system", "against", "difference in MAP", "95% interval"]
    rows = [[*head, "p (Holm)" if corrected else "p"]]
    for pair in result["pairs"]:
        if pair["measure"] != "MAP":
            continue
        row = [pair["collection"], pair["system"], pair["other"]]
        row.append(f"{round(pair['difference'], 4) + 0.0:+.4f}")  # no -0.0000
        row += [f"{pair['low']:+.4f} to {pair['high']:+.4f}"]
        p = pair["holm"] if corrected else pair["p"]
        rows.append([*row, "" if p is None else shown_p(p)])
    return rows


def printed(result: Document) -> str:
    """The table that `aptool matrix` prints."""
    measures = result["systems"][0]["means"]
    rows = [["collection", "system", *measures, "questions", "seeds", "train s", "score s"]]
    for system in result["systems"]:
        counts = [str(system["questions"]), str(system["seeds"])]
        seconds = [f"{system[name] or 0:.1f}" for name in ("train_seconds", "score_seconds")]
        means = [spread(system, measure) for measure in measures]
        rows.append([system["collection"], system["system"], *means, *counts, *seconds])
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        print_table(rows, left=2)
    return f"```text\n{output.getvalue()}```\n"


def verdicts(table: PaperTable, collection: str) -> Callable[[Document], str]:
    """Renders a table of the paper: its values, those of a result, and verdicts."""

    def cells(result: Document) -> str:
        systems = [system for system in result["systems"] if system["collection"] == collection]
        names = paper_names((system["preset"], system["system"]) for system in systems)
        head = ["system"]
        for measure in ("MAP", "MRR"):
            head += [f"paper, {measure}", measure, f"{measure} reached?"]
        rows = [[*head, "seeds"]]
        for name, values in table.systems.items():
            for system in systems:
                if names.get(system["system"]) != name:
                    continue
                row = [CITATIONS.get(name, name)]
                for measure, value in zip(("MAP", "MRR"), values, strict=True):
                    row += [f"{value:.4f}", spread(system, measure), verdict(system["means"][measure], value)]
                rows.append([*row, str(system["seeds"])])
        return markdown(rows)

    return cells


def verdict(mean: float, paper: float) -> str:
    return "OK" if mean >= paper else "close" if mean >= paper - CLOSE else "below"


def literature(result: Document) -> str:
    """Published systems and those of the result, by MAP on WikiQA."""
    table = result["tables"]["published"]
    rows = [list(row) for row in table["rows"]]
    means: dict[str, dict[str, Document]] = {}
    for system in result["systems"]:
        means.setdefault(system["system"], {})[system["collection"]] = system
    for name, of in means.items():
        cells = [
            f"{of[collection]['means'][measure]:.3f}"
            for collection in ("wikiqa-test", "trecqa-test")
            for measure in ("MAP", "MRR")
        ]
        rows.append([f"**{name}**", *cells, f"measured, {of['wikiqa-test']['seeds']} seeds"])
    rows.sort(key=lambda row: row[1], reverse=True)
    return markdown([table["columns"], *rows])


# Columns of the learning curves, and the systems of jobs/learning_curve.toml, reproduce.toml and late.toml.
LEARNING = {
    "BM25": ("bm25",),
    "QA-CNN": ("qa-cnn", "qa-cnn-distilled"),
    "AP-CNN": ("ap-cnn-learned", "ap-cnn-drop", "ap-cnn-aligned", "ap-cnn-large-batch"),
    "AP-CNN + BM25": (
        "ap-cnn-learned-with-bm25",
        "ap-cnn-drop-with-bm25",
        "ap-cnn-aligned-with-bm25",
        "ap-cnn-with-bm25",
    ),
    "encoder, not trained": ("zero-mean",),
    "encoder, fine-tuned": ("mean-minilm",),
}
LEARNING_RESULTS = ("learning-curve", "paper-folds", "insuranceqa", "late", "late-zero")
# The title and the training questions of a fold of each collection, and the shares by the end of their names.
TRAINED = {
    "faq": ("FAQ", 254),
    "wikiqa": ("WikiQA", 799),
    "trecqa": ("TREC-QA", 981),
    "insuranceqa": ("InsuranceQA", 2464),
}
SHARES = {"-quarter": 0.25, "-half": 0.5, "": 1.0}


def learning_means(results: Mapping[str, Document]) -> pl.DataFrame:
    """MAP over folds by collection and number of training questions, one column per kind of system."""
    systems = [system for name in LEARNING_RESULTS for system in results[name]["systems"]]
    rows = []
    for collection, (title, questions) in TRAINED.items():
        for share, part in SHARES.items():
            means = {
                kind: system["means"]["MAP"]
                for kind, names in LEARNING.items()
                for system in systems
                if system["collection"] == f"{collection}{share}-folds" and system["system"] in names
            }
            if means:
                rows.append({"collection": title, "questions": round(part * questions), **means})
    schema = {"collection": pl.String, "questions": pl.Int64} | dict.fromkeys(LEARNING, pl.Float64)
    # The scores of a system without training do not depend on the questions.
    untrained = pl.col("encoder, not trained").fill_null(strategy="backward").over("collection")
    return pl.DataFrame(rows, schema).with_columns(untrained)


def learning_table(results: Mapping[str, Document]) -> str:
    """Learning curves as a table, for docs/results/paper.md."""
    means = learning_means(results)
    head = ["collection", "training questions", *means.columns[2:]]
    rows = [[of[0], f"{of[1]:,}", *(number(mean, "{:.3f}") for mean in of[2:])] for of in means.rows()]
    return markdown([head, *rows])


def summary(results: Mapping[str, Document]) -> str:
    """Test MAP of BM25, of the systems to choose from, and of published ones, for the README."""
    splits = ("wikiqa-test", "trecqa-test", "insuranceqa-folds", "faq")
    means: dict[tuple[str, str], float] = {
        (system["preset"] or system["system"], system["collection"]): system["means"]["MAP"]
        for file in ("paper-test", "literature-test", "insuranceqa")
        for system in results[file]["systems"]
    }
    means |= {
        (system["system"], "faq"): system["means"]["MAP"] for system in results["first-table"]["systems"]
    }
    rows = [["system", "WikiQA", "TREC-QA", "InsuranceQA, part", "FAQ"]]
    for name in ("bm25", "qa-cnn", "ap-cnn", "zero-shot", "mean-minilm", "mean-maxsim-minilm"):
        cells = [means.get((name, split)) for split in splits]
        rows.append([f"`{name}`", *("" if mean is None else f"{mean:.3f}" for mean in cells)])
    for name in ("qa-cnn", "ap-cnn"):
        values = [table.systems[name][0] for table in (TABLES[2], TABLES[1])]
        rows.append([f"{name.upper()}, published", *(f"{value:.3f}" for value in values), "", ""])
    for row in results["literature-test"]["tables"]["published"]["rows"]:
        if row[0].startswith("RoBERTa-base pairwise"):
            rows.append(["RoBERTa-base, published", row[1], row[3], "", ""])
    return markdown(rows)


SPECIAL: dict[str, Callable[[Document], str]] = {
    "make-eval": printed,
    "paper-test/trecqa": verdicts(TABLES[1], "trecqa-test"),
    "paper-test/wikiqa": verdicts(TABLES[2], "wikiqa-test"),
    "literature-test": literature,
}
# Tables of several results.
OF_SEVERAL = {"learning-curve": learning_table, "summary": summary}
