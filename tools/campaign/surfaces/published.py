"""Import of published data sets: every text and label is in a source file."""

import contextlib
import json
from collections.abc import Iterable
from pathlib import Path

import readers
from case import Case, packed, surface
from mutators import mutate_bytes, mutate_document, mutate_lines

_WIKIQA = "QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel\n" + "".join(
    f"Q{question}\twhere is {question} ?\tD{question}\tPlaces\tD{question}-{number}\tit is {number} .\t"
    f"{int(number == question)}\n"
    for question in range(3)
    for number in range(3)
)


def _block(kind: str, *words: str) -> str:
    """Words and their four annotation lines, in the format of jacana."""
    rows = [words, *(tuple(mark for _ in words) for mark in ("N", "S", "0", "-"))]
    rows += [("x",), ("1",)] * (kind == "positive")
    lines = "\n".join("\t".join(row) for row in rows)
    return f"<{kind}>\n{lines}\n</{kind}>\n"


_JACANA = "".join(
    f"<QApairs id='{number}'>\n{_block('question', 'Who', 'did', str(number), '?')}"
    f"{_block('positive', 'She', 'did', 'it', '.')}{_block('negative', 'Nobody', 'knows', '.')}</QApairs>\n"
    for number in range(1, 4)
)
_INSURANCE = {
    "vocabulary": "idx_1\twhat\nidx_2\tcovers\nidx_3\tfire\nidx_4\t40%\n",
    "answers.label.token_idx": "1\tidx_3\n2\tidx_4 idx_3\n3\tidx_2\n",
    "question.train.token_idx.label": "idx_1 idx_2 idx_3\t1 2\nidx_1\t2\n",
    "question.dev.label.token_idx.pool": "1\tidx_1 idx_3\t3 1 2\n2\tidx_2\t2 1\n",
}
_DOCUMENTS = {"d1": "aspirin reduces fever", "d2": "reduces pain", "d3": "fever is a symptom", "d4": "roads"}
_QUERIES = {"q1": "does aspirin reduce fever", "q2": "what reduces pain", "q3": "never judged"}
_QRELS = "q1\td1\t2\nq1\td4\t1\nq2\td2\t1\n"


@surface(3)
def wikiqa(case: Case) -> None:
    data = _either(case, _WIKIQA.encode(), b"\t")
    name = packed(case, "x.tsv", data)
    case.run("data", "import", "wikiqa", f"test={name}", "--output", "c", outputs=("c",))
    _in_source("c", data.decode("utf-8", "replace"))


@surface(2)
def trecqa(case: Case) -> None:
    data = _either(case, _JACANA.encode(), b"\t")
    Path("x.xml").write_bytes(data)
    case.run("data", "import", "trecqa", "test=x.xml", "--output", "c", outputs=("c",))
    _in_source("c", data.decode("utf-8", "replace"))


@surface(2)
def insuranceqa(case: Case) -> None:
    Path("V1").mkdir()
    changed = case.random.choice(sorted(_INSURANCE))
    for name, text in _INSURANCE.items():
        data = text.encode()
        packed(case, f"V1/{name}", _either(case, data, b"\t") if name == changed else data)
    case.run("data", "import", "insuranceqa", "V1", "--output", "c", outputs=("c",))


@surface(4)
def retrieval(case: Case) -> None:
    """Retrieval data in BEIR's layout, with one changed file."""
    files = {
        "b/corpus.jsonl": _objects({"_id": d, "title": "", "text": text} for d, text in _DOCUMENTS.items()),
        "b/queries.jsonl": _objects({"_id": q, "text": text} for q, text in _QUERIES.items()),
        "b/qrels/test.tsv": "query-id\tcorpus-id\tscore\n" + _QRELS,
        "first.run": "q1 Q0 d4 1 9 x\nq1 Q0 d2 2 8 x\nq1 Q0 d1 3 7 x\nq2 Q0 d2 1 1 x\n",
    }
    changed = case.random.choice(sorted(files))
    for name, text in files.items():
        data = text.encode()
        if name == changed and name.endswith(".jsonl") and case.random.random() < 0.6:
            lines = text.splitlines()
            at = case.random.randrange(len(lines))
            lines[at] = mutate_document(case.random, json.loads(lines[at]))
            data = "\n".join(lines).encode("utf-8", "surrogateescape")
        elif name == changed:
            data = _either(case, data, b"\t" if name.endswith(".tsv") else b" ")
        files[name] = _plain(name, data)
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(data)
    case.run("data", "import", "retrieval", "b", "--run", "test=first.run", "--output", "c", outputs=("c",))
    _in_source("c", " ".join(files.values()))


def _plain(name: str, data: bytes) -> str:
    """The texts of a file, with JSON's escapes."""
    text = data.decode("utf-8", "replace")
    parts = []
    for line in text.split("\n") if name.endswith(".jsonl") else ():
        with contextlib.suppress(ValueError, RecursionError, AttributeError):
            parts += [str(value) for value in json.loads(line).values()]
    return " ".join([*parts, text])


def _objects(rows: Iterable[dict[str, object]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _either(case: Case, data: bytes, separator: bytes) -> bytes:
    if case.random.random() < 0.6:
        return mutate_lines(case.random, data, separator)
    return mutate_bytes(case.random, data)


def _in_source(folder: str, source: str) -> None:
    """Check that every question and answer of an imported collection is in its source, word by word."""
    if not Path(folder).exists():
        return
    text = " ".join(source.split())
    for _, question, _, answer in readers.pool_texts(folder):
        for text_value in (question, answer):
            assert " ".join(text_value.split()) in text, f"{text_value[:50]!r} is not in the source"
