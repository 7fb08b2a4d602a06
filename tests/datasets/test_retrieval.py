"""Import of small retrieval collections in their published layouts as pools for re-ranking."""

import json
import re
from types import SimpleNamespace

import polars as pl
import pytest
from imported import candidates_of

from aptool.datasets.mteb import import_mteb
from aptool.datasets.retrieval import PoolOptions, cut_pools, write_retrieval_collection
from aptool.datasets.retrieval_sources import (
    load_ir_dataset,
    read_beir,
    read_ir_datasets,
    read_msmarco,
)
from aptool.errors import AptoolError, InputError, UsageError
from aptool.formats.collection import CollectionFiles
from aptool.formats.trec import read_qrels
from aptool.version import install_command

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


def import_beir(out, folder, options=None, **arguments):
    return write_retrieval_collection(out, read_beir(folder, **arguments), options)


def import_ir_datasets(out, datasets, **arguments):
    return write_retrieval_collection(out, read_ir_datasets(datasets, name="x", **arguments))


def ids_of(collection):
    return {query: list(pool) for query, pool in candidates_of(collection).items()}


def test_beir_with_bm25_as_first_stage(folder, tmp_path):
    collection = import_beir(tmp_path / "out", folder)

    # Computed by hand: a document is retrieved if it shares a word with the query.
    assert candidates_of(collection) == {
        "q1": {"d1": "Aspirin reduces fever in adults", "d3": "fever is a symptom"},
        "q2": {"d1": "Aspirin reduces fever in adults", "d2": "Ibuprofen reduces pain"},
    }
    assert collection.name == "scifact"
    assert sorted(read_qrels(collection.qrels("test")).iter_rows()) == sorted(QRELS)
    stage = collection.manifest["details"]["first_stage"]["test"]
    assert stage == {"system": "BM25", "relevant": 3, "relevant_missed": 1, "relevant_added": 0}


def test_beir_with_a_run(folder, tmp_path):
    run = tmp_path / "first.run"
    run.write_text("q1 Q0 d4 1 9 x\nq1 Q0 d2 2 8 x\nq1 Q0 d1 3 7 x\nq2 Q0 d2 1 1 x\n")

    collection = import_beir(tmp_path / "out", folder, runs={"test": str(run)}, options=PoolOptions(depth=2))

    assert ids_of(collection) == {
        "q1": ["d4", "d2"],
        "q2": ["d2"],
    }
    stage = collection.manifest["details"]["first_stage"]["test"]
    assert (stage["system"], stage["relevant_missed"]) == ("run", 1)


def test_the_command_counts_the_relevant_documents_that_bm25_missed(aptool, folder, tmp_path):
    finished = aptool("data", "import", "beir", folder, "--output", tmp_path / "out")

    assert finished.code == 0, finished.err
    assert "test: the first stage (BM25) missed 1 of 3 relevant answers (33.3%); 0 of them were added" in (
        finished.err
    )
    assert aptool("data", "check", tmp_path / "out").code == 0


def test_relevant_documents_can_be_added_and_negatives_sampled():
    run = pl.DataFrame(
        {"question_id": ["q"] * 6, "answer_id": list("abcdef"), "score": [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]}
    )
    qrels = pl.DataFrame({"question_id": ["q", "q"], "answer_id": ["b", "z"], "relevance": [1, 1]})

    pools, counts = cut_pools(run, qrels, PoolOptions(depth=5, negatives=2, add_relevant=True))
    again, _ = cut_pools(run, qrels, PoolOptions(depth=5, negatives=2, add_relevant=True))

    ids = pools["answer_id"].to_list()
    assert len(ids) == 4
    assert "b" in ids
    assert ids[-1] == "z"
    assert set(ids) - {"b", "z"} < set("acde")
    assert counts == {"relevant": 2, "relevant_missed": 1, "relevant_added": 1}
    assert pools.equals(again)


def test_msmarco_files(tmp_path):
    collection_file = tsv(tmp_path / "collection.tsv", [(n, f"passage {n}") for n in range(5)])
    queries = tsv(tmp_path / "queries.dev.tsv", [("11", "first query"), ("12", "second"), ("13", "unjudged")])
    qrels = tsv(tmp_path / "qrels.dev.tsv", [("11", 0, 3, 1), ("12", 0, 0, 1)])
    top = tsv(
        tmp_path / "top1000.dev",
        [("11", 3, "first query", "passage 3"), ("11", 4, "first query", "passage 4"), ("12", 1, "x", "y")],
    )
    ranked = tsv(tmp_path / "ranked.tsv", [("11", 4, 1), ("11", 3, 2), ("12", 1, 1)])

    for first in (top, ranked):
        files = {"queries": queries, "qrels": qrels, "top": first}
        by_split = {name: {"dev": str(path)} for name, path in files.items()}
        collection = write_retrieval_collection(tmp_path / "out", read_msmarco(collection_file, **by_split))

        assert candidates_of(collection, "dev") == {
            "11": {"3": "passage 3", "4": "passage 4"},
            "12": {"1": "passage 1"},
        }
        stage = collection.manifest["details"]["first_stage"]["dev"]
        assert (stage["relevant"], stage["relevant_missed"]) == (2, 1)


def test_mteb_top_ranked_keeps_the_order_of_its_candidates(folder, tmp_path):
    lines(folder / "top_ranked.jsonl", [{"query-id": "q1", "corpus-ids": ["d4", "d1", "d3"]}])
    (folder / "qrels" / "test.tsv").rename(folder / "qrels.tsv")
    (folder / "qrels").rmdir()

    collection = import_mteb(tmp_path / "out", folder)

    assert ids_of(collection) == {"q1": ["d4", "d1", "d3"]}


def test_mteb_rows_of_texts(tmp_path):
    root = tmp_path / "AskUbuntu"
    lines(root / "test.jsonl", [{"query": "how", "positive": ["so"], "negative": ["no", "never"]}])

    collection = import_mteb(tmp_path / "out", root)

    assert list(candidates_of(collection)["q0"].values()) == ["so", "no", "never"]
    assert read_qrels(collection.qrels("test"))["relevance"].sum() == 1


class Catalogued:
    """A data set with the iterators that ir_datasets documents."""

    def __init__(self, scored):
        self._scored = scored

    def has_docs(self):
        return True

    has_queries = has_qrels = has_docs

    def has_scoreddocs(self):
        return bool(self._scored)

    def docs_iter(self):
        for name, parts in DOCUMENTS.items():
            yield SimpleNamespace(doc_id=name, default_text=lambda parts=parts: " ".join(parts).strip())

    def queries_iter(self):
        for name, text in QUERIES.items():
            yield SimpleNamespace(query_id=name, default_text=lambda text=text: text)

    def qrels_iter(self):
        for query, document, relevance in QRELS:
            yield SimpleNamespace(query_id=query, doc_id=document, relevance=relevance)

    def scoreddocs_iter(self):
        for query, document, score in self._scored:
            yield SimpleNamespace(query_id=query, doc_id=document, score=score)


def test_ir_datasets_objects(tmp_path):
    scored = [("q1", "d3", 1.5), ("q1", "d1", 2.5), ("q2", "d1", 1.0)]

    collection = import_ir_datasets(tmp_path / "out", {"test": Catalogued(scored)})
    retrieved = import_ir_datasets(tmp_path / "bm25", {"test": Catalogued([])})

    assert ids_of(collection) == {
        "q1": ["d1", "d3"],
        "q2": ["d1"],
    }
    assert set(candidates_of(retrieved)["q2"]) == {"d1", "d2"}


def test_a_data_set_of_the_real_library(tmp_path):
    library = pytest.importorskip("ir_datasets", reason="ir_datasets is not installed")
    texts = {name: " ".join(parts).strip() for name, parts in DOCUMENTS.items()}
    files = {
        "docs_tsv": tsv(tmp_path / "docs.tsv", texts.items()),
        "queries_tsv": tsv(tmp_path / "queries.tsv", QUERIES.items()),
        "qrels_trec": tmp_path / "x.qrels",
    }
    files["qrels_trec"].write_text("".join(f"{q} 0 {d} {label}\n" for q, d, label in QRELS))
    dataset = library.create_dataset(**{name: str(file) for name, file in files.items()})

    collection = import_ir_datasets(tmp_path / "out", {"test": dataset})

    assert candidates_of(collection)["q2"] == {"d1": texts["d1"], "d2": texts["d2"]}
    assert sorted(read_qrels(collection.qrels("test")).iter_rows()) == sorted(QRELS)


def test_a_pyserini_run_with_its_corpus(aptool, folder, tmp_path):
    lines(tmp_path / "docs.jsonl", [{"id": d, "contents": text} for d, (_, text) in DOCUMENTS.items()])
    tsv(tmp_path / "topics.tsv", QUERIES.items())
    (tmp_path / "x.qrels").write_text("q1 0 d1 1\n")
    (tmp_path / "x.run").write_text("q1 Q0 d2 1 9 bm25\nq1 Q0 d1 2 8 bm25\n")

    finished = aptool(
        *("data", "import", "pyserini", tmp_path / "x.run", "--corpus", tmp_path / "docs.jsonl"),
        *("--queries", tmp_path / "topics.tsv", "--qrels", tmp_path / "x.qrels"),
        *("--output", tmp_path / "out"),
    )

    assert finished.code == 0, finished.err
    assert aptool("data", "check", tmp_path / "out").code == 0


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda root: (root / "corpus.jsonl").unlink(), r"corpus\.jsonl: file not found; expected"),
        (lambda root: (root / "qrels" / "test.tsv").unlink(), r"qrels: no judgements; expected SPLIT\.tsv"),
        (
            lambda root: tsv(root / "qrels" / "test.tsv", [("q1", "d1", "high")]),
            r"line 1: column 'score': 'high'",
        ),
        (
            lambda root: tsv(root / "qrels" / "test.tsv", [("q7", "d1", 1)]),
            r"1 judged query without a text.*'q7'",
        ),
        (
            lambda root: tsv(root / "qrels" / "test.tsv", [("q1", "d1", 1), ("q1", "d1", 0)]),
            "line 2: .*the score 1",
        ),
        (
            lambda root: (root / "corpus.jsonl").write_text('{"_id": "d1"}\n'),
            r"line 1: columns '_id'; expected",
        ),
        (lambda root: (root / "corpus.jsonl").write_text("[1]\n"), r"item 1: 1: expected a JSON object"),
        (
            lambda root: (root / "queries.jsonl").write_text('{"_id": "a b", "text": "x"}\n'),
            "'a b': expected an id",
        ),
    ],
)
def test_errors_name_file_and_position(folder, tmp_path, damage, message):
    damage(folder)

    with pytest.raises(InputError, match=message):
        import_beir(tmp_path / "out", folder)

    assert not (tmp_path / "out").exists()


def test_the_error_of_a_run_over_other_queries_has_ids_of_both(folder, tmp_path):
    run = tmp_path / "other.run"
    run.write_text("PLAIN-1 Q0 d4 1 9 x\n")

    with pytest.raises(InputError, match=r"the first id is 'PLAIN-1', but 'q1' in that file"):
        import_beir(tmp_path / "out", folder, runs={"test": str(run)})
    with pytest.raises(InputError, match=r"a run for split 'dev'; expected one of test"):
        import_beir(tmp_path / "out", folder, runs={"dev": str(run)})
    with pytest.raises(InputError, match=r"a run for split 'dev'; expected one of test"):
        import_ir_datasets(tmp_path / "out", {"test": Catalogued([])}, runs={"dev": str(run)})


def test_candidates_that_are_not_in_the_corpus_are_refused(folder, tmp_path):
    run = tmp_path / "first.run"
    run.write_text("q1 Q0 d1 1 9 x\nq1 Q0 d77 2 8 x\nq2 Q0 d78 1 8 x\n")

    with pytest.raises(InputError, match=r"corpus\.jsonl: 2 of 3 candidates not found, such as 'd77'"):
        import_beir(tmp_path / "out", folder, runs={"test": str(run)})


def test_a_catalogue_without_qrels_is_refused(tmp_path, monkeypatch):
    without = Catalogued([])
    without.has_qrels = lambda: False
    with pytest.raises(AptoolError, match="no qrels; expected documents, queries and qrels"):
        import_ir_datasets(tmp_path / "out", {"test": without})
    monkeypatch.setitem(__import__("sys").modules, "ir_datasets", None)
    with pytest.raises(AptoolError, match=re.escape(f"needs ir_datasets: {install_command('ir-datasets')}")):
        load_ir_dataset("beir/scifact/test")


def test_a_name_replaces_that_of_the_source(aptool, tmp_path):
    tsv(tmp_path / "collection.tsv", [("0", "a passage"), ("1", "another one")])
    tsv(tmp_path / "queries.tsv", [("q", "a passage")])
    tsv(tmp_path / "qrels.tsv", [("q", 0, 0, 1)])
    files = (f"dev={tmp_path / name}.tsv" for name in ("queries", "qrels"))
    command = ("data", "import", "msmarco", tmp_path / "collection.tsv", "--queries", next(files))
    finished = aptool(*command, "--qrels", next(files), "--name", "marco", "--output", tmp_path / "out")
    assert finished.code == 0, finished.err
    assert CollectionFiles(tmp_path / "out").name == "marco"


def test_msmarco_qrels_of_other_queries_are_refused(tmp_path):
    tsv(tmp_path / "queries.tsv", [("q", "a passage")])
    tsv(tmp_path / "qrels.tsv", [("7", 0, 0, 1)])
    files = {name: {"dev": str(tmp_path / f"{name}.tsv")} for name in ("queries", "qrels")}
    collection = read_msmarco(tmp_path / "collection.tsv", **files, top={})
    with pytest.raises(InputError, match=r"queries\.tsv: 1 judged query without a text, such as '7'"):
        write_retrieval_collection(tmp_path / "out", collection)


def test_msmarco_splits_must_match(aptool, tmp_path):
    finished = aptool(
        *("data", "import", "msmarco", "c.tsv", "--queries", "dev=q.tsv", "--qrels", "test=q.tsv"),
        *("--output", tmp_path / "out"),
    )

    assert finished.code == UsageError.exit_code
    assert "split 'dev': expected it in --queries and in --qrels" in finished.err[-1]


@pytest.mark.parametrize(("resolution", "label"), [("max", 2), ("min", 0)])
def test_contradictory_judgements_are_resolved_and_counted(aptool, folder, tmp_path, resolution, label):
    tsv(folder / "qrels" / "test.tsv", [("q1", "d1", 2), ("q1", "d1", 0), ("q1", "d1", 1), ("q2", "d2", 1)])
    tsv(tmp_path / "collection.tsv", [(d, text) for d, (_, text) in DOCUMENTS.items()])
    tsv(tmp_path / "queries.tsv", QUERIES.items())
    ranked = [{"query-id": "q1", "corpus-ids": ["d1", "d2"]}, {"query-id": "q2", "corpus-ids": ["d2"]}]
    qrels = folder / "qrels" / "test.tsv"
    commands = {
        "beir": [folder],
        "mteb": [folder],
        "msmarco": [
            *(tmp_path / "collection.tsv", "--queries", f"test={tmp_path / 'queries.tsv'}"),
            *("--qrels", f"test={qrels}"),
        ],
    }
    lines(folder / "top_ranked.jsonl", ranked)
    for name, arguments in commands.items():
        command = ("data", "import", name, *arguments, "--output", tmp_path / name)
        refused = aptool(*command)
        assert (refused.code, len(refused.err)) == (1, 1)
        assert "line 2: column 'score': 0: expected the score 2 that this pair had before" in refused.err[0]

        finished = aptool(*command, "--conflicts", resolution)

        assert finished.code == 0, finished.err
        assert f"test: contradictory labels {resolution} kept: 1" in finished.err
        qrels_written = read_qrels(tmp_path / name / "test.qrels")
        assert qrels_written.filter(pl.col("answer_id") == "d1")["relevance"].to_list() == [label]


def test_contradictory_judgements_of_a_catalogue(tmp_path):
    dataset = Catalogued([])
    judged = [SimpleNamespace(query_id="q1", doc_id="d1", relevance=relevance) for relevance in (1, 0)]
    dataset.qrels_iter = lambda: iter(judged)

    with pytest.raises(InputError, match=r"x: test: judgement 2: column 'score': 0: expected the score 1"):
        import_ir_datasets(tmp_path / "out", {"test": dataset})
    collection = import_ir_datasets(tmp_path / "out", {"test": dataset}, conflicts="max")

    assert collection.manifest["policies"]["contradictory_labels_max_kept"] == {"test": 1}


def arguana(root):
    """Queries that are documents of the corpus, as in ArguAna and Quora."""
    documents = {"q1": "wind power is cheap", "d1": "wind power is not cheap at all", "d2": "fish swim"}
    lines(root / "corpus.jsonl", [{"_id": d, "text": text} for d, text in documents.items()])
    lines(root / "queries.jsonl", [{"_id": "q1", "text": documents["q1"]}])
    tsv(root / "qrels" / "test.tsv", [("query-id", "corpus-id", "score"), ("q1", "d1", 1)])
    run = root / "first.run"
    run.write_text("q1 Q0 q1 1 9 x\nq1 Q0 d1 2 8 x\nq1 Q0 d2 3 7 x\n")
    return root, run


@pytest.mark.parametrize(("with_run", "pool"), [(False, ["d1"]), (True, ["d1", "d2"])])
def test_a_query_of_beir_is_no_candidate_of_its_own(aptool, tmp_path, with_run, pool):
    """BEIR's evaluation drops results whose id is the query's, so the best order has nDCG@10 of 1."""
    root, run = arguana(tmp_path / "arguana")
    options = ("--run", f"test={run}") if with_run else ()
    finished = aptool("data", "import", "beir", root, *options, "--output", tmp_path / "out")
    assert finished.code == 0, finished.err
    assert "test: candidates with the id of their question excluded: 1" in finished.err
    collection = CollectionFiles(tmp_path / "out")
    assert ids_of(collection) == {"q1": pool}
    policies = collection.manifest["policies"]
    assert policies["candidates_with_the_id_of_their_question_excluded"] == {"test": 1}


@pytest.mark.parametrize("with_run", [False, True])
def test_the_depth_counts_without_the_query(tmp_path, with_run):
    root, run = arguana(tmp_path / "arguana")
    runs = {"test": str(run)} if with_run else None
    assert ids_of(import_beir(tmp_path / "out", root, runs=runs, options=PoolOptions(depth=1))) == {
        "q1": ["d1"]
    }


def test_the_query_is_not_added_as_a_relevant_document(tmp_path):
    root, _ = arguana(tmp_path / "arguana")
    tsv(root / "qrels" / "test.tsv", [("q1", "d2", 1), ("q1", "q1", 1)])
    collection = import_beir(tmp_path / "out", root, options=PoolOptions(add_relevant=True))
    assert ids_of(collection) == {"q1": ["d1", "d2"]}
    stage = collection.manifest["details"]["first_stage"]["test"]
    assert (stage["relevant_missed"], stage["relevant_added"]) == (2, 1)


@pytest.mark.parametrize(
    ("options", "pool"), [((), ["q1", "d1", "d2"]), (("--exclude-same-id",), ["d1", "d2"])]
)
def test_other_sources_exclude_the_query_on_request(aptool, tmp_path, options, pool):
    root, run = arguana(tmp_path / "arguana")
    qrels = tmp_path / "x.qrels"
    qrels.write_text("q1 0 d1 1\n")
    files = ("--corpus", root / "corpus.jsonl", "--queries", root / "queries.jsonl", "--qrels", qrels)
    finished = aptool("data", "import", "pyserini", run, *files, *options, "--output", tmp_path / "out")
    assert finished.code == 0, finished.err
    assert ids_of(CollectionFiles(tmp_path / "out")) == {"q1": pool}


def test_unjudged_questions_are_told_from_those_without_a_relevant_candidate(aptool, tmp_path):
    """By hand: q1 has a relevant candidate, q2 has none, q3 and q4 are not judged."""
    lines(tmp_path / "corpus.jsonl", [{"_id": d, "text": d} for d in ("d1", "d2")])
    lines(tmp_path / "queries.jsonl", [{"_id": f"q{number}", "text": "why"} for number in (1, 2, 3, 4)])
    run, qrels = tmp_path / "first.run", tmp_path / "x.qrels"
    run.write_text("".join(f"q{number} Q0 {d} 1 1 x\n" for number in (1, 2, 3, 4) for d in ("d1", "d2")))
    qrels.write_text("q1 0 d1 1\nq2 0 d2 0\n")
    files = ("--corpus", tmp_path / "corpus.jsonl", "--queries", tmp_path / "queries.jsonl")
    out = tmp_path / "out"
    finished = aptool("data", "import", "pyserini", run, *files, "--qrels", qrels, "--output", out)
    checked = aptool("data", "check", out)
    expected = [
        "test: warning: 1 of 2 judged questions have no relevant candidate: any model scores 0 there",
        "test: warning: 2 questions are not judged, and not evaluated",
    ]
    for command in (finished, checked):
        assert command.code == 0, command.err
        assert [line for line in command.err if "warning" in line and "judged" in line] == expected
