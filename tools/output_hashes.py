"""Print a hash of every output of aptool on tiny inputs, one line per output: NAME SHA256.

Compare two commits by comparing what this program prints on each of them:

    OMP_NUM_THREADS=1 python tools/output_hashes.py > before.txt

Only public commands run, in this process. Versions, times and paths are left out of JSON before it is hashed.
"""

import argparse
import contextlib
import hashlib
import importlib.util
import io
import json
import os
import runpy
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import networks  # noqa: E402
import published  # noqa: E402
import tiny  # noqa: E402

# Keys of JSON that differ between versions, machines or seconds.
VOLATILE = {
    *("versions", "version", "aptool", "python", "torch", "platform", "machine", "command", "path", "name"),
    *("seconds", "started", "finished", "created", "time", "fingerprint", "recipe_fingerprint", "key"),
    *("score_seconds", "train_seconds", "pairs_per_second"),
    *("sha256", "files", "preset"),
}
MATRIX = """
[collections.tiny]
path = "{collection}"
splits = ["dev", "test"]

[systems.random]
baseline = "random"
[systems.bm25]
baseline = "bm25"
[systems.qa-cnn]
preset = "qa-cnn"
set = {settings}
[systems.fused]
fuse = ["bm25", "qa-cnn"]

[[rows]]
collection = "tiny"
systems = ["random", "bm25", "qa-cnn", "fused"]
seeds = [1, 2]
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", default="", help="print the outputs whose kind begins so: import, matrix, ..."
    )
    arguments = parser.parse_args()
    kinds = {"import": imports, "train": presets, "fuse": fusions, "matrix": matrix}
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        pools = collection(Path("tiny"))
        for kind, outputs in kinds.items():
            if kind.startswith(arguments.only):
                for name, value in outputs(pools):
                    print(f"{kind}/{name} {value}", flush=True)


def run(*arguments: object) -> None:
    """Run an aptool command in this process; exit on its error."""
    output = io.StringIO()
    sys.argv = ["aptool", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            runpy.run_module("aptool", run_name="__main__")
    except SystemExit as end:
        if end.code:
            sys.exit(f"{' '.join(sys.argv)}: exit code {end.code}\n{output.getvalue()}")


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def stable(value: Any) -> Any:
    """A JSON document without the entries that differ between versions, machines or seconds."""
    if isinstance(value, dict):
        return {key: stable(entry) for key, entry in sorted(value.items()) if key not in VOLATILE}
    if isinstance(value, list):
        return [stable(entry) for entry in value]
    return value.replace(str(Path.cwd()), "") if isinstance(value, str) else value


def hash_json(file: Path) -> str:
    return digest(json.dumps(stable(json.loads(file.read_text())), sort_keys=True).encode())


def hash_file(file: Path) -> str:
    """A hash of a file; of a Parquet file, of the rows of each row group, since the file names its writer."""
    if file.suffix == ".json":
        return hash_json(file)
    if file.suffix == ".parquet":
        import pyarrow.parquet as pq

        content = pq.ParquetFile(file)
        groups = [content.read_row_group(number).to_pylist() for number in range(content.num_row_groups)]
        return digest(repr((content.schema_arrow.remove_metadata(), groups)).encode())
    if file.suffix == ".safetensors":  # the order of its metadata differs between processes
        from safetensors.numpy import load_file

        tensors = sorted(load_file(file).items())
        return digest(
            b"".join(f"{name} {item.dtype} {item.shape}".encode() + item.tobytes() for name, item in tensors)
        )
    return digest(file.read_bytes())


def hash_folder(folder: Path) -> Iterator[tuple[str, str]]:
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file.suffix != ".md":
            yield str(file.relative_to(folder)), hash_file(file)


def collection(folder: Path) -> Path:
    """The tiny collection of the tests, imported from JSON Lines."""
    splits = []
    for split, questions in (("train", 40), ("dev", 20), ("test", 20)):
        rows = [
            {
                "question": pool.question,
                "candidates": [
                    {"text": text, "id": name, "label": pool.relevance.get(name, 0)}
                    for name, text in zip(pool.answer_ids, pool.texts, strict=True)
                ],
            }
            for pool in tiny.labelled_pools(split, questions)
        ]
        write_lines(Path(f"{split}.jsonl"), rows)
        splits.append(f"{split}={split}.jsonl")
    run("data", "import", "jsonl", *splits, "--answer-id", "id", "--output", folder)
    return folder


def presets(folder: Path) -> Iterator[tuple[str, str]]:
    """Train each preset on the tiny collection, and score, encode and score from the store with it."""
    network = networks.write_network(Path("network"))
    share_answers(folder, Path("shared"))
    trained = {
        **{name: tiny.options(name) for name in tiny.SYSTEMS},
        **{name: (*tiny.OPTIONS, *published.SMALL[name]) for name in published.PUBLISHED},
        **dict.fromkeys(networks.SYSTEMS, (*networks.QUICK, f"encoder.name={network}")),
    }
    for preset, options in trained.items():
        yield from outputs_of(preset, [word for option in options for word in ("--set", option)], folder)


def outputs_of(preset: str, options: list[str], folder: Path) -> Iterator[tuple[str, str]]:
    model = Path("models") / preset
    run(
        "train",
        folder,
        "--preset",
        preset,
        "--seed",
        1,
        "--output",
        model,
        "--set",
        "training.epochs=2",
        *options,
    )
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        yield f"{preset}/{name}", hash_file(model / name)
    pools = folder / "test.pools.parquet"
    run("score", pools, "--model", model, "--output", f"{preset}.run", "--device", "cpu")
    yield f"{preset}/run", digest(Path(f"{preset}.run").read_bytes())
    run(
        "score",
        "shared/test.pools.parquet",
        "--model",
        model,
        "--output",
        f"{preset}-shared.run",
        "--device",
        "cpu",
    )
    yield f"{preset}/run of shared answers", digest(Path(f"{preset}-shared.run").read_bytes())
    if preset in ("cross-minilm", "yin-2015", "wang-nyberg-2015", "wang-ittycheriah-2015"):
        return  # these do not encode answers alone
    store = Path("stores") / preset
    run("encode", pools, "--model", model, "--output", store, "--device", "cpu")
    for name, value in hash_folder(store):
        yield f"{preset}/store/{Path(name).suffix or name}", value
    run("score", pools, "--model", model, "--encoded", store, "--output", f"{preset}-stored.run")
    yield f"{preset}/run of the store", digest(Path(f"{preset}-stored.run").read_bytes())


def share_answers(imported: Path, folder: Path) -> None:
    """Write the test pools with their texts in a file of answers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    table = pq.read_table(imported / "test.pools.parquet")
    rows, shared = table.to_pylist(), imported / "answers.parquet"
    # An import may have shared the repeated answers already.
    existing = (
        {row["answer_id"]: row["text"] for row in pq.read_table(shared).to_pylist()}
        if shared.exists()
        else {}
    )
    texts = {}
    for row in rows:
        for candidate in row["candidates"]:
            name, text = candidate["answer_id"], candidate["text"]
            texts[name] = existing[name] if text is None else text
            candidate["text"] = None
    answers = [{"answer_id": name, "text": text} for name, text in sorted(texts.items())]
    schema = pa.schema([pa.field("answer_id", pa.string(), False), pa.field("text", pa.string(), False)])
    pq.write_table(pa.Table.from_pylist(answers, schema=schema), folder / "answers.parquet")
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), folder / "test.pools.parquet")


def fusions(folder: Path) -> Iterator[tuple[str, str]]:
    """Fuse two runs of random scores, by rank and by a model."""
    runs = [Path("first.run"), Path("second.run")]
    for number, file in enumerate(runs):
        lines = [
            (question, answer, int(digest(f"{number} {question} {answer}".encode()), 16) % 1000 / 7)
            for question, candidates in candidates_of(folder / "test.pools.parquet").items()
            for answer in candidates
        ]
        file.write_text("".join(f"{q} Q0 {a} 0 {score:.6f} made\n" for q, a, score in lines))
    qrels = folder / "test.qrels"
    run("fuse", *runs, "--output", "ranks.run")
    yield "reciprocal ranks", digest(Path("ranks.run").read_bytes())
    if importlib.util.find_spec("sklearn") is not None:
        run("fuse", *runs, "--train", qrels, "--output", "learned.run")
        yield "logistic", digest(Path("learned.run").read_bytes())


def candidates_of(file: Path) -> dict[str, list[str]]:
    import pyarrow.parquet as pq

    rows = pq.read_table(file).to_pylist()
    return {row["question_id"]: [item["answer_id"] for item in row["candidates"]] for row in rows}


def matrix(folder: Path) -> Iterator[tuple[str, str]]:
    """Run a matrix of four systems and two seeds."""
    settings = [*tiny.options("qa-cnn"), "training.epochs=2"]
    Path("matrix.toml").write_text(MATRIX.format(collection=folder.resolve(), settings=json.dumps(settings)))
    run("matrix", "matrix.toml", "--output", "matrix", "--device", "cpu")
    yield "table.json", hash_json(Path("matrix/table.json"))
    for file in sorted(Path("matrix").rglob("*.run")):
        yield str(file.relative_to("matrix")), digest(file.read_bytes())


def imports(folder: Path) -> Iterator[tuple[str, str]]:
    """Import a tiny data set of every format."""
    yield from ((f"jsonl/{name}", value) for name, value in hash_folder(folder))
    for name, arguments in sources().items():
        output = Path("imported") / name
        run("data", "import", *arguments, "--output", output)
        for file, value in hash_folder(output):
            yield f"{name}/{file}", value


def sources() -> dict[str, list[object]]:
    """Write a tiny data set of each format; return the arguments that import it."""
    write("pairs.tsv", "question\tanswer\tlabel\nWho?\tme\t1\nWho?\tyou\t0\nWhy?\tme\t0\nWhy?\tso\t1\n")
    write(
        "wikiqa.tsv",
        "QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel\n"
        "Q1\thow are caves formed?\tD1\tCave\tD1-0\tA cave .\t0\n"
        'Q1\thow are caves formed?\tD1\tCave\tD1-1\t"Water" forms them .\t1\n'
        'Q2\twhat is "lime"?\tD2\tLime\tD2-0\t"Lime is an old word\t0\n',
    )
    rows = (("7", "who ?", "me .", "1"), ("7", "who ?", "you .", "0"), ("8", "why ?", "me .", "0"))
    for number, name in enumerate(("id.txt", "a.toks", "b.toks", "sim.txt")):
        write(f"trecqa/{name}", "".join(row[number] + "\n" for row in rows))
    write("V1/vocabulary", "idx_1\twhat\nidx_2\tcovers\nidx_3\tfire\nidx_4\t40%\n")
    write("V1/answers.label.token_idx", "1\tidx_3\n2\tidx_4 idx_3\n3\tidx_2\n")
    write("V1/question.train.token_idx.label", "idx_1 idx_2 idx_3\t1 2\nidx_1\t2 2\n")
    write("V1/question.dev.label.token_idx.pool", "1\tidx_1 idx_3\t3 1 3 2\n")
    retrieval_sources()
    write("hub/data/train-00000-of-00001.csv", 'question,answer,label\nwho?,"me, too",1\nwho?,yes,0\n')
    write("hub/data/validation-00000-of-00001.csv", "question,answer,label\nwhy?,so,1\n")
    marco = ("--queries", "dev=marco/queries.tsv", "--qrels", "dev=marco/qrels.tsv")
    return {
        "tsv": ["tsv", "train=pairs.tsv"],
        "wikiqa": ["wikiqa", "train=wikiqa.tsv"],
        "trecqa": ["trecqa", "train=trecqa"],
        "insuranceqa": ["insuranceqa", "V1"],
        "beir": ["beir", "scifact"],
        "mteb": ["mteb", "task"],
        "msmarco": ["msmarco", "marco/collection.tsv", *marco],
        "hf": ["hf", "hub"],
    }


def retrieval_sources() -> None:
    """Write the same four documents and two queries in the layouts of BEIR, MTEB and MS MARCO."""
    documents = {
        "d1": "Aspirin reduces fever in adults",
        "d2": "Ibuprofen reduces pain",
        "d3": "fever is a symptom",
        "d4": "Bridges carry roads",
    }
    queries = {"q1": "does aspirin reduce fever", "q2": "what reduces pain"}
    judgements = [("q1", "d1", 2), ("q1", "d4", 1), ("q2", "d2", 1)]
    as_documents = [{"_id": name, "text": text} for name, text in documents.items()]
    as_queries = [{"_id": name, "text": text} for name, text in queries.items()]
    write_lines(Path("scifact/corpus.jsonl"), as_documents)
    write_lines(Path("scifact/queries.jsonl"), as_queries)
    header = "query-id\tcorpus-id\tscore\n"
    write("scifact/qrels/test.tsv", header + "".join(f"{q}\t{d}\t{grade}\n" for q, d, grade in judgements))
    write_lines(Path("task/corpus/test.jsonl"), as_documents)
    write_lines(Path("task/queries/test.jsonl"), as_queries)
    named = [{"query-id": q, "corpus-id": d, "score": grade} for q, d, grade in judgements]
    write_lines(Path("task/qrels/test.jsonl"), named)
    ranked = [{"query-id": query, "corpus-ids": list(documents)} for query in queries]
    write_lines(Path("task/top_ranked/test.jsonl"), ranked)
    write("marco/collection.tsv", "".join(f"{n}\t{text}\n" for n, text in enumerate(documents.values())))
    write("marco/queries.tsv", "".join(f"{n}\t{text}\n" for n, text in enumerate(queries.values())))
    write("marco/qrels.tsv", "0\t0\t0\t1\n1\t0\t1\t1\n")


def write(path: str, text: str) -> None:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def write_lines(file: Path, rows: list[dict[str, Any]]) -> None:
    write(str(file), "".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
