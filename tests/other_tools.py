"""Small files in the layouts that other tools publish, under the names of docs/from.md."""

import json
from pathlib import Path

DOCUMENTS = {"d1": "aspirin reduces fever", "d2": "ibuprofen reduces pain", "d3": "fever is a symptom"}
QUERIES = {"q1": "does aspirin reduce fever", "q2": "what reduces pain"}
QRELS = [("q1", "d1", 2), ("q1", "d3", 1), ("q2", "d2", 2)]


def lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def tsv(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))


def write_files(folder):
    """Write the files to ``folder``."""
    entries = [{"_id": name, "title": "", "text": text} for name, text in DOCUMENTS.items()]
    queries = [{"_id": name, "text": text} for name, text in QUERIES.items()]
    judged = [("query-id", "corpus-id", "score"), *QRELS]
    lines(Path(folder, "nfcorpus/corpus.jsonl"), entries)
    lines(Path(folder, "nfcorpus/queries.jsonl"), queries)
    tsv(Path(folder, "nfcorpus/qrels/test.tsv"), judged)
    for name, scores in (("bm25.run", (3, 2, 1)), ("other.run", (1, 2, 3)), ("bm25-dev.run", (3, 2, 1))):
        rows = [(q, d, s) for q in QUERIES for d, s in zip(DOCUMENTS, scores, strict=True)]
        if name == "bm25-dev.run":
            rows = [(q.removeprefix("q"), d.removeprefix("d"), s) for q, d, s in rows]
        Path(folder, name).write_text("".join(f"{q} Q0 {d} 1 {s} x\n" for q, d, s in rows))
    Path(folder, "test.qrels").write_text("".join(f"{q} 0 {d} {label}\n" for q, d, label in QRELS))
    tsv(Path(folder, "collection.tsv"), [(number, text) for number, text in enumerate(DOCUMENTS.values(), 1)])
    tsv(Path(folder, "queries.dev.small.tsv"), [(1, QUERIES["q1"]), (2, QUERIES["q2"])])
    tsv(Path(folder, "qrels.dev.small.tsv"), [(1, 0, 1, 1), (2, 0, 2, 1)])
    pairs = [
        {"query": "who?", "passage": "me", "label": 1.0},
        {"query": "who?", "passage": "you", "label": 0.0},
    ]
    lines(Path(folder, "pairs.jsonl"), pairs)
