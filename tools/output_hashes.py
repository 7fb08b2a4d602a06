"""Print a hash of every output of aptool on tiny inputs, one line per output: NAME SHA256.

    python tools/output_hashes.py                            # print the lines
    python tools/output_hashes.py --compare tools/oracle.txt  # name each line that differs
    python tools/output_hashes.py > tools/oracle.txt          # record them

Only public commands run, nearly all in this process. Versions, times and paths are left out of JSON before it
is hashed. The libraries are held to instructions that every x86-64 processor has, so that machines agree,
except in trainings over word vectors: the lines are those of processors of AMD, and Intel's differ.
"""

import argparse
import contextlib
import hashlib
import importlib.util
import io
import json
import os
import runpy
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Read when the libraries load.
os.environ |= {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "OPENBLAS_CORETYPE": "Nehalem",
    "OMP_NUM_THREADS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Nodes and driver agree, whether the user's home folder has a token or not.
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(16),
}
ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import networks  # noqa: E402
import published  # noqa: E402
import tiny  # noqa: E402

# Keys of JSON that differ between versions, machines or seconds.
VOLATILE = {
    *("versions", "version", "python", "torch", "platform", "machine", "command", "path", "name"),
    *("seconds", "started", "finished", "created", "time", "fingerprint", "recipe_fingerprint", "key"),
    *("score_seconds", "train_seconds", "pairs_per_second"),
    *("sha256", "files", "preset", "tables"),
}
# Scored with two threads, and on two Ray nodes, as well.
REPEATED = ("qa-cnn", "ap-cnn", "qa-bilstm", "ap-bilstm", "mean-minilm", "mean-maxsim-minilm")
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
    parser.add_argument("--only", default="", help="only outputs whose kind begins so: import, matrix, ...")
    parser.add_argument("--compare", type=Path, help="file of lines to compare with; exit 1 if one differs")
    arguments = parser.parse_args()
    kinds = {
        "import": imports,
        "train": presets,
        "resume": resumed,
        "fuse": fusions,
        "evaluate": evaluations,
        "matrix": matrix,
        "cluster": cluster_runs,
    }
    lines = {}
    recorded = arguments.compare and arguments.compare.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        pools = collection(Path("tiny"))
        for kind, outputs in kinds.items():
            if kind.startswith(arguments.only):
                for name, value in outputs(pools):
                    lines[f"{kind}/{name}"] = value
                    if recorded is None:
                        print(f"{kind}/{name} {value}", flush=True)
    if recorded is not None:
        sys.exit(differences(recorded, lines, arguments.only))


def differences(recorded: str, lines: dict[str, str], only: str) -> int:
    """Print the names of the lines that differ; return the exit code."""
    before = dict(line.rsplit(" ", 1) for line in recorded.splitlines() if line.startswith(only))
    changed = [name for name in before if name in lines and lines[name] != before[name]]
    for title, names in {
        "changed": changed,
        "gone": [name for name in before if name not in lines],
        "new": [name for name in lines if name not in before],
    }.items():
        for name in names:
            print(f"{title}: {name}")
    print(f"{len(lines)} outputs, {sum(before.get(name) == value for name, value in lines.items())} equal")
    return int(lines != before)


def run(*arguments: object) -> str:
    """Run an aptool command in this process; return what it prints on stdout. Exit on its error."""
    output, errors = io.StringIO(), io.StringIO()
    sys.argv = ["aptool", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            runpy.run_module("aptool", run_name="__main__")
    except SystemExit as end:
        if end.code:
            sys.exit(f"{' '.join(sys.argv)}: exit code {end.code}\n{errors.getvalue()}")
    return output.getvalue()


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def stable(value: Any) -> Any:
    """A JSON document without the entries that differ between versions, machines or seconds."""
    if isinstance(value, dict):
        return {key: stable(entry) for key, entry in sorted(value.items()) if key not in VOLATILE}
    if isinstance(value, list):
        return [stable(entry) for entry in value]
    return value.replace(str(Path.cwd()), "") if isinstance(value, str) else value


def hash_json(text: str) -> str:
    return digest(json.dumps(stable(json.loads(text)), sort_keys=True).encode())


def hash_file(file: Path) -> str:
    """A hash of a file; of a Parquet file, of the rows of each row group, since the file names its writer."""
    if file.suffix == ".json":
        return hash_json(file.read_text())
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
        if file.is_file() and file.suffix != ".md" and not file.name.startswith("."):
            yield str(file.relative_to(folder)), hash_file(file)


def collection(folder: Path) -> Path:
    """The tiny collection of the tests, imported from a table."""
    splits = []
    for split, questions in (("train", 40), ("dev", 20), ("test", 20)):
        rows = ["question,answer,answer_id,label"]
        for pool in tiny.labelled_pools(split, questions):
            rows += [
                f"{pool.question},{text},{name},{pool.relevance.get(name, 0)}"
                for name, text in zip(pool.answer_ids, pool.texts, strict=True)
            ]
        write(f"{split}.csv", "\n".join([*rows, ""]))
        splits.append(f"{split}={split}.csv")
    run("data", "import", "table", *splits, "--answer-id", "answer_id", "--output", folder)
    return folder


def presets(folder: Path) -> Iterator[tuple[str, str]]:
    """Score with the baselines; train each preset on the tiny collection, and score with it."""
    share_answers(folder, Path("shared"))
    for baseline in ("bm25", "random"):
        for name, pools in (("run", folder), ("run of shared answers", Path("shared"))):
            yield f"{baseline}/{name}", scored(pools, baseline, Path(f"{baseline} {name}.run"))
    for preset in (*tiny.SYSTEMS, *published.PUBLISHED, *networks.SYSTEMS):
        yield from outputs_of(preset, folder)


def trained(preset: str, folder: Path) -> Path:
    """The model folder of a small version of a preset, trained for two epochs the first time."""
    model = Path("models") / preset
    if preset in networks.SYSTEMS:
        network = Path("network")
        options = (*networks.QUICK, f"encoder.name={network}")
        if not network.exists():
            networks.write_network(network)
    elif preset in published.PUBLISHED:
        options = (*tiny.OPTIONS, *published.SMALL[preset])
    else:
        options = tiny.options(preset)
    if not model.exists():
        run(*training(folder, preset, model, *options, "training.epochs=2"))
    return model


def outputs_of(preset: str, folder: Path) -> Iterator[tuple[str, str]]:
    import torch

    model = trained(preset, folder)
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        yield f"{preset}/{name}", hash_file(model / name)
    yield f"{preset}/run", scored(folder, model, Path(f"{preset}.run"))
    yield f"{preset}/run of shared answers", scored(Path("shared"), model, Path(f"{preset}-shared.run"))
    yield f"{preset}/rows", hash_file(scored_file(folder, model, Path(f"{preset}.parquet")))
    if preset in REPEATED:
        torch.set_num_threads(2)
        yield f"{preset}/run of two threads", scored(folder, model, Path(f"{preset}-two.run"))
        torch.set_num_threads(1)


def training(folder: Path, preset: str, model: Path, *options: str) -> list[object]:
    """Arguments of ``aptool train``."""
    settings = [word for option in options for word in ("--set", option)]
    return ["train", folder, "--preset", preset, "--seed", 1, "--output", model, *settings]


def scored(folder: Path, model: object, file: Path, *options: object) -> str:
    """The hash of a run of a folder's test pools."""
    return digest(scored_file(folder, model, file, *options).read_bytes())


def scored_file(folder: Path, model: object, file: Path, *options: object) -> Path:
    pools = folder / "test.pools.parquet"
    run("score", pools, "--model", model, "--output", file, "--device", "cpu", *options)
    return file


def resumed(folder: Path) -> Iterator[tuple[str, str]]:
    """Train without interruption, and killed after a checkpoint and resumed."""
    options = (*tiny.options("ap-cnn"), "training.epochs=15")
    whole, killed = Path("models/whole"), Path("models/killed")
    run(*training(folder, "ap-cnn", whole, *options))
    yield "whole/model.safetensors", hash_file(whole / "model.safetensors")
    command = [str(word) for word in training(folder, "ap-cnn", killed, *options)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-m", "aptool", *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    while process.poll() is None and not any(Path("models").glob("killed*/**/state.safetensors")):
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    if process.wait() != -signal.SIGKILL or (killed / "config.json").exists():
        sys.exit("the training ended before it was killed; give it more epochs")
    run(*command)
    yield "killed/model.safetensors", hash_file(killed / "model.safetensors")


def evaluations(folder: Path) -> Iterator[tuple[str, str]]:
    """Print evaluations, comparisons and explanations as JSON."""
    qrels = folder / "test.qrels"
    for model in ("bm25", "random"):
        scored(folder, model, Path(f"{model}.run"))
    measures = ("--measures", "MAP,MRR,P@1,nDCG@10,R@5,Success@3")
    of_runs = ("bm25.run", "random.run", "--qrels", qrels, *measures)
    yield "eval", hash_json(run("eval", *of_runs, "--json", "--intervals"))
    yield "compare", hash_json(run("compare", *of_runs, "--format", "json"))
    question, answer = "where is the river with the bridge", "the river near the bridge is silver"
    for preset in (*tiny.SYSTEMS, "mean-maxsim-minilm"):
        pair = ("--model", trained(preset, folder), "--question", question, "--answer", answer)
        yield f"explain {preset}", hash_json(run("explain", *pair, "--json"))


def cluster_runs(folder: Path) -> Iterator[tuple[str, str]]:
    """Score on two Ray nodes; the hashes are those of one process."""
    import logging

    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 0, "include_dashboard": False},
        shutdown_at_exit=False,
    )
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1)
        logging.disable(logging.WARNING)
        for model in ("bm25", "random", *REPEATED):
            system = model if model in ("bm25", "random") else trained(model, folder)
            options = ("--cluster", cluster.address, "--workers", 2)
            yield f"{model}/run", scored(folder, system, Path(f"{model}-cluster.run"), *options)
    finally:
        cluster.shutdown()


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
    yield "table.json", hash_file(Path("matrix/table.json"))
    for file in sorted(Path("matrix").rglob("*.run")):
        yield str(file.relative_to("matrix")), digest(file.read_bytes())


def imports(folder: Path) -> Iterator[tuple[str, str]]:
    """Import a tiny data set of every format."""
    yield from ((f"tiny/{name}", value) for name, value in hash_folder(folder))
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
    return {
        "table": ["table", "train=pairs.tsv"],
        "wikiqa": ["wikiqa", "train=wikiqa.tsv"],
        "trecqa": ["trecqa", "train=trecqa"],
        "insuranceqa": ["insuranceqa", "V1"],
        "retrieval": ["retrieval", "scifact", "--run", "test=scifact/first.run"],
    }


def retrieval_sources() -> None:
    """Write four documents, two queries, their judgements and a run in the layout of BEIR."""
    documents = {
        "d1": "Aspirin reduces fever in adults",
        "d2": "Ibuprofen reduces pain",
        "d3": "fever is a symptom",
        "d4": "Bridges carry roads",
    }
    queries = {"q1": "does aspirin reduce fever", "q2": "what reduces pain"}
    judgements = [("q1", "d1", 2), ("q1", "d4", 1), ("q2", "d2", 1)]
    write_lines(
        Path("scifact/corpus.jsonl"), [{"_id": name, "text": text} for name, text in documents.items()]
    )
    write_lines(
        Path("scifact/queries.jsonl"), [{"_id": name, "text": text} for name, text in queries.items()]
    )
    header = "query-id\tcorpus-id\tscore\n"
    write("scifact/qrels/test.tsv", header + "".join(f"{q}\t{d}\t{grade}\n" for q, d, grade in judgements))
    write(
        "scifact/first.run",
        "q1 Q0 d1 1 2 bm25\nq1 Q0 d3 2 1 bm25\nq2 Q0 d2 1 2 bm25\nq2 Q0 d1 2 1 bm25\n",
    )


def write(path: str, text: str) -> None:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def write_lines(file: Path, rows: list[dict[str, Any]]) -> None:
    write(str(file), "".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
