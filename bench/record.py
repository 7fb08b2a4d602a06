"""Write the results of a matrix as data: ``python -m bench.record RUNS FILE``.

RUNS is the output folder of ``aptool matrix``. FILE is a JSON document of ``schemas/result.schema.json``: the
figures with their command, version, date, machine, seeds and fingerprints. It replaces a file only if that
file is such a document. The pooled runs of folds become ``docs/results/runs/COLLECTION/SYSTEM/SEED.parquet``,
without texts and judgements; the score of an answer is minus its rank, which decides every measure.

The version, the date and the machine are those of this process: run it where and when the matrix has run.
"""

import datetime
import hashlib
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import polars as pl
import pyarrow.parquet as pq

from aptool import environment
from aptool.data.collection import Collection
from aptool.data.runs import read_run
from aptool.data.trec import rank_candidates, read_qrels
from aptool.documents import check_document, read_json
from aptool.environment import __version__
from aptool.errors import InputError
from aptool.evaluation.measures import evaluate_frames, mean_over_runs
from aptool.evaluation.significance import compare_paired, holm, mean_and_sd
from aptool.experiments.table import PERMUTATIONS
from aptool.outputs import output_file
from aptool.paths import PathOrUrl, location
from bench.common import benchmark_parser

FORMAT = 1

# Flags of the processor that decide the speed of products.
FLAGS = {
    *("avx2", "avx512f", "asimd"),
    *("avx512_bf16", "amx_bf16", "bf16"),
    *("avx512_vnni", "avx_vnni", "amx_int8", "i8mm"),
}
SCHEMA = "result"
RUNS = Path(__file__).parents[1] / "docs" / "results" / "runs"
# Runs of more candidates would be a large part of the repository: they have two bytes per candidate.
MOST_CANDIDATES = 200_000
# Measures of the pairs of ``--pair``.
TESTED = ("MAP", "P@1")


def processor_flags() -> set[str]:
    """The instruction sets of the processor, as Linux names them; empty where it does not."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    named = (line.partition(":")[2].split() for line in lines if line.startswith(("flags", "Features")))
    return set(next(named, ()))


def main() -> None:
    """Write the results of a matrix."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("runs", type=Path, help="output folder of `aptool matrix`")
    parser.add_argument("file", type=Path, help="JSON file for the results, such as docs/results/NAME.json")
    parser.add_argument(
        "--pair",
        nargs=2,
        action="append",
        metavar="SYSTEM",
        help=f"test only these two systems, in {' and '.join(TESTED)}; repeatable",
    )
    options = parser.parse_args()
    document = matrix_document(options.runs, options.pair)
    write_result(options.file, {**document, "runs": record_runs(options.runs)})


def result_document(measured: str, command: str, **content: Any) -> dict[str, Any]:
    """The document of a result that this process measured today.

    Args:
        measured: subject of the measurement.
        command: the command line.
        content: further entries of the schema.
    """
    machine = environment.hardware()
    gpus = {"gpu": machine["gpus"][0]["name"]} if machine["gpus"] else {}
    return {
        "format": FORMAT,
        "measured": measured,
        "command": command,
        "version": __version__,
        "commit": _commit(),
        "date": datetime.date.today().isoformat(),
        "machine": {
            "processor": machine["cpu"]["model"],
            "cores": environment.available_cores(),
            "flags": sorted(processor_flags() & FLAGS),
            "torch": environment.version_of("torch"),
            **gpus,
        },
        "seeds": [],
        "collections": {},
        "fingerprint": None,
        **content,
    }


def matrix_document(runs: PathOrUrl, pairs: Sequence[tuple[str, str]] | None = None) -> dict[str, Any]:
    """The document of a matrix: the values of every seed, and the paired tests over folds.

    Args:
        runs: the output folder of ``aptool matrix``.
        pairs: systems to test over folds, in MAP and P@1; None for the tests of the matrix.
    """
    from aptool.config import preset_names
    from bench.fingerprint import numeric_fingerprint

    table: dict[str, Any] = read_json(location(runs) / "table.json")
    results = _distinct(table["results"])
    collections = {
        result["published"]: table["collections"][result["collection"]]["fingerprint"] for result in results
    }
    presets = {result["preset"] for result in results} & set(preset_names())
    tests = [_pair(test) for test in table["paired"]] if pairs is None else _tests(runs, table, pairs)
    return result_document(
        f"{len({result['system'] for result in results})} systems on {', '.join(collections)}",
        table["command"],
        seeds=sorted({result["seed"] for result in results}),
        collections=collections,
        fingerprint={preset: numeric_fingerprint(preset) for preset in sorted(presets)},
        systems=[_system(line, results) for line in table["lines"]],
        **({"pairs": tests} if tests else {}),
    )


def record_runs(runs: PathOrUrl) -> dict[str, str]:
    """Write the pooled runs of the folds of a matrix to `RUNS`; runs of other systems stay.

    Collections of more than `MOST_CANDIDATES` candidates are left out.

    Returns:
        the SHA-256 of the judgements of each collection of folds.
    """
    table = read_json(location(runs) / "table.json")
    judgements = {}
    for name, results, pooled in _fold_collections(runs, table):
        split = results[0]["split"]
        if pooled.manifest["splits"][split]["candidates"] <= MOST_CANDIDATES:
            for result in results:
                file = RUNS / name / result["system"] / f"{result['seed']}.parquet"
                write_ranks(file, read_run(location(runs) / result["run"]).frame, result["system"])
            judgements[name] = qrels_sha256(read_qrels(pooled.qrels_file(split)))
    return judgements


def write_ranks(file: Path, run: pl.DataFrame, tag: str) -> None:
    """Write a run as a table in the order of the ids, which compresses best; scores are minus the ranks."""
    ids = ["question_id", "answer_id"]
    ranked = rank_candidates(run).sort(ids).select(*ids, score=-pl.col("rank").cast(pl.Float64))
    file.parent.mkdir(parents=True, exist_ok=True)
    with output_file(file) as temporary:
        pq.write_table(
            ranked.to_arrow().replace_schema_metadata({"aptool.tag": tag}),
            temporary,
            use_dictionary=["score"],
            column_encoding=dict.fromkeys(ids, "DELTA_BYTE_ARRAY"),
            compression="zstd",
            compression_level=19,
        )


def seeds_of(collection: str, system: str) -> list[pl.DataFrame]:
    """The runs of a system in `RUNS`, one per seed."""
    files = (RUNS / collection / system).glob("*.parquet")
    return [read_run(file).frame for file in sorted(files, key=lambda file: int(file.stem))]


def qrels_sha256(qrels: pl.DataFrame) -> str:
    """SHA-256 of the sorted lines of judgements: ``LC_ALL=C sort FILE | sha256sum`` of a file by aptool."""
    line = pl.format("{} 0 {} {}\n", "question_id", "answer_id", "relevance")
    return hashlib.sha256("".join(qrels.select(line.sort()).to_series()).encode()).hexdigest()


def recomputed(document: Mapping[str, Any], collection: str, folds: Sequence[pl.DataFrame]) -> dict[str, Any]:
    """The document of a matrix with the figures of a collection computed from its runs in `RUNS`.

    Args:
        document: the document of the result.
        collection: the collection of folds.
        folds: the judgements of each fold.
    """
    qrels = pl.concat(folds)
    sha256, expected = qrels_sha256(qrels), document["runs"][collection]
    if sha256 != expected:
        problem = f"other questions or judgements, as the SHA-256 is {sha256[:12]}"
        raise InputError(collection, problem=problem, expected=expected[:12])
    tables: dict[str, pl.DataFrame] = {}  # per question, the mean over seeds
    systems = []
    for system in document["systems"]:
        if system["collection"] == collection:
            runs = seeds_of(collection, system["system"])
            measures = list(system["means"])
            seeds = [evaluate_frames(qrels, run, measures) for run in runs]
            on_folds = [[evaluate_frames(fold, run, measures).means for run in runs] for fold in folds]
            tables[system["system"]] = mean_over_runs([seed.per_question for seed in seeds])
            values = {name: [seed.means[name] for seed in seeds] for name in measures}
            of_folds = {name: [fmean(seed[name] for seed in fold) for fold in on_folds] for name in measures}
            system = {
                **system,
                "seeds": len(runs),
                "means": {name: mean_and_sd(values[name]).mean for name in measures},
                "deviations": {name: mean_and_sd(values[name]).sd for name in measures},
                "fold_deviations": {name: mean_and_sd(of_folds[name]).sd for name in measures},
                "values": values,
            }
        systems.append(system)
    pairs = [
        _tested(pair, tables) if pair["collection"] == collection else pair
        for pair in document.get("pairs", [])
    ]
    _correct([pair for pair in pairs if pair["collection"] == collection])
    return {**document, "systems": systems, **({"pairs": pairs} if pairs else {})}


def write_result(path: PathOrUrl, document: Mapping[str, Any]) -> None:
    """Check and write the document of a result; a file that is not a result is not replaced."""
    check_document(SCHEMA, document, path)
    if location(path).exists():
        check_document(SCHEMA, read_json(path), path)
    with output_file(path) as temporary:
        temporary.write_text(json_text(document), encoding="utf-8")


def json_text(document: Mapping[str, Any]) -> str:
    """The text of the file of a result."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def read_result(path: PathOrUrl) -> dict[str, Any]:
    """Read and check the document of a result."""
    document: dict[str, Any] = read_json(path)
    check_document(SCHEMA, document, path)
    for name, table in document.get("tables", {}).items():
        for number, row in enumerate(table["rows"]):
            if len(row) != len(table["columns"]):
                expected = f"{len(table['columns'])} cells"
                raise InputError(path, position=f"tables/{name}/rows/{number}", value=row, expected=expected)
    return document


def _distinct(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The results without those of further seeds of a system whose runs do not depend on the seed."""
    shas: dict[tuple[str, str], list[str]] = {}
    for result in results:
        shas.setdefault((result["collection"], result["system"]), []).append(result["sha256"])
    seen: set[tuple[str, str]] = set()
    kept = []
    for result in results:
        key = result["collection"], result["system"]
        if key not in seen or len(set(shas[key])) > 1:
            kept.append(result)
        seen.add(key)
    return kept


def _system(line: dict[str, Any], results: list[dict[str, Any]]) -> dict[str, Any]:
    """A line of the table with the preset and the value of each seed."""
    of_system = [
        result
        for result in results
        if (result["collection"], result["system"]) == (line["collection"], line["system"])
    ]
    values = {measure: [result["measures"][measure] for result in of_system] for measure in line["means"]}
    return {**line, "preset": of_system[0]["preset"], "seeds": len(of_system), "values": values}


def _tests(runs: PathOrUrl, table: dict[str, Any], pairs: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """The tests of pairs of systems on every collection of folds that has both."""
    known = sorted({result["system"] for result in table["results"]})
    for name in dict.fromkeys(name for pair in pairs for name in pair):
        if name not in known:
            raise InputError(location(runs) / "table.json", value=name, expected=f"one of {', '.join(known)}")
    tests = []
    for collection, results, pooled in _fold_collections(runs, table):
        chosen = [pair for pair in pairs if {result["system"] for result in results}.issuperset(pair)]
        if not chosen:
            continue
        qrels = read_qrels(pooled.qrels_file(results[0]["split"]))
        tables = {
            system: question_means(
                runs, [result for result in results if result["system"] == system], qrels, TESTED
            )
            for system in dict.fromkeys(name for pair in chosen for name in pair)
        }
        tested = [
            _tested({"collection": collection, "system": system, "other": other, "measure": measure}, tables)
            for measure in TESTED
            for system, other in chosen
        ]
        _correct(tested)
        tests += tested
    return tests


def question_means(
    runs: PathOrUrl, results: Sequence[dict[str, Any]], qrels: pl.DataFrame, measures: Sequence[str]
) -> pl.DataFrame:
    """The measures of each question, the mean over the results of one system."""
    files = [location(runs) / result["run"] for result in results]
    return mean_over_runs(
        [evaluate_frames(qrels, read_run(file).frame, measures).per_question for file in files]
    )


def _fold_collections(
    runs: PathOrUrl, table: dict[str, Any]
) -> Iterator[tuple[str, list[dict[str, Any]], Collection]]:
    """The name, the distinct results and the pooled collection of each collection of folds."""
    distinct = _distinct(table["results"])
    for name, entry in table["collections"].items():
        results = [result for result in distinct if result["collection"] == name]
        if results[0]["folds"]:
            yield name, results, Collection(location(runs) / entry["path"])


def _tested(pair: dict[str, Any], tables: Mapping[str, pl.DataFrame]) -> dict[str, Any]:
    """A pair with the paired test of its systems; ``tables`` has the measures of each system per question."""
    before, after = (tables[pair[name]][pair["measure"]].to_numpy() for name in ("other", "system"))
    paired = compare_paired(before, after, permutations=PERMUTATIONS)
    interval = {"low": paired.interval.low, "high": paired.interval.high}
    return {**pair, "difference": paired.difference, **interval, "p": paired.permutation.p}


def _correct(pairs: Sequence[dict[str, Any]]) -> None:
    """Correct the p-values of the pairs of each measure with Holm's method, in place."""
    for measure in dict.fromkeys(pair["measure"] for pair in pairs):
        tested = [pair for pair in pairs if pair["measure"] == measure]
        for pair, corrected in zip(tested, holm([pair["p"] for pair in tested]), strict=True):
            pair["holm"] = corrected


def _pair(test: dict[str, Any]) -> dict[str, Any]:
    paired = test["paired"]
    return {
        **{name: test[name] for name in ("collection", "system", "other", "measure", "holm")},
        "difference": paired["difference"],
        "low": paired["interval"]["low"],
        "high": paired["interval"]["high"],
        "p": paired["permutation"]["p"],
    }


def _commit() -> str | None:
    """The commit of the sources, marked ``-dirty`` if files have changed; None outside a git checkout."""
    root = Path(__file__).parents[1]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


if __name__ == "__main__":
    main()
