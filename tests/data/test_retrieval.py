"""Import of small retrieval collections with a first-stage run as pools for re-ranking."""

import json
import re
import sys
from types import SimpleNamespace

import pytest
from imported import candidates_of

from aptool.data.collection import Collection
from aptool.data.retrieval import import_retrieval, read_beir, read_files, read_ir_datasets
from aptool.data.trec import read_qrels
from aptool.environment import install_command
from aptool.errors import AptoolError, InputError, UsageError

# SciFact's layout; d3 has no title, d4 shares no word with any query.
DOCUMENTS = {
    "d1": ("Aspirin", "reduces fever in adults"),
    "d2": ("Ibuprofen", "reduces pain"),
    "d3": ("", "fever is a symptom"),
    "d4": ("Bridges", "carry roads"),
}
QUERIES = {"q1": "does aspirin reduce fever", "q2": "what reduces pain", "q9": "is never judged"}
QRELS = [("q1", "d1", 2), ("q1", "d4", 1), ("q2", "d2", 1)]


def lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def tsv(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))
    return path


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "scifact"
    rows = [
        {"_id": d, "title": title, "text": text, "metadata": {}} for d, (title, text) in DOCUMENTS.items()
    ]
    lines(root / "corpus.jsonl", rows)
    lines(root / "queries.jsonl", [{"_id": q, "text": text, "metadata": {}} for q, text in QUERIES.items()])
    tsv(root / "qrels" / "test.tsv", [("query-id", "corpus-id", "score"), *QRELS])
    return root


RUN = "q1 Q0 d4 1 9 x\nq1 Q0 d2 2 8 x\nq1 Q0 d1 3 7 x\nq2 Q0 d2 1 1 x\n"


@pytest.fixture
def run(tmp_path):
    path = tmp_path / "first.run"
    path.write_text(RUN)
    return str(path)


def import_beir(out, folder, run, **options):
    return import_retrieval(out, read_beir(folder, {"test": run}), **options)


@pytest.fixture
def import_ir_datasets(monkeypatch):
    """Imports a data set as if ir_datasets had it."""

    def run(out, dataset, runs=None):
        monkeypatch.setitem(sys.modules, "ir_datasets", SimpleNamespace(load=lambda name: dataset))
        return import_retrieval(out, read_ir_datasets({"test": "x"}, runs or {}))

    return run


def ids_of(collection):
    return {query: list(pool) for query, pool in candidates_of(collection).items()}


def test_beir_with_a_run(folder, run, tmp_path):
    collection = import_beir(tmp_path / "out", folder, run, depth=2)

    texts = {d: " ".join(parts) for d, parts in DOCUMENTS.items()}
    pools = {"q1": ["d4", "d2"], "q2": ["d2"]}
    assert candidates_of(collection) == {q: {d: texts[d] for d in ids} for q, ids in pools.items()}
    assert sorted(read_qrels(collection.qrels_file("test")).iter_rows()) == sorted(QRELS)
    stage = collection.manifest["details"]["first_stage"]["test"]
    assert stage == {"relevant": 3, "relevant_missed": 1, "relevant_added": 0}


def test_the_command_counts_the_relevant_documents_that_the_run_missed(aptool, folder, run, tmp_path):
    command = ("data", "import", "retrieval", folder, "--output", tmp_path / "out")
    finished = aptool(*command, "--run", f"test={run}", "--depth", 2)

    assert finished.code == 0, finished.err
    about = [line for line in finished.err if line.startswith("test: ") and "warning" not in line]
    assert about == ["test: the first stage missed 1 of 3 relevant answers (33.3%)"]
    assert aptool("data", "check", tmp_path / "out").code == 0


def test_relevant_documents_are_added_to_the_named_splits_only(aptool, folder, run, tmp_path):
    """The first stage of depth 2 misses d1 of q1. Only the named split gets it, and figures say so."""
    tsv(folder / "qrels" / "train.tsv", [("query-id", "corpus-id", "score"), *QRELS])
    out = tmp_path / "out"
    command = ("data", "import", "retrieval", folder, "--depth", 2, "--output", out)
    runs = ("--run", f"train={run}", "--run", f"test={run}")
    assert aptool(*command, *runs, "--add-relevant", "train").code == 0

    collection = Collection(out)
    assert candidates_of(collection, "train")["q1"].keys() == {"d4", "d2", "d1"}
    assert candidates_of(collection, "test")["q1"].keys() == {"d4", "d2"}
    details = collection.manifest["details"]
    assert details["pools"]["add_relevant"] == ["train"]
    assert {split: stage["relevant_added"] for split, stage in details["first_stage"].items()} == {
        "train": 1,
        "test": 0,
    }
    other = tmp_path / "other.run"
    other.write_text(RUN)
    warning = (
        "train: warning: its pools hold 1 relevant answer that the first stage missed (--add-relevant), so "
        "figures are higher than after this first stage"
    )
    for split, expected in (("train", [warning]), ("test", [])):
        for evaluate in (("eval", run), ("compare", run, other)):
            finished = aptool(*evaluate, "--qrels", out / f"{split}.qrels")
            assert finished.code == 0, finished.err
            assert [line for line in finished.err if "--add-relevant" in line] == expected

    wrong = aptool(*command, *runs, "--add-relevant", "trian", "--overwrite")
    assert wrong.code == 2
    assert "--add-relevant trian: expected one of the splits train, test" in "\n".join(wrong.err)


def test_files_of_a_corpus_queries_and_qrels(aptool, tmp_path, run):
    """TSV lines of id and text as in MS MARCO, in a folder, with qrels of TREC."""
    texts = {d: " ".join(parts).strip() for d, parts in DOCUMENTS.items()}
    tsv(tmp_path / "corpus" / "docs.tsv", texts.items())
    queries, qrels = tsv(tmp_path / "queries.tsv", QUERIES.items()), tmp_path / "x.qrels"
    qrels.write_text("".join(f"{q} 0 {d} {label}\n" for q, d, label in QRELS))

    finished = aptool(
        *("data", "import", "retrieval", "--corpus", tmp_path / "corpus", "--queries", queries),
        *("--qrels", f"dev={qrels}", "--run", f"dev={run}", "--output", tmp_path / "out"),
    )

    assert finished.code == 0, finished.err
    collection = Collection(tmp_path / "out")
    assert candidates_of(collection, "dev")["q1"] == {d: texts[d] for d in ("d4", "d2", "d1")}
    assert sorted(read_qrels(collection.qrels_file("dev")).iter_rows()) == sorted(QRELS)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "expected FOLDER, SPLIT=ID, or all of --corpus, --queries and --qrels"),
        (["b", "--corpus", "c.tsv"], "expected FOLDER, SPLIT=ID, or all of --corpus, --queries and --qrels"),
        (
            ["--corpus", "c", "--queries", "q", "--qrels", "dev=q"],
            "'dev': expected it in --qrels and in --run",
        ),
    ],
)
def test_missing_files_are_wrong_usage(aptool, tmp_path, arguments, message):
    finished = aptool("data", "import", "retrieval", *arguments, "--output", tmp_path / "out")
    assert finished.code == UsageError.exit_code
    assert message in finished.err[-1]


def catalogued(scored=(), judged=QRELS, *, has_qrels=True):
    """A data set with the iterators that ir_datasets documents."""

    def records(*names, rows):
        return lambda: (SimpleNamespace(**dict(zip(names, row, strict=True))) for row in rows)

    def text(*parts):
        return lambda: " ".join(parts).strip()

    return SimpleNamespace(
        has_docs=lambda: True,
        has_queries=lambda: True,
        has_qrels=lambda: has_qrels,
        has_scoreddocs=lambda: bool(scored),
        docs_iter=records("doc_id", "default_text", rows=[(d, text(*p)) for d, p in DOCUMENTS.items()]),
        queries_iter=records("query_id", "default_text", rows=[(q, text(t)) for q, t in QUERIES.items()]),
        qrels_iter=records("query_id", "doc_id", "relevance", rows=judged),
        scoreddocs_iter=records("query_id", "doc_id", "score", rows=scored),
    )


def test_ir_datasets_objects(tmp_path, run, import_ir_datasets):
    scored = [("q1", "d3", 1.5), ("q1", "d1", 2.5), ("q2", "d1", 1.0)]

    collection = import_ir_datasets(tmp_path / "out", catalogued(scored))
    with_run = import_ir_datasets(tmp_path / "run", catalogued(scored), {"test": run})

    assert ids_of(collection) == {"q1": ["d1", "d3"], "q2": ["d1"]}
    assert ids_of(with_run) == {"q1": ["d4", "d2", "d1"], "q2": ["d2"]}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda root: (root / "corpus.jsonl").unlink(), r"corpus\.jsonl: file not found; expected"),
        (
            lambda root: tsv(
                root / "qrels" / "test.tsv", [("query-id", "corpus-id", "score"), ("q7", "d1", 1)]
            ),
            r"1 judged query without a text.*'q7'",
        ),
        (
            lambda root: tsv(root / "qrels" / "test.tsv", [("q1", 0, "d1", 1), ("q1", 0, "d1", 0)]),
            r"test\.tsv: line 2: ",
        ),
        (
            lambda root: (root / "corpus.jsonl").write_text('{"_id": "d1"}\n'),
            r"line 1: column 'text': None: expected a text",
        ),
        (
            lambda root: (root / "queries.jsonl").write_text('{"_id": "a b", "text": "x"}\n'),
            "'a b': expected an id",
        ),
    ],
)
def test_errors_name_file_and_position(folder, run, tmp_path, damage, message):
    damage(folder)

    with pytest.raises(InputError, match=message):
        import_beir(tmp_path / "out", folder, run)

    assert not (tmp_path / "out").exists()


def test_the_error_of_a_run_over_other_queries_has_ids_of_both(folder, tmp_path, import_ir_datasets):
    run = tmp_path / "other.run"
    run.write_text("PLAIN-1 Q0 d4 1 9 x\n")

    with pytest.raises(InputError, match=r"the first id is 'PLAIN-1', but 'q1' in that file"):
        import_beir(tmp_path / "out", folder, str(run))
    with pytest.raises(UsageError, match=r"--run: split 'dev': expected one of test"):
        import_ir_datasets(tmp_path / "out", catalogued(), {"dev": str(run)})
    with pytest.raises(UsageError, match=r"split 'test': no first-stage run; expected --run test=FILE"):
        import_ir_datasets(tmp_path / "out", catalogued())


def test_candidates_that_are_not_in_the_corpus_are_refused(folder, tmp_path):
    run = tmp_path / "first.run"
    run.write_text("q1 Q0 d1 1 9 x\nq1 Q0 d77 2 8 x\nq2 Q0 d78 1 8 x\n")

    with pytest.raises(InputError, match=r"corpus\.jsonl: 2 of 3 candidates not found, such as 'd77'"):
        import_beir(tmp_path / "out", folder, str(run))


def test_a_catalogue_without_usable_qrels_is_refused(tmp_path, monkeypatch, import_ir_datasets):
    contradictory = catalogued(judged=[("q1", "d1", 1), ("q1", "d1", 0)])
    with pytest.raises(InputError, match="x: row 1: column 'answer_id': 'd1': expected each answer of"):
        import_ir_datasets(tmp_path / "out", contradictory)
    with pytest.raises(AptoolError, match="no qrels; expected documents, queries and qrels"):
        import_ir_datasets(tmp_path / "out", catalogued(has_qrels=False))
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(AptoolError, match=re.escape(f"needs ir_datasets: {install_command('ir-datasets')}")):
        read_ir_datasets({"test": "beir/scifact/test"}, {})


@pytest.fixture
def arguana(tmp_path):
    """A query that is a document of the corpus, as in ArguAna and Quora, in BEIR's layout."""
    root = tmp_path / "arguana"
    documents = {"q1": "wind power is cheap", "d1": "wind power is not cheap at all", "d2": "fish swim"}
    lines(root / "corpus.jsonl", [{"_id": d, "text": text} for d, text in documents.items()])
    lines(root / "queries.jsonl", [{"_id": "q1", "text": documents["q1"]}])
    judged = [("q1", "d1", 1), ("q1", "q1", 1)]
    tsv(root / "qrels" / "test.tsv", [("query-id", "corpus-id", "score"), *judged])
    run = root / "first.run"
    run.write_text("q1 Q0 q1 1 9 x\nq1 Q0 d2 2 8 x\nq1 Q0 d1 3 7 x\n")
    return root, str(run)


def test_a_query_of_beir_is_no_candidate_of_its_own(arguana, tmp_path):
    """BEIR's evaluation drops results whose id is the query's, so the best order has nDCG@10 of 1."""
    collection = import_beir(tmp_path / "out", *arguana)
    assert ids_of(collection) == {"q1": ["d2", "d1"]}
    policies = collection.manifest["policies"]
    assert policies["candidates_with_the_id_of_their_question_excluded"] == {"test": 1}
    shallow = import_beir(tmp_path / "shallow", *arguana, depth=1, add_relevant=["test"])
    assert ids_of(shallow) == {"q1": ["d2", "d1"]}
    assert shallow.manifest["details"]["first_stage"]["test"]["relevant_added"] == 1


def test_files_keep_a_candidate_with_the_id_of_its_query(arguana, tmp_path):
    """In MS MARCO, queries and passages have numbers of their own."""
    root, run = arguana
    corpus, queries, qrels = (
        f"{root}/{name}" for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv")
    )
    files = read_files(corpus, queries, {"test": qrels}, {"test": run})
    assert ids_of(import_retrieval(tmp_path / "out", files)) == {"q1": ["q1", "d2", "d1"]}
