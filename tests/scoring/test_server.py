"""`aptool score --model URL`: a model behind a server with the rerank API."""

import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit

import pytest
from rerank_server import score, serving
from tiny import row, write_pools

import aptool as library
from aptool.errors import InputError
from aptool.formats.pools import list_units
from aptool.scoring import rerank_client
from aptool.scoring import score as scoring

KEY = "sk-secret-123"
QUESTIONS = {
    "q1": ("where is the river", {"a1": "the river is north", "a2": "a bridge", "a3": "river river"}),
    "q2": ("the old bridge", {"a2": "a bridge", "a4": "an old old bridge over the river", "a5": "?!"}),
    "q3": ("東京 はどこ", {"a6": "東京 は 日本", "a7": ""}),
}
EXPECTED = {
    question_id: {answer_id: pytest.approx(score(question, text)) for answer_id, text in answers.items()}
    for question_id, (question, answers) in QUESTIONS.items()
}


@pytest.fixture
def server():
    with serving() as service:
        yield service


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three pools in two row groups."""
    rows = [row(name, text, list(answers.items())) for name, (text, answers) in QUESTIONS.items()]
    write_pools(tmp_path / "dev.pools.parquet", rows[:2], rows[2:])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rerank_client, "FIRST_WAIT", 0.001)
    monkeypatch.delenv("APTOOL_API_KEY", raising=False)
    return tmp_path


@pytest.fixture
def score_command(aptool, folder, server):
    """Score with the server; options follow."""

    def run(*options):
        output = ["--output", "dev.run"]
        return aptool("score", "dev.pools.parquet", "--model", server.url, *output, *options)

    return run


def run_of(folder):
    return library.Run.load(folder / "dev.run")


@pytest.mark.parametrize("accepts_texts", [False, True])
def test_each_candidate_gets_the_score_of_the_server(score_command, folder, server, accepts_texts):
    server.accepts_texts = accepts_texts

    finished = score_command()

    assert (finished.code, finished.out, finished.err) == (0, ["dev.run: 8 pairs"], [])
    assert run_of(folder).to_dict() == EXPECTED
    assert run_of(folder).tag == "rerank"


def test_requests_have_the_fields_of_the_api(score_command, server):
    fields = ["--server-set", "truncate_prompt_tokens=-1", "--server-set", "instruction=Find the answer"]

    score_command("--server-model", "rerank-v4", "--server-batch", 2, "--server-requests", 1, *fields)

    assert server.requests[0] == {
        "model": "rerank-v4",
        "query": "where is the river",
        "documents": ["the river is north", "a bridge"],
        "top_n": 2,
        "truncate_prompt_tokens": -1,
        "instruction": "Find the answer",
    }
    assert [len(request["documents"]) for request in server.requests] == [2, 1, 2, 1, 2]


def test_text_embeddings_inference_gets_its_own_fields(score_command, server):
    server.accepts_texts = True

    score_command("--server-requests", 1)

    texts = [request for request in server.requests if "texts" in request]
    assert len(texts) == 3
    assert len(server.requests) == 4  # the first request had `documents`
    expected = {"query": "東京 はどこ", "texts": ["東京 は 日本", ""], "truncate": True, "raw_scores": True}
    assert texts[-1] == expected


def test_batches_and_concurrency_do_not_change_the_scores(score_command, folder):
    score_command("--server-batch", 1, "--server-requests", 1)
    alone = run_of(folder).to_dict()
    score_command("--server-batch", 100, "--server-requests", 16)

    assert run_of(folder).to_dict() == alone == EXPECTED


def test_concurrent_requests_are_bounded(score_command, server):
    server.delay = 0.02

    score_command("--server-batch", 1, "--server-requests", 3)

    assert len(server.requests) == 8
    assert 1 < server.most <= 3


def test_library_takes_a_url_and_a_server(folder, server):
    pools = library.Pools.load("dev.pools.parquet")

    library.score(pools, server.url, "one.run")
    library.score(pools, library.RerankServer(server.url, model="m", batch=2), "two.run")

    in_memory = library.rerank_run(pools, server.url)
    assert in_memory.to_dict() == EXPECTED
    assert library.Run.load("one.run").to_dict() == EXPECTED
    assert library.Run.load("two.run").to_dict() == EXPECTED
    assert (in_memory.tag, library.Run.load("two.run").tag) == ("rerank", "m")


RETRIED = [
    *("error_500", "error_503", "busy", "busy_superscript", "busy_until_no_date", "cut_before", "cut_within"),
]


@pytest.mark.parametrize("fault", RETRIED)
def test_failures_that_may_pass_are_retried(score_command, folder, server, fault):
    server.faults = [fault, fault]

    finished = score_command("--server-requests", 1)

    assert finished.code == 0
    assert run_of(folder).to_dict() == EXPECTED
    (line,) = finished.err
    assert line.startswith(f"{server.url}: ")
    assert "; retrying after " in line


DRIPS = ["drip", "drip_header", "drip_chunk_size", "drip_trailer", "drip_continue"]


@pytest.mark.parametrize("fault", ["slow", *DRIPS])
def test_slow_answers_are_retried(score_command, folder, server, fault):
    server.faults = [fault]

    finished = score_command("--server-timeout", 0.3)

    assert finished.code == 0
    assert run_of(folder).to_dict() == EXPECTED
    assert finished.err == [f"{server.url}: no answer within 0.3 s; retrying after 0.001 s"]


def test_waits_double_and_retry_after_counts(monkeypatch, folder, server):
    waits = []

    class Recorder(threading.Event):
        def wait(self, timeout=None):
            waits.append(timeout)
            return False

    monkeypatch.setattr(rerank_client, "FIRST_WAIT", 1.0)
    monkeypatch.setattr(rerank_client, "Event", Recorder)  # the client's own waits, no other thread's
    server.faults = ["error_500"] * 4 + ["busy"]
    client = library.RerankServer(server.url).open()._connected()

    assert client.scores("q1", "a", ["a b"]) == [score("a", "a b")]
    client.close()

    assert waits == [1, 2, 4, 8, 0]


DOCUMENTS = "3 results, each with an index from 0 to 2 and a finite score"
REFUSED = {
    "short": f"2 results; expected {DOCUMENTS}",
    "duplicate": "twice; expected",
    "out_of_range": f"the index 3; expected {DOCUMENTS}",
    "negative": "the index -1; expected",
    "no_index": "the index None; expected",
    "not_a_number": "the score nan at index",
    "too_large": "the score 1e+39 at index",
    "text_score": "the score '0.9' at index",
    "no_score": "the score None at index",
    "not_results": "an answer without results: {'data': 'none'}; expected",
    "html": "an answer that is not JSON (text/html); expected",
    "redirect": "HTTP 307: redirected to https://example.org/rerank; expected",
    "unprocessable": 'HTTP 422: {"detail": [{"loc": ["body", "model"], "msg": "Field required"}]}; expected',
    "not_found": "HTTP 404: Not Found; expected an answer with scores",
    "long": "malformed answer: more than 1,05",  # 1 MiB and a little for each document
    "superscript_length": "malformed answer: Content-Length: '²'; expected",
    "two_lengths": "malformed answer: Content-Length: '2, 3'; expected",
    "length_of_many_digits": "malformed answer: Content-Length: '1111",
    "busy_for_an_hour": "HTTP 429: Too many requests; the server asks to wait 3,600 s; expected at most",
}


@pytest.mark.parametrize("fault", REFUSED)
def test_wrong_answers_end_in_one_line(score_command, folder, server, fault):
    server.faults = [fault]

    finished = score_command("--server-requests", 1)

    assert (finished.code, finished.out) == (1, [])
    (line,) = finished.err
    assert line.startswith(f"aptool: {server.url}: question 'q1': ")
    assert REFUSED[fault] in line
    assert not (folder / "dev.run").exists()


@pytest.mark.parametrize(
    ("fault", "times", "problem"),
    [("error_500", 8, "HTTP 500: CUDA error, 8 times"), ("slow", 3, "no answer within 0.2 s, 3 times")],
)
def test_retries_end(score_command, folder, server, fault, times, problem):
    server.faults = [fault] * 20

    finished = score_command("--server-requests", 1, "--server-timeout", 0.2)

    assert finished.code == 1
    assert finished.err[-1].startswith(f"aptool: {server.url}: question 'q1': {problem}; expected")
    assert [request["query"] for request in server.requests].count("where is the river") == times
    assert not (folder / "dev.run").exists()


def test_failed_run_resumes_and_has_the_same_bytes(score_command, folder, server):
    """The second row group fails at first; the first row group is not scored again."""
    score_command()
    complete = (folder / "dev.run").read_bytes()
    server.requests.clear()
    (folder / "dev.run").unlink()
    server.faults = [None, None, "short"]

    assert score_command("--server-requests", 1).code == 1
    assert not (folder / "dev.run").exists()
    server.requests.clear()
    assert score_command().code == 0

    assert [request["query"] for request in server.requests] == ["東京 はどこ"]
    assert (folder / "dev.run").read_bytes() == complete


def test_parts_of_another_model_or_batch_are_not_reused(folder, server):
    systems = [library.RerankServer(server.url, **options).open() for options in SETTINGS]

    assert len({system.fingerprint for system in systems}) == len(SETTINGS)
    faster = library.RerankServer(server.url, requests=2, timeout=9).open()
    assert faster.fingerprint == systems[0].fingerprint


SETTINGS = [{}, {"model": "a"}, {"model": "b"}, {"batch": 2}, {"fields": {"instruction": "x"}}]


def test_key_is_sent_and_appears_nowhere(aptool, score_command, folder, server, monkeypatch):
    monkeypatch.setenv("APTOOL_API_KEY", KEY)
    server.key = KEY

    finished = score_command("--server-model", "m")

    assert finished.code == 0
    assert {headers["Authorization"] for headers in server.headers} == {f"Bearer {KEY}"}
    server.key = "another"
    refused = score_command("--server-model", "n")
    assert refused.code == 1
    (line,) = refused.err
    assert "HTTP 401: Incorrect API key provided: Bearer ***; expected another key in APTOOL_API_KEY" in line
    assert KEY not in line
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert folder / "dev.run.ir-metadata.yml" in files
    assert not [file for file in files if KEY.encode() in file.read_bytes()]


def test_missing_key_is_named(score_command, server):
    server.key = KEY

    finished = score_command()

    assert finished.code == 1
    assert finished.err[-1].endswith("expected a key in APTOOL_API_KEY, which is not set")


def test_key_with_a_line_break_is_refused_without_showing_it(score_command, monkeypatch):
    monkeypatch.setenv("APTOOL_API_KEY", "first\nsecond")

    finished = score_command()

    assert (finished.code, finished.err) == (
        2,
        ["aptool: APTOOL_API_KEY: expected printable ASCII characters"],
    )


def test_system_is_sent_to_workers_without_the_key(folder, server, monkeypatch):
    monkeypatch.setenv("APTOOL_API_KEY", KEY)
    system = library.RerankServer(server.url, model="m")
    scorer = system.open()
    scoring.score_in_memory(list_units(["dev.pools.parquet"]), system)

    pickled = pickle.dumps(scorer.system)

    assert KEY.encode() not in pickled
    assert pickle.loads(pickled).open().fingerprint == scorer.fingerprint


def test_metadata_describe_the_server(score_command, folder, server):
    score_command("--server-model", "m 1", "--server-set", "user=x")

    text = (folder / "dev.run.ir-metadata.yml").read_text()
    assert f"method: m 1\n    server: {server.url}\n    batch: 32\n    fields:\n      user: x\n" in text
    assert run_of(folder).tag == "m-1"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (
            "http://user:pw-77@host/rerank",
            "http://host/rerank: a user, password, query or fragment in the URL",
        ),
        ("https://host:1/v1/rerank?api_key=pw-77", "https://host:1/v1/rerank: a user, password, query"),
        ("http://host/rerank#pw-77", "http://host/rerank: a user, password, query or fragment"),
        ("http://localhost:8000", "http://localhost:8000: expected http://HOST:PORT/PATH"),
        ("http://host:pw-77/rerank", "server: a URL with a wrong host or port; expected"),
        ("http:///rerank", ": expected http://HOST:PORT/PATH"),
    ],
)
def test_wrong_urls_end_in_one_line_without_their_secrets(aptool, folder, url, message):
    finished = aptool("score", "dev.pools.parquet", "--model", url, "--output", "dev.run")

    (line,) = finished.err
    assert finished.code in (1, 2)
    assert message in line
    assert "pw-77" not in line
    assert list(folder.glob("dev.run*")) == []


def test_answer_may_repeat_the_documents_with_escapes(folder, server):
    """vLLM repeats the documents; JSON may escape each character of two bytes by six."""
    document = "é" * 500_000
    client = rerank_client.RerankClient(server.url, urlsplit(server.url), None, 30.0, {})
    server.faults = ["repeat_documents"]

    assert client.scores("q1", "who?", [document]) == [score("who?", document)]
    client.close()


def test_slow_handshake_ends_in_one_line(aptool, folder):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/rerank"

        finished = aptool(
            *("score", "dev.pools.parquet", "--model", url, "--output", "dev.run", "--server-timeout", 0.3)
        )

    (line,) = finished.err
    assert finished.code == 1
    assert line.startswith(f"aptool: {url}: no connection: ")
    assert "timed out" in line


def test_absent_server_ends_in_one_line_at_once(aptool, folder):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/rerank"

        finished = aptool("score", "dev.pools.parquet", "--model", url, "--output", "dev.run")

    expected = "no connection: Connection refused; expected a running server: check the URL"
    assert (finished.code, finished.err) == (1, [f"aptool: {url}: {expected}"])


def test_no_request_is_sent_after_a_stop(server, monkeypatch):
    """The client is stopped while it opens a connection."""
    client = rerank_client.RerankClient(server.url, urlsplit(server.url), None, 30.0, {})
    connect = socket.create_connection

    def connect_and_stop(*arguments):
        client.stop()
        return connect(*arguments)

    monkeypatch.setattr(socket, "create_connection", connect_and_stop)
    with pytest.raises(InputError, match="connection lost: stopped"):
        client.scores("q1", "who?", ["a"])
    assert server.requests == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--server-model", "m"], "--server-model: requires the URL of a server as --model"),
        (["--server-set", "a=1"], "--server-set: requires the URL of a server as --model"),
    ],
)
def test_options_of_a_server_need_a_url(aptool, folder, options, message):
    finished = aptool("score", "dev.pools.parquet", "--model", "bm25", *options)

    assert (finished.code, finished.err) == (2, [f"aptool: {message}"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--server-set", "documents=1"],
            "server: fields: the field 'documents'; expected fields that aptool",
        ),
        (["--server-set", "truncate"], "--server-set 'truncate': expected KEY=VALUE"),
        (["--server-set", "a=NaN"], "server: fields: Out of range float values are not JSON compliant"),
        (["--encoded", "store"], "which does not encode answers"),
    ],
)
def test_wrong_options_end_in_one_line(score_command, options, message):
    finished = score_command(*options)

    assert finished.code in (1, 2)
    assert message in finished.err[-1]


def test_needs_no_torch(folder, server):
    code = (
        "import sys\nimport aptool\n"
        f"print(aptool.score('dev.pools.parquet', {server.url!r}, 'dev.run').pairs)\n"
        "assert 'torch' not in sys.modules\n"
    )
    finished = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=os.environ
    )

    assert (finished.stdout, finished.stderr) == ("8\n", "")


def test_https_needs_a_trusted_certificate(aptool, folder, monkeypatch):
    if shutil.which("openssl") is None:
        pytest.skip("needs the command openssl")
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    key = ["-newkey", "rsa:2048", "-nodes", "-keyout", "server.pem", "-days", "2"]
    create = ["openssl", "req", "-x509", *key, *names, "-out", "certificate.pem"]
    subprocess.run(create, check=True, capture_output=True, cwd=folder)
    with (folder / "server.pem").open("a") as file:
        file.write((folder / "certificate.pem").read_text())
    with serving(folder / "server.pem") as server:
        command = ["score", "dev.pools.parquet", "--model", server.url, "--output", "dev.run"]

        refused = aptool(*command)
        monkeypatch.setenv("SSL_CERT_FILE", str(folder / "certificate.pem"))
        finished = aptool(*command)

    (line,) = refused.err
    assert refused.code == 1
    assert line.startswith(f"aptool: {server.url}: no connection: ")
    assert "certificate verify failed" in line
    assert (finished.code, finished.err) == (0, [])
    assert run_of(folder).to_dict() == EXPECTED


def test_interrupt_ends_running_requests(folder, server):
    """The server would answer after half a minute."""
    server.delay = 30.0
    options = ["--model", server.url, "--output", "dev.run", "--server-timeout", "1000"]
    command = [sys.executable, "-m", "aptool", "score", "dev.pools.parquet", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while len(server.requests) < 2 and process.poll() is None:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=25)

    assert process.returncode == 130
    assert b"Traceback" not in errors
    assert not (folder / "dev.run").exists()
