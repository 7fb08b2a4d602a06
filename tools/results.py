"""Generate tables and pictures of the README and of docs/: ``python tools/results.py [--check]``.

Tables of a page are between the lines ``<!-- results:NAME -->`` and ``<!-- /results -->``. NAME
is a result, ``docs/results/NAME.json``, or one of its tables, ``FILE/TABLE``. A caption with the command,
version, date and machine follows each table; it says if the code of the result has another numeric
fingerprint today (``bench/fingerprint.py``). ``summary`` and ``learning`` are tables of several results,
without a caption.

``--data FOLDER`` first computes the figures of recorded runs again, with the judgements of the collections
(or published files) in FOLDER. ``--check`` writes nothing; it prints the files that differ and exits with 1.
"""

import argparse
import contextlib
import functools
import io
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import polars as pl  # noqa: E402

from aptool.cli.tables import print_table  # noqa: E402
from aptool.datasets.folds import write_folds  # noqa: E402
from aptool.evaluation.significance import Spread  # noqa: E402
from aptool.experiments.runner import PUBLISHED  # noqa: E402
from aptool.formats.collection import MANIFEST, CollectionFiles  # noqa: E402
from aptool.formats.trec import read_qrels  # noqa: E402
from bench.fingerprint import is_same_version, numeric_fingerprints  # noqa: E402
from bench.record import json_text, read_result, recomputed  # noqa: E402
from jobs.paper_tables import CITATIONS, CLOSE, TABLES, PaperTable, paper_names  # noqa: E402

RESULTS = ROOT / "docs" / "results"
IMAGES = ROOT / "docs" / "images"
FINGERPRINTS = ROOT / "tools" / "fingerprints.json"
MARKERS = re.compile(r"(<!-- results:(?P<name>[\w/-]+) -->\n).*?(<!-- /results -->)", re.DOTALL)

Document = dict[str, Any]
Rows = list[list[str]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file differs")
    parser.add_argument("--data", type=Path, help="compute the figures of recorded runs again")
    options = parser.parse_args()
    current = updated(json.loads(FINGERPRINTS.read_text(encoding="utf-8")), numeric_fingerprints())
    results = read_results()
    files = {FINGERPRINTS: json.dumps(current, indent=1) + "\n"}
    if options.data:
        results = from_runs(results, options.data)
        files |= {RESULTS / f"{name}.json": json_text(result) for name, result in results.items()}
    files |= generated(results, current)
    changed = [file for file, text in files.items() if not file.exists() or file.read_text() != text]
    for file in changed:
        print(file.relative_to(ROOT))
        if not options.check:
            file.write_text(files[file], encoding="utf-8")
    if options.check and changed:
        sys.exit("these files differ from docs/results/*.json; run `make results`")


def updated(committed: Mapping[str, str], computed: Mapping[str, str]) -> dict[str, str]:
    """The computed fingerprints; a committed one of the same version stays, whatever its last decimal."""
    return {
        preset: committed[preset]
        if preset in committed and is_same_version(committed[preset], value)
        else value
        for preset, value in computed.items()
    }


def read_results() -> dict[str, Document]:
    """Every result by the name of its file."""
    return {file.stem: read_result(file) for file in sorted(RESULTS.glob("*.json"))}


def from_runs(results: Mapping[str, Document], data: Path) -> dict[str, Document]:
    """The results with the figures of recorded runs computed again; ``data`` has the collections."""
    computed = dict(results)
    for collection in sorted({name for result in results.values() for name in result.get("runs", {})}):
        folds = fold_qrels(data / re.sub(f"({'|'.join(SHARES)})-folds$", "", collection))
        for name, result in computed.items():
            if collection in result.get("runs", {}):
                computed[name] = recomputed(result, collection, folds)
    return computed


@functools.cache  # a share of the training questions has the same judgements as all of them
def fold_qrels(folder: Path) -> list[pl.DataFrame]:
    """The judgements of each of the five folds of a collection, or of published files."""
    with tempfile.TemporaryDirectory() as temporary:
        is_collection = (folder / MANIFEST).exists()
        importer = PUBLISHED[folder.name]
        collection = CollectionFiles(folder) if is_collection else importer(Path(temporary, "c"), folder)
        folds = write_folds(collection, Path(temporary, "folds"))
        return [read_qrels(fold.qrels("dev")) for fold in folds]


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "docs" / "which-model.md", *sorted(RESULTS.glob("*.md"))]


def generated(results: Mapping[str, Document], current: Mapping[str, str]) -> dict[Path, str]:
    """The text of every page and picture."""
    texts = {page: filled(page.read_text(encoding="utf-8"), results, current) for page in pages()}
    return texts | {IMAGES / f"{name}.svg": text for name, text in pictures(results)}


def filled(page: str, results: Mapping[str, Document], current: Mapping[str, str]) -> str:
    """A page with the tables between its markers."""
    captioned: set[str] = set()

    def replaced(match: re.Match[str]) -> str:
        file, _, table = match["name"].partition("/")
        if file in OF_SEVERAL:
            return f"{match[1]}{OF_SEVERAL[file](results)}{match[3]}"
        if file not in results:
            raise KeyError(f"results:{match['name']}: no file docs/results/{file}.json")
        under = "Source as above." if file in captioned else caption(results[file], current)
        captioned.add(file)
        return f"{match[1]}{table_of(file, table, results[file])}\n{under}\n{match[3]}"

    return MARKERS.sub(replaced, page)


def table_of(file: str, table: str, result: Document) -> str:
    """A table as Markdown, the terminal's output for ``make eval``."""
    if special := SPECIAL.get(f"{file}/{table}" if table else file):
        return special(result)
    if table == "pairs":
        cells = pair_cells(result)
        return markdown(cells, left=cells[0].index("difference"))
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
    if machine.get("flags"):
        setting.append(" ".join(machine["flags"]))
    if "threads" in machine:
        setting.append(f"{machine['threads']} thread{'s' * (machine['threads'] > 1)}")
    if seeds:
        listed = f"{seeds[0]} to {seeds[-1]}" if len(seeds) > 2 else " and ".join(map(str, seeds))
        setting.append(f"seed{'s' * (len(seeds) > 1)} {listed}")
    sentences = [
        f"{result['measured']}: `{result['command']}`",
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
        return "Numeric version not recorded; to be measured again before the release of 0.3.0"
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
        sd = system.get("fold_deviations") or {}
        row = {
            "collection": system["collection"],
            "system": system["system"],
            **{measure: spread(system, measure) for measure in measures},
            f"{measures[0]}, sd over folds": f"{sd[measures[0]]:.4f}" if measures[0] in sd else "",
            "seeds": str(system["seeds"]),
            "questions": str(system["questions"]),
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
    """The paired tests of a result, column titles first."""
    corrected = any(pair["holm"] is not None for pair in result["pairs"])
    several = len({pair["measure"] for pair in result["pairs"]}) > 1
    head = ["collection", "system", "against", *["measure"] * several, "difference", "95% interval", "p"]
    rows = [[*head, *["p (Holm)"] * corrected]]
    for pair in result["pairs"]:
        row = [pair["collection"], pair["system"], pair["other"], *[pair["measure"]] * several]
        row.append(f"{round(pair['difference'], 4) + 0.0:+.4f}")  # no -0.0000
        row += [f"{pair['low']:+.4f} to {pair['high']:+.4f}", f"{pair['p']:.4f}"]
        rows.append([*row, *[number(pair["holm"], "{:.4f}")] * corrected])
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
        rows = [[*head, "seeds", "MAP of each seed"]]
        for name, values in table.systems.items():
            for system in systems:
                if names.get(system["system"]) != name:
                    continue
                row = [CITATIONS.get(name, name)]
                for measure, value in zip(("MAP", "MRR"), values, strict=True):
                    row += [f"{value:.4f}", spread(system, measure), verdict(system["means"][measure], value)]
                each = " ".join(f"{value:.4f}" for value in system["values"]["MAP"])
                rows.append([*row, str(system["seeds"]), each])
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
LEARNING_RESULTS = ("learning-curve", "paper-folds", "insuranceqa", "late-wikiqa", "late-zero")
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
    """Learning curves as a table, for docs/which-model.md."""
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
OF_SEVERAL = {"learning": learning_table, "summary": summary}


def pictures(results: Mapping[str, Document]) -> Iterator[tuple[str, str]]:
    """Charts of MAP against bytes per answer and pairs per second, by the name of the file."""
    from aptool.reporting.plots import plot_costs, svg

    rates = {row[0].split("`")[1]: row[1] for row in results["late-speed"]["tables"]["results"]["rows"]}
    sources = {
        "poolings-wikiqa": ("poolings-zero-shot", "wikiqa"),
        "poolings-trecqa": ("poolings-zero-shot", "trecqa"),
        "poolings-functions": ("poolings-zero-shot", "functions"),
        "poolings-fine-tuned": ("late-seeds", "wikiqa-seed-1"),
    }
    titles = {
        "bytes_per_answer": "bytes per encoded answer",
        "pairs_per_second": "pairs scored per second, with encoded answers shared by pools",
    }
    for name, (file, table) in sources.items():
        content = results[file]["tables"][table]
        accuracy, size = content["columns"].index("MAP"), content["columns"].index("bytes per answer")
        points = [
            {
                "system": row[0].split("`")[1],
                "MAP": value(row[accuracy]),
                "bytes_per_answer": value(row[size]),
                "pairs_per_second": value(rates.get(row[0].split("`")[1], "")),
            }
            for row in content["rows"]
        ]
        yield name, svg(plot_costs(pl.DataFrame(points), "MAP", titles))

    yield from curves(results)


def curves(results: Mapping[str, Document]) -> Iterator[tuple[str, str]]:
    """Figures 3 and 4 of the paper, and learning curves."""
    from aptool.reporting.plots import plot_accuracy_by_length, plot_learning_curves, svg

    lengths = results["insuranceqa"]["tables"]["lengths"]
    points = pl.DataFrame(lengths["rows"], schema=lengths["columns"], orient="row")
    yield "insuranceqa-lengths", svg(plot_accuracy_by_length(points.rename({"words": "length"})))
    means = learning_means(results)
    points = means.unpivot(index=["collection", "questions"], variable_name="system").drop_nulls()
    points = points.pivot("collection", index=["system", "questions"], values="value")
    titles = {title: f"MAP, {title}" for title in points.columns[2:]}
    yield "learning-curves", svg(plot_learning_curves(points, titles))


def value(cell: str) -> float | None:
    return float(cell.replace(",", "")) if cell else None


if __name__ == "__main__":
    main()
