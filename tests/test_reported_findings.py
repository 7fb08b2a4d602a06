"""Inputs and outputs that once lost a user's file, ended in a traceback, or gave another figure.

Each ends in one line that names the file, or in the stated figure. `test_existing_outputs.py`,
`models/test_hostile_tokenizers.py` and `evaluation/test_measures.py` have further cases.
"""

import hashlib
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from tiny import options

from aptool.formats.outputs import MANIFEST

TSV = "qid\tquestion\taid\tanswer\tlabel\nq1\twhere\ta1\there\t1\nq1\twhere\ta2\tthere\t0\n"
IMPORT = ("data", "import", "tsv", "--question-id", "qid", "--answer-id", "aid")


@pytest.fixture(scope="module")
def matrix_inputs(tmp_path_factory, collection_folder):
    """A matrix of two baselines, their fusion and a trained model, and its finished output; read only."""
    from aptool.experiments.matrix import read_matrix
    from aptool.experiments.runner import run_matrix
    from aptool.experiments.table import summarize, write_table

    folder = tmp_path_factory.mktemp("matrix")
    settings = json.dumps(list(options("qa-cnn", "training.epochs=1")))
    (folder / "table.toml").write_text(
        f'[collections.c]\npath = "{collection_folder}"\nsplit = "test"\n'
        '[systems.b]\nbaseline = "bm25"\n[systems.r]\nbaseline = "random"\n[systems.f]\nfuse = ["b", "r"]\n'
        f'[systems.t]\npreset = "qa-cnn"\nset = {settings}\n'
        '[[rows]]\ncollection = "c"\nsystems = ["b", "r", "f", "t"]\n'
    )
    plan = read_matrix(folder / "table.toml", {})
    results = run_matrix(plan, folder / "out")
    write_table(folder / "out", summarize(results), results, [], plan.measures, "command")
    return folder


@pytest.fixture
def matrix(matrix_inputs, tmp_path):
    """The table and a copy of its output, which a test may change."""
    shutil.copytree(matrix_inputs / "out", tmp_path / "out")
    return matrix_inputs / "table.toml", tmp_path / "out"


def assert_one_line(finished, *phrases):
    assert finished.code in (1, 2)
    errors = [line for line in finished.err if line.startswith("aptool: ")]
    assert len(errors) == 1, finished.err
    assert "Traceback" not in "\n".join(finished.err)
    for phrase in phrases:
        assert phrase in errors[0], errors[0]


def hashes(folder):
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and path.name != MANIFEST
    }


# Files of other programs that begin as runs do: six fields, of which the fifth is a number for Python.
ALMOST_RUNS = {
    "text": "To the limit of infinity and beyond: my thesis\n",
    "GloVe": "the 0.1 0.2 0.3 0.4 0.5\n",
    "ls": "-rw-r--r-- 1 me me 42 thesis.txt\n",
    "log": "2026-11-01 12:00:00 worker 3 0.25 done\n",
    "savetxt": "1.0e+00 2.0e+00 3.0e+00 4.0e+00 nan 6.0e+00\n",
}


@pytest.mark.parametrize("text", ALMOST_RUNS.values(), ids=ALMOST_RUNS)
def test_text_that_begins_as_a_run_is_kept(aptool, collection_folder, tmp_path, text):
    (tmp_path / "thesis.txt").write_text(text)

    finished = aptool(
        *("score", collection_folder / "test.pools.parquet", "--model", "random"),
        *("--output", tmp_path / "thesis.txt"),
    )

    assert_one_line(finished, "thesis.txt", "--overwrite")
    assert (tmp_path / "thesis.txt").read_text() == text


def test_output_that_ends_in_a_slash_is_no_run(aptool, collection_folder, tmp_path):
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "run.json").write_text('{"scripts": {}}')
    (tmp_path / "dir" / f"{'0' * 24}.run").write_text("mine")
    before = hashes(tmp_path)

    finished = aptool(
        *("score", collection_folder / "test.pools.parquet", "--model", "random"),
        *("--output", f"{tmp_path}/dir/"),
    )

    assert_one_line(finished, "dir")
    assert hashes(tmp_path) == before


@pytest.mark.parametrize("config", [None, "{}", '{"model_type": "bert"}', "[]"])
def test_training_keeps_the_weights_of_other_libraries(aptool, collection_folder, tmp_path, config):
    model = tmp_path / "mm"
    model.mkdir()
    (model / "model.safetensors").write_bytes(b"weights of a timm model")
    if config is not None:
        (model / "config.json").write_text(config)
    before = hashes(model)

    finished = aptool("train", collection_folder, "--preset", "qa-cnn", "--output", model)

    assert_one_line(finished, "mm")
    assert hashes(model) == before


def test_training_in_a_bucket_keeps_a_config_of_another_program(aptool, collection_folder, bucket):
    from aptool.formats.location import location, store_of

    store, key = store_of(f"{bucket}/mm/config.json")
    assert store.create(key, b"{}")

    assert_one_line(
        aptool("train", collection_folder, "--preset", "qa-cnn", "--output", f"{bucket}/mm"), "mm"
    )
    assert location(f"{bucket}/mm/config.json").read_bytes() == b"{}"


def test_import_keeps_a_collection_of_another_program(aptool, tmp_path):
    (tmp_path / "x.tsv").write_text(TSV)
    col = tmp_path / "col"
    col.mkdir()
    (col / "collection.json").write_text('{"info": {"name": "my Postman collection"}}')
    (col / "test.qrels").write_text("q 0 a 1\n")
    before = hashes(col)

    assert_one_line(aptool(*IMPORT, f"test={tmp_path / 'x.tsv'}", "--output", col), "col")
    assert hashes(col) == before


def test_import_keeps_corrected_qrels(aptool, tmp_path):
    (tmp_path / "x.tsv").write_text(TSV)
    command = (*IMPORT, f"test={tmp_path / 'x.tsv'}", "--output", tmp_path / "col")
    assert aptool(*command).code == 0
    qrels = tmp_path / "col" / "test.qrels"
    qrels.write_text(qrels.read_text().replace("a1 1", "a1 0"))
    before = hashes(tmp_path / "col")

    assert_one_line(aptool(*command), "test.qrels: changed since aptool wrote it")
    assert hashes(tmp_path / "col") == before


@pytest.mark.parametrize("name", ["test.qrels", "test.pools.parquet", "collection.json"])
def test_files_of_a_collection_are_no_output_of_other_commands(aptool, collection_folder, tmp_path, name):
    shutil.copytree(collection_folder, tmp_path / "col")
    runs = tmp_path / "r.run"
    pools = collection_folder / "test.pools.parquet"
    assert aptool("score", pools, "--model", "random", "--output", runs).code == 0
    before = hashes(tmp_path)
    target = tmp_path / "col" / name
    evaluate = ("eval", runs, "--qrels", collection_folder / "test.qrels", "--per-question", target)

    assert_one_line(aptool(*evaluate), name)
    assert hashes(tmp_path) == before


def _flip_first(text):
    head, _, rest = text.partition("\n")
    fields = head.split(" ")
    fields[4] = f"-{fields[4]}"
    return " ".join(fields) + "\n" + rest


def _first_half(text):
    lines = text.splitlines(keepends=True)
    return "".join(lines[: len(lines) // 2])


@pytest.mark.parametrize("edit", [_flip_first, _first_half, None], ids=["sign", "half", "other run"])
@pytest.mark.parametrize("command", ["matrix", "report"])
def test_changed_run_of_a_matrix_is_not_evaluated(aptool, matrix, tmp_path, edit, command):
    table, out = matrix
    run = out / "c" / "b" / "seed0" / "test.run"
    other = (out / "c" / "r" / "seed0" / "test.run").read_text()
    run.write_text(edit(run.read_text()) if edit is not None else other)
    before = hashes(out)

    if command == "matrix":
        finished = aptool("matrix", table, "--output", out)
    else:
        finished = aptool("report", out, "--output", tmp_path / "report.html")

    assert_one_line(finished, "test.run")
    assert hashes(out) == before
    assert not (tmp_path / "report.html").exists()


BAD_RESULTS = {
    "training time is text": lambda result: result["seconds"].update(train="long"),
    "no training time": lambda result: result["seconds"].pop("train"),
    "endless training": lambda result: result["seconds"].update(train=math.inf),
    "pairs are text": lambda result: result["costs"].update(pairs="many"),
    "no seconds for a pair": lambda result: (
        result["seconds"].update(score=0),
        result["costs"].update(pairs=1),
    ),
}


@pytest.mark.parametrize("damage", BAD_RESULTS.values(), ids=BAD_RESULTS)
def test_edited_result_of_a_matrix_is_one_line(aptool, matrix, damage):
    table, out = matrix
    result = out / "c" / "t" / "seed0" / "test.json"
    document = json.loads(result.read_text())
    damage(document)
    result.write_text(json.dumps(document))
    before = hashes(out)

    assert_one_line(aptool("matrix", table, "--output", out), "test.json: changed since aptool wrote it")
    assert hashes(out) == before


def test_interpolated_precision_is_that_of_trec_eval_10(tmp_path):
    """One of three relevant answers is ranked: trec_eval 10 rounds a recall up to 0.4 to one answer."""
    qrels = "".join(f"q 0 {name} {label}\n" for name, label in (("a", 1), ("b", 1), ("c", 1), ("d", 0)))
    (tmp_path / "x.qrels").write_text(qrels)
    (tmp_path / "x.run").write_text("q Q0 a 1 2.0 t\nq Q0 d 2 1.0 t\n")
    import aptool as library

    measures = ["11pt_avg", "iprec_at_recall_0.40"]
    results = library.evaluate(tmp_path / "x.qrels", tmp_path / "x.run", measures)

    assert results.means["11pt_avg"] == pytest.approx(5 / 11)
    assert results.means["IPrec@0.4"] == 1


@pytest.mark.parametrize("where", ["parts", "training", "encode"])
@pytest.mark.parametrize("through_link", [False, True], ids=["folder", "link"])
def test_file_of_the_user_at_the_place_of_a_claim_is_kept(
    aptool, collection_folder, model_folder, tmp_path, where, through_link
):
    folders = {"parts": "x.run.parts", "training": "m.training", "encode": "store"}
    folder = tmp_path / folders[where]
    mine = tmp_path / "mine" if through_link else folder
    mine.mkdir()
    if through_link:
        folder.symlink_to(mine)
    name = "writer" if where == "encode" else "driver"
    (mine / name).write_text("the driver of my printer\n")
    (mine / f"{'a' * 24}.part").write_text("a part of mine")
    before = hashes(mine)
    pools = collection_folder / "test.pools.parquet"
    command = {
        "parts": ("score", pools, "--model", "random", "--output", tmp_path / "x.run"),
        "training": ("train", collection_folder, "--preset", "qa-cnn", "--output", tmp_path / "m"),
        "encode": ("encode", pools, "--model", model_folder, "--output", folder),
    }[where]

    assert_one_line(aptool(*command), folders[where])
    assert hashes(mine) == before


def test_file_of_the_user_among_the_parts_is_kept(aptool, collection_folder, tmp_path):
    """A name of 24 hexadecimal digits is not enough to be a part."""
    folder = tmp_path / "x.run.parts"
    folder.mkdir()
    (folder / f"{'a' * 24}.part").write_text("a part of mine")

    finished = aptool(
        *("score", collection_folder / "test.pools.parquet", "--model", "random"),
        *("--output", tmp_path / "x.run"),
    )

    assert finished.code in (0, 1)
    assert (folder / f"{'a' * 24}.part").read_text() == "a part of mine"


BY_HAND = """schema-version: '0.2'
# how I ran Anserini
method:
  automatic: true
  retrieval:
  - name: BM25
    k1: 0.9
platform:
  software:
    retrieval toolkit:
    - anserini==0.36
"""


def test_metadata_of_another_system_are_kept(aptool, collection_folder, tmp_path):
    metadata = tmp_path / "x.run.ir-metadata.yml"
    metadata.write_text(BY_HAND)

    finished = aptool(
        *("score", collection_folder / "test.pools.parquet", "--model", "random"),
        *("--output", tmp_path / "x.run"),
    )

    assert_one_line(finished, "x.run.ir-metadata.yml")
    assert metadata.read_text() == BY_HAND
    assert not (tmp_path / "x.run").exists()


def test_entries_added_to_the_metadata_of_a_run_are_kept(aptool, collection_folder, tmp_path):
    command = (
        *("score", collection_folder / "test.pools.parquet", "--model", "random"),
        *("--output", tmp_path / "x.run"),
    )
    assert aptool(*command).code == 0
    metadata = tmp_path / "x.run.ir-metadata.yml"
    metadata.write_text(metadata.read_text().replace("method:\n", "method:\n  mine: note\n", 1))
    before = metadata.read_text()
    assert "mine: note" in before

    finished = aptool(*command)

    assert finished.code == 1 or "mine: note" in metadata.read_text()
    if finished.code:
        assert_one_line(finished, "x.run.ir-metadata.yml")
        assert metadata.read_text() == before


def test_seed_of_more_than_64_bits_in_a_model_is_one_line(aptool, collection_folder, model_folder, tmp_path):
    shutil.copytree(model_folder, tmp_path / "m")
    config = tmp_path / "m" / "config.json"
    document = json.loads(config.read_text())
    document["training"]["seed"] = 2**64
    config.write_text(json.dumps(document))
    command = ("score", collection_folder / "test.pools.parquet", "--output", tmp_path / "x.run", "--model")

    assert_one_line(aptool(*command, tmp_path / "m"), "config.json")
    assert aptool(*command, model_folder).code == 0  # the output is not blocked


def beir(folder, documents, qrels):
    (folder / "qrels").mkdir(parents=True)
    rows = [json.dumps({"_id": name, "title": "", "text": text}) for name, text in documents.items()]
    (folder / "corpus.jsonl").write_text("\n".join([*rows, ""]))
    (folder / "queries.jsonl").write_text(json.dumps({"_id": "q1", "text": "where is the river"}) + "\n")
    for split, lines in qrels.items():
        text = "\n".join(["query-id\tcorpus-id\tscore", *lines, ""])
        (folder / "qrels" / f"{split}.tsv").write_text(text)


def test_beir_qrels_with_an_empty_document_name_the_qrels(aptool, tmp_path):
    beir(tmp_path / "b", {"d1": "by the bridge", "d2": "far"}, {"test": ["q1\td1\t1", "q1\t\t1"]})

    finished = aptool("data", "import", "beir", tmp_path / "b", "--output", tmp_path / "c")

    assert_one_line(finished, "test.tsv", "line 3")


def test_beir_split_without_a_question_names_the_reason(aptool, tmp_path):
    beir(tmp_path / "b", {"d1": "by the bridge"}, {"test": ["q1\td1\t1"], "dev": ["q9\td1\t1"]})

    finished = aptool("data", "import", "beir", tmp_path / "b", "--output", tmp_path / "c")

    if finished.code:
        assert_one_line(finished, "dev.tsv")
        assert "1 questions" not in finished.err[-1]


def test_weights_of_another_library_that_are_not_finite_are_named(aptool, collection_folder, tmp_path):
    torch = pytest.importorskip("torch")
    library = pytest.importorskip("sentence_transformers")
    from networks import write_network
    from safetensors.torch import load_file, save_file

    network = write_network(tmp_path / "bert")
    library.SentenceTransformer(str(network), device="cpu").save(str(tmp_path / "st"))
    path = tmp_path / "st" / "model.safetensors"
    weights = load_file(path)
    name = sorted(weights)[0]
    weights[name] = torch.full_like(weights[name], math.nan)
    save_file(weights, path)

    finished = aptool(
        *("score", collection_folder / "test.pools.parquet", "--model", tmp_path / "st"),
        *("--output", tmp_path / "x.run"),
    )

    assert_one_line(finished, str(tmp_path / "st"), "NaN or infinite")


@pytest.mark.parametrize("field", ["hidden_dropout_prob", "num_hidden_layers", "vocab_size"])
def test_wrong_field_of_a_network_is_named_with_its_file(aptool, collection_folder, tmp_path, field):
    pytest.importorskip("sentence_transformers")
    from networks import write_network

    network = write_network(tmp_path / "bert")
    document = json.loads((network / "config.json").read_text())
    document[field] = "many"
    (network / "config.json").write_text(json.dumps(document))

    finished = aptool(
        *("score", collection_folder / "test.pools.parquet", "--model", network),
        *("--output", tmp_path / "x.run"),
    )

    assert_one_line(finished, "config.json", field)


@pytest.mark.parametrize(
    "command",
    [
        ("data", "import", "tsv", "test=/dev/zero"),
        ("data", "import", "jsonl", "test=/dev/zero"),
        ("data", "import", "wikiqa", "/dev/zero"),
        ("eval", "/dev/zero", "--qrels", "/dev/zero"),
    ],
    ids=lambda command: command[2] if command[0] == "data" else command[0],
)
def test_devices_are_no_inputs(aptool, tmp_path, command):
    more = () if command[0] == "eval" else ("--output", tmp_path / "c")
    assert_one_line(aptool(*command, *more), "/dev/zero")


def test_long_key_of_a_bucket_is_one_line_before_the_work(aptool, collection_folder, bucket):
    from aptool.formats.location import store_of

    url = f"{bucket}/{'k' * 1000}"

    finished = aptool("score", collection_folder / "test.pools.parquet", "--model", "random", "--output", url)

    store, key = store_of(url)
    if finished.code:
        assert_one_line(finished, bucket)
    else:
        assert store.stat(key).size
        assert store.stat(f"{key}.ir-metadata.yml").size


def test_url_with_one_slash_is_no_folder(aptool, collection_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    finished = aptool(
        *("score", collection_folder / "test.pools.parquet", "--model", "random"),
        *("--output", "s3:/bkt/x.run"),
    )

    assert_one_line(finished, "s3://bkt/x.run")
    assert not list(tmp_path.iterdir())


def test_run_with_an_id_with_a_blank_is_one_line(aptool, tmp_path):
    (tmp_path / "x.run").write_text("q Q0 a 1 1 0.9 t\nq Q0 b 1 2 0.8 t\n")
    (tmp_path / "x.qrels").write_text("q 0 a 1\n")

    finished = aptool("eval", tmp_path / "x.run", "--qrels", tmp_path / "x.qrels")

    assert_one_line(finished, "x.run", "line 1", "7")


def test_number_and_text_are_two_ids_or_one_line(aptool, tmp_path):
    rows = [
        {"question": "where", "question_id": 1, "candidates": [{"text": "x", "label": 1}]},
        {"question": "who", "question_id": "1", "candidates": [{"text": "y", "label": 1}]},
    ]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    finished = aptool(
        *("data", "import", "jsonl", f"test={tmp_path / 'x.jsonl'}", "--output", tmp_path / "c"),
        *("--question-id", "question_id"),
    )

    assert_one_line(finished, "x.jsonl")


def test_scores_beyond_the_integers_of_a_float_are_one_line():
    import polars

    import aptool as library

    frame = polars.DataFrame(
        {"question_id": ["q", "q"], "answer_id": ["a", "b"], "score": np.array([2**53, 2**53 + 1])}
    )
    with pytest.raises(library.AptoolError, match="9007199254740993"):
        library.Run(frame)


@pytest.mark.parametrize("other", ["q 0 b 0\n", "q\t0\tb\t0\n", "q 0 b 0 \n", 'q 0 "b 0\n'])
def test_leading_zeros_of_a_relevance_do_not_depend_on_other_lines(aptool, tmp_path, other):
    (tmp_path / "x.qrels").write_text(f"q 0 a {'0' * 40}1\n{other}")
    (tmp_path / "x.run").write_text("q Q0 a 1 1.0 t\n")
    (tmp_path / "y.qrels").write_text(f"q 0 a {'0' * 40}1\n")

    finished = aptool("eval", tmp_path / "x.run", "--qrels", tmp_path / "x.qrels")
    alone = aptool("eval", tmp_path / "x.run", "--qrels", tmp_path / "y.qrels")

    assert finished.code == alone.code


def test_folds_that_cannot_be_finished_leave_nothing(aptool, collection_folder, tmp_path, monkeypatch):
    """The third fold meets a full disk."""
    from aptool.datasets import folds

    written, write = [], folds._write_fold

    def failing(*given):
        if len(written) == 2:
            raise OSError(28, "No space left on device", str(given[1]))
        written.append(given[1])
        write(*given)

    monkeypatch.setattr(folds, "_write_fold", failing)

    assert_one_line(aptool("data", "folds", collection_folder, "--output", tmp_path / "f"), "No space")
    assert not [path for path in Path(tmp_path).rglob("*") if path.is_file() and path.name != MANIFEST]
