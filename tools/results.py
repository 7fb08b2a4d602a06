"""Generate tables and pictures of the README and of docs/: ``python tools/results.py [--check]``.

Tables of a page are between the lines ``<!-- results:NAME -->`` and ``<!-- /results -->``. NAME
is a result, ``docs/results/NAME.json``, or one of its tables, ``FILE/TABLE``. A caption with the command,
version, date and machine follows each table; it says if the code of the result has another numeric
fingerprint today (``bench/fingerprint.py``). ``summary`` and ``learning-curve`` are tables of several
results; ``summary`` has no caption.

``--data FOLDER`` first computes the figures of the runs in docs/results/runs/ again, with the judgements of
the collections (or published files) in FOLDER. ``--check`` writes nothing; it prints the files that differ
and exits with 1.
"""

import argparse
import functools
import json
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import polars as pl  # noqa: E402

from aptool.data import published  # noqa: E402
from aptool.data.collection import Collection  # noqa: E402
from aptool.data.folds import write_folds  # noqa: E402
from aptool.data.trec import read_qrels  # noqa: E402
from aptool.data.writing import MANIFEST  # noqa: E402
from aptool.reporting.charts import plot_accuracy_by_length, svg  # noqa: E402
from bench.fingerprint import is_same_version, numeric_fingerprints  # noqa: E402
from bench.record import json_text, read_result, recomputed  # noqa: E402
from tools.result_tables import OF_SEVERAL, SHARES, Document, caption, table_of  # noqa: E402

RESULTS = ROOT / "docs" / "results"
IMAGES = ROOT / "docs" / "images"
FINGERPRINTS = ROOT / "tools" / "fingerprints.json"
# The importer of published files, the names of the splits' files, and the paper's questions.
PUBLISHED = {
    "wikiqa": (published.import_wikiqa, published.WIKIQA_SPLITS, "answerable"),
    "trecqa": (published.import_trecqa, published.TRECQA_SPLITS, "both-labels"),
}
MARKERS = re.compile(r"(<!-- results:(?P<name>[\w/-]+) -->\n).*?(<!-- /results -->)", re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file differs")
    parser.add_argument("--data", type=Path, help="compute the figures of docs/results/runs/ again")
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
    """The results with the figures of docs/results/runs/ computed again; ``data`` has the collections."""
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
        if (folder / MANIFEST).exists():
            collection = Collection(folder)
        else:
            importer, names, questions = PUBLISHED[folder.name]
            files = published.splits_in(folder, names)
            collection = importer(Path(temporary, "collection"), files, questions=questions)
        folds = write_folds(collection, Path(temporary, "folds"))
        return [read_qrels(fold.qrels_file("dev")) for fold in folds]


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted(RESULTS.glob("*.md"))]


def generated(results: Mapping[str, Document], current: Mapping[str, str]) -> dict[Path, str]:
    """The text of every page and picture."""
    texts = {page: filled(page.read_text(encoding="utf-8"), results, current) for page in pages()}
    return texts | {IMAGES / "insuranceqa-lengths.svg": lengths_picture(results)}


def lengths_picture(results: Mapping[str, Document]) -> str:
    """Figures 3 and 4 of the paper, as SVG."""
    lengths = results["insuranceqa"]["tables"]["lengths"]
    points = pl.DataFrame(lengths["rows"], schema=lengths["columns"], orient="row")
    return svg(plot_accuracy_by_length(points.rename({"words": "length"})))


def filled(page: str, results: Mapping[str, Document], current: Mapping[str, str]) -> str:
    """A page with the tables between its markers."""
    captioned: set[str] = set()

    def replaced(match: re.Match[str]) -> str:
        file, _, table = match["name"].partition("/")
        if file == "summary":
            return f"{match[1]}{OF_SEVERAL[file](results)}{match[3]}"
        if file not in results:
            raise KeyError(f"results:{match['name']}: no file docs/results/{file}.json")
        under = "Source as above." if file in captioned else caption(results[file], current)
        captioned.add(file)
        text = OF_SEVERAL[file](results) if file in OF_SEVERAL else table_of(file, table, results[file])
        return f"{match[1]}{text}\n{under}\n{match[3]}"

    return MARKERS.sub(replaced, page)


if __name__ == "__main__":
    main()
