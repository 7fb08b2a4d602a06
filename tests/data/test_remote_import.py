"""Data at a URL: the in-memory file system, and an HTTP server without byte ranges, as Python's own is."""

import functools
import http.server
import io
import threading

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from imported import counts_of

from aptool.data.collection import Collection
from aptool.data.insuranceqa import import_insuranceqa
from aptool.data.table import import_table
from aptool.data.trecqa import import_trecqa
from aptool.data.wikiqa import import_wikiqa
from aptool.errors import InputError

FILES = {
    "w/a.tsv": b"QuestionID\tQuestion\tDocumentID\tDocumentTitle\tSentenceID\tSentence\tLabel\n"
    b"Q1\twhy?\tD1\tWhy\tD1-0\tso\t1\nQ1\twhy?\tD1\tWhy\tD1-1\tno\t0\n",
    "t/id.txt": b"7\n7\n",
    "t/a.toks": b"who ?\nwho ?\n",
    "t/b.toks": b"me .\nyou .\n",
    "t/sim.txt": b"1\n0\n",
    "V1/vocabulary": b"idx_1\twhat\n",
    "V1/answers.label.token_idx": b"1\tidx_1\n2\tidx_1\n",
    "V1/question.dev.label.token_idx.pool": b"1\tidx_1\t1 2\n",
    "mine/a.csv": b"question,answer,label\nwho?,me,1\nwho?,you,0\n",
    "mine/a.jsonl": b'{"question": "who?", "answer": "me", "label": 1}\n'
    b'{"question": "who?", "answer": "you", "label": 0}\n',
}


def parquet():
    buffer = io.BytesIO()
    columns = {"question_id": ["Q1"] * 2, "question": ["why?"] * 2, "answer": ["so", "no"], "label": [1, 0]}
    pq.write_table(pa.table(columns), buffer)
    return buffer.getvalue()


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *parts):
        pass

    def do_HEAD(self):
        if self.refused():
            return
        super().do_HEAD()

    def do_GET(self):
        if self.refused():
            return
        super().do_GET()

    def copyfile(self, source, outputfile):
        try:
            super().copyfile(source, outputfile)
        except ConnectionError:  # the reader closed the connection early
            self.close_connection = True

    def refused(self):
        if "refused" in self.path:
            self.send_error(500)
        return "refused" in self.path


@pytest.fixture
def http_root(tmp_path):
    pytest.importorskip("aiohttp", reason="fsspec reads http:// through aiohttp")
    root = tmp_path / "served"
    for name, content in {**FILES, "w/train.parquet": parquet()}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    handler = functools.partial(Handler, directory=str(root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def memory_root():
    files = fsspec.filesystem("memory")
    for name, content in {**FILES, "w/train.parquet": parquet()}.items():
        files.pipe(f"/import/{name}", content)
    yield "memory://import"
    files.rm("/import", recursive=True)


@pytest.fixture(params=["memory_root", "http_root"])
def root(request):
    return request.getfixturevalue(request.param)


ONE_QUESTION = (1, 2, 1)


def test_every_format(root, tmp_path):
    assert counts_of(import_wikiqa(tmp_path / "tsv", {"train": f"{root}/w/a.tsv"})) == {"train": ONE_QUESTION}
    assert counts_of(import_wikiqa(tmp_path / "parquet", {"train": f"{root}/w/train.parquet"})) == {
        "train": ONE_QUESTION
    }
    assert counts_of(import_trecqa(tmp_path / "trecqa", {"dev": f"{root}/t/"})) == {"dev": ONE_QUESTION}
    assert counts_of(import_insuranceqa(tmp_path / "insuranceqa", f"{root}/V1")) == {"dev": ONE_QUESTION}
    for name in ("a.csv", "a.jsonl"):
        import_table(tmp_path / name, {"test": f"{root}/mine/{name}"})
        assert counts_of(Collection(tmp_path / name)) == {"test": ONE_QUESTION}


def test_missing_files_are_named(root, tmp_path):
    with pytest.raises(InputError) as error:
        import_wikiqa(tmp_path / "out", {"train": f"{root}/w/none.tsv"})
    assert str(error.value).startswith(f"{root}/w/none.tsv: ")
    with pytest.raises(InputError) as error:
        import_insuranceqa(tmp_path / "out", f"{root}/w")
    assert str(error.value).startswith(f"{root}/w: none of the files of InsuranceQA; ")


def test_the_error_of_a_server_is_one_line(http_root, tmp_path):
    for build, path in (
        (import_wikiqa, f"{http_root}/refused.tsv"),
        (import_trecqa, f"{http_root}/refused/"),
    ):
        with pytest.raises(InputError) as error:
            build(tmp_path / "out", {"dev": path})
        assert path in str(error.value)
        assert "\n" not in str(error.value)


def test_servers_and_protocols_that_do_not_answer_are_named(tmp_path):
    pytest.importorskip("aiohttp", reason="fsspec reads http:// through aiohttp")
    for path, message in (
        ("http://127.0.0.1:1/a.tsv", r"127\.0\.0\.1:1/a\.tsv"),
        ("ftpx://a.tsv", "Protocol not known: ftpx"),
    ):
        with pytest.raises(InputError, match=message):
            import_table(tmp_path / "out", {"dev": path})
