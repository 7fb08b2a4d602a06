"""A client of the rerank API: requests over open connections, retries, and checks of the answers."""

import email.utils
import http.client
import json
import logging
import os
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Lock, Timer
from typing import Any, NamedTuple
from urllib.parse import SplitResult

import numpy as np

from aptool.errors import InputError, UsageError, first_line, one_line, shortened
from aptool.version import __version__

logger = logging.getLogger(__name__)

# Environment variable with the key of the server.
KEY = "APTOOL_API_KEY"

# Retries of a request, the first wait (doubled each time), and the longest wait without and with Retry-After.
RETRIES = 7
FIRST_WAIT = 1.0
LONGEST_WAIT = 60.0
LONGEST_RETRY_AFTER = 600.0

# Retries after a time-out, since each attempt takes long.
TIMEOUT_RETRIES = 2

# Bytes of the longest answer: a fixed part, one per document, one per byte of the request, since servers may
# repeat the documents with escapes, and never more than the last.
_ANSWER_BYTES = 1 << 20
_DOCUMENT_BYTES = 1 << 10
_BYTES_PER_BYTE = 3
_LONGEST_ANSWER = 64 << 20

_TOO_MANY_REQUESTS = 429
_BLOCK = 1 << 16
_DIGITS = re.compile("[0-9]+")
_LENGTH = re.compile("[0-9]{1,18}")


class _Request(NamedTuple):
    """The body of a request, and the maximum length of its answer."""

    body: bytes
    longest_answer: int


class _Answer(NamedTuple):
    """The answer of a server."""

    status: int
    content_type: str
    retry_after: str | None
    location: str | None
    body: bytes


class _FailedError(Exception):
    """A failed request that may be retried, with the time that the server asks to wait."""

    def __init__(self, problem: str, wait: float | None = None, retries: int = RETRIES) -> None:
        super().__init__(problem)
        self.problem, self.wait, self.retries = problem, wait, retries


class RerankClient:
    """Sends requests to a server from several threads, over connections that are kept open."""

    def __init__(
        self, url: str, parts: SplitResult, model: str | None, timeout: float, fields: Mapping[str, Any]
    ) -> None:
        """Read the key; connections are opened by `scores`. ``parts`` are those of ``url``."""
        self._url, self._parts, self._timeout = url, parts, timeout
        self._fields = ({} if model is None else {"model": model}, dict(fields))
        self._key = os.environ.get(KEY, "").strip()
        if not (self._key.isascii() and self._key.isprintable()):
            raise UsageError(f"{KEY}: expected printable ASCII characters")
        self._tls = ssl.create_default_context() if self._parts.scheme == "https" else None
        self._idle: list[http.client.HTTPConnection] = []
        self._busy: set[socket.socket] = set()
        self._lock = Lock()
        self._stopped = Event()
        self._takes_texts = False  # text-embeddings-inference has another name for the documents
        self._has_answered = False
        self._logged: set[str] = set()

    def stop(self) -> None:
        """End waits and running requests, whose threads raise an error.

        A connection that is being opened ends at its time-out at the latest, and no request is sent over it.
        """
        self._stopped.set()
        with self._lock:
            for sock in self._busy:
                _shut_down(sock)

    def close(self) -> None:
        """Close idle connections."""
        with self._lock:
            while self._idle:
                self._idle.pop().close()

    def scores(self, question_id: str, query: str, documents: Sequence[str]) -> list[float]:
        """Return the score of each document."""
        takes_texts = self._takes_texts
        answer = self._post(question_id, self._request(query, documents, takes_texts))
        if not takes_texts and answer.status in (400, 422) and b"`texts`" in answer.body:
            self._takes_texts = True
            answer = self._post(question_id, self._request(query, documents, texts=True))
        if answer.status != 200:
            expected = "an answer with scores"
            if answer.status in (401, 403):
                expected = f"another key in {KEY}" if self._key else f"a key in {KEY}, which is not set"
            raise self._error(question_id, self._problem(answer), expected)
        return self._parse(question_id, answer, len(documents))

    def _request(self, query: str, documents: Sequence[str], texts: bool) -> _Request:
        model, more = self._fields
        fields: dict[str, Any] = {**model, "query": query}
        if texts:
            fields |= {"texts": documents, "truncate": True, "raw_scores": True}
        else:
            fields |= {"documents": documents, "top_n": len(documents)}
        body = json.dumps({**fields, **more}, ensure_ascii=False).encode()
        longest = _ANSWER_BYTES + _DOCUMENT_BYTES * len(documents) + _BYTES_PER_BYTE * len(body)
        return _Request(body, min(longest, _LONGEST_ANSWER))

    def _post(self, question_id: str, request: _Request) -> _Answer:
        """Send a request, again after 429, 5xx, a time-out or a lost connection."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return self._attempt(request)
            except _FailedError as error:
                wait = (
                    min(FIRST_WAIT * 2 ** (attempt - 1), LONGEST_WAIT) if error.wait is None else error.wait
                )
                times = f", {attempt} times" if attempt > 1 else ""
                if attempt > error.retries or self._stopped.is_set():
                    expected = "a server that answers"
                    raise self._error(question_id, f"{error.problem}{times}", expected) from error
                if wait > LONGEST_RETRY_AFTER:
                    problem = f"{error.problem}; the server asks to wait {wait:,.0f} s"
                    expected = f"at most {LONGEST_RETRY_AFTER:g} s; the same command resumes"
                    raise self._error(question_id, problem, expected) from error
                self._log(error.problem, wait)
                self._stopped.wait(wait)

    def _attempt(self, request: _Request) -> _Answer:
        """Send a request once; raise ``_FailedError`` if it may be retried."""
        try:
            answer = self._send(request)
        except TimeoutError as error:
            problem = f"no answer within {self._timeout:g} s"
            raise _FailedError(problem, retries=TIMEOUT_RETRIES) from error
        except (OSError, http.client.IncompleteRead) as error:
            raise _FailedError(f"connection lost: {_reason(error)}") from error
        except http.client.HTTPException as error:
            raise _FailedError(f"malformed answer: {_reason(error)}", retries=0) from error
        self._has_answered = True
        if answer.status == _TOO_MANY_REQUESTS or answer.status >= 500:
            raise _FailedError(self._problem(answer), _seconds(answer.retry_after))
        return answer

    def _send(self, request: _Request) -> _Answer:
        deadline = time.monotonic() + self._timeout
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        if connection is not None:
            # A server closes idle connections: repeat the request on a new connection.
            with suppress(ConnectionError, http.client.HTTPException):
                return self._exchange(connection, request, deadline)
        self._check_running()
        return self._exchange(self._connect(deadline), request, deadline)

    def _check_running(self) -> None:
        if self._stopped.is_set():
            raise ConnectionAbortedError("stopped")

    def _connect(self, deadline: float) -> http.client.HTTPConnection:
        host, connection = self._parts.hostname or "", self._connection()
        try:
            sock = _open_socket(host, connection.port, deadline)
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_hostname=host)  # the time-out is of all its steps
        except OSError as error:
            if self._has_answered and not isinstance(error, ssl.SSLError):
                raise
            expected = "a running server: check the URL"
            problem = f"no connection: {_reason(error)}"
            raise InputError(self._url, problem=problem, expected=expected) from error
        sock.settimeout(None)  # see _time_limit
        connection.sock = sock
        return connection

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._tls is None:
            return http.client.HTTPConnection(host, port)
        return http.client.HTTPSConnection(host, port, context=self._tls)

    def _exchange(
        self, connection: http.client.HTTPConnection, request: _Request, deadline: float
    ) -> _Answer:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        headers["User-Agent"] = f"aptool/{__version__}"
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        sock: socket.socket = connection.sock  # the connection drops it before the end of its last answer
        with self._lock:
            self._busy.add(sock)
        is_open = False
        try:
            self._check_running()
            with _time_limit(sock, deadline):
                connection.request("POST", self._parts.path, request.body, headers)
                with connection.getresponse() as response:  # the connection takes another request after it
                    content = _read(response, request.longest_answer)
            is_open = not response.will_close
        finally:
            with self._lock:
                self._busy.remove(sock)
                if is_open:
                    self._idle.append(connection)
            if not is_open:
                connection.close()
        header = response.headers.get
        content_type = header("Content-Type", "").partition(";")[0].strip()
        return _Answer(response.status, content_type, header("Retry-After"), header("Location"), content)

    def _parse(self, question_id: str, answer: _Answer, documents: int) -> list[float]:
        """Return the scores of an answer in the order of the documents; each document needs one."""
        expected = f"{documents} results, each with an index from 0 to {documents - 1} and a finite score"
        try:
            value = json.loads(answer.body)
        except (ValueError, RecursionError) as error:
            problem = f"an answer that is not JSON ({answer.content_type or 'unknown type'})"
            raise self._error(question_id, problem, expected) from error
        results = value.get("results") if isinstance(value, dict) else value
        if not isinstance(results, list):
            raise self._error(question_id, f"an answer without results: {self._shown(value)}", expected)
        scores: dict[int, float] = {}
        for result in results:
            entry = result if isinstance(result, dict) else {}
            index, score = entry.get("index"), entry.get("relevance_score", entry.get("score"))
            if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < documents:
                raise self._error(question_id, f"the index {self._shown(index)}", expected)
            if index in scores:
                raise self._error(question_id, f"the index {index} twice", expected)
            number = _finite(score)
            if number is None:
                problem = f"the score {self._shown(score)} at index {index}"
                raise self._error(question_id, problem, expected)
            scores[index] = number
        if len(scores) != documents:
            raise self._error(question_id, f"{len(scores)} results", expected)
        return [scores[index] for index in range(documents)]

    def _problem(self, answer: _Answer) -> str:
        """The status of an answer, and the message in its body."""
        if 300 <= answer.status < 400:
            target = self._hidden((answer.location or "another URL").partition("?")[0])
            return f"HTTP {answer.status}: redirected to {target}"
        reason = _message(answer) or http.client.responses.get(answer.status, "")
        return self._hidden(f"HTTP {answer.status}: {reason}".rstrip(": "))

    def _shown(self, value: object) -> str:
        return self._hidden(shortened(value))

    def _hidden(self, text: str) -> str:
        """A text of the server without the key."""
        return text.replace(self._key, "***") if self._key else text

    def _error(self, question_id: str, problem: str, expected: str) -> InputError:
        position = f"question {question_id!r}"
        return InputError(self._url, position=position, problem=problem, expected=expected)

    def _log(self, problem: str, wait: float) -> None:
        """Log the first failure of each kind."""
        with self._lock:
            is_new = problem not in self._logged
            self._logged.add(problem)
        if is_new:
            logger.info(f"{self._url}: {one_line(problem)}; retrying after {wait:g} s")


@contextmanager
def _time_limit(sock: socket.socket, deadline: float) -> Iterator[None]:
    """Shut down a socket at a deadline and raise TimeoutError.

    A socket's own time-out, like that of urllib3 and httpx, starts again with each received byte.
    """
    timer = Timer(max(0.0, deadline - time.monotonic()), _shut_down, [sock])
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        if time.monotonic() < deadline:
            raise
        raise TimeoutError from error
    finally:
        timer.cancel()
    if time.monotonic() >= deadline:  # the end of the stream may look like the end of the answer
        raise TimeoutError


def _shut_down(sock: socket.socket) -> None:
    """End all reads and writes of a socket in other threads."""
    with suppress(OSError):
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # that of TLS sockets drops the state that reads need


def _open_socket(host: str, port: int, deadline: float) -> socket.socket:
    """Connect to the first address of a host that accepts, before a deadline."""
    failure: OSError = TimeoutError("timed out")
    for *_, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        seconds = deadline - time.monotonic()
        if seconds <= 0:
            break
        try:
            sock = socket.create_connection((str(address[0]), port), seconds)
        except OSError as error:
            failure = error
            continue
        sock.settimeout(max(deadline - time.monotonic(), 0.001))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock
    raise failure


def _read(response: http.client.HTTPResponse, longest: int) -> bytes:
    """Read an answer; raise if it is cut off or longer than ``longest``."""
    lengths = {value.strip() for value in response.headers.get_all("Content-Length", [])}
    if len(lengths) > 1 or not all(map(_LENGTH.fullmatch, lengths)):
        raise http.client.HTTPException(f"Content-Length: {shortened(', '.join(sorted(lengths)))}")
    blocks, size = [], 0
    while block := response.read1(_BLOCK):
        blocks.append(block)
        size += len(block)
        if size > longest:
            raise http.client.HTTPException(f"more than {longest:,} bytes")
    for length in lengths:
        if size < int(length):
            raise ConnectionError(f"an answer of {size:,} of {int(length):,} bytes")
    return b"".join(blocks)


def _reason(error: BaseException) -> str:
    return one_line(getattr(error, "strerror", None) or first_line(error))


def _seconds(retry_after: str | None) -> float | None:
    """The value of a Retry-After header, a number of seconds or a date; None if there is none."""
    if retry_after is None:
        return None
    if _DIGITS.fullmatch(retry_after.strip()):
        return float(retry_after)
    try:
        date = email.utils.parsedate_to_datetime(retry_after)
        return max(0.0, date.timestamp() - time.time())
    except (ValueError, TypeError, OverflowError, IndexError):  # the parser checks little
        return None


def _finite(score: object) -> float | None:
    """A score as a float; None if it is not a number that float32 can hold."""
    if not isinstance(score, int | float) or isinstance(score, bool):
        return None
    return float(score) if abs(score) <= float(np.finfo(np.float32).max) else None


def _message(answer: _Answer) -> str:
    """The message in the body of an error, or an empty text."""
    if answer.content_type == "text/html":
        return ""
    text = answer.body[:_BLOCK].decode("utf-8", "replace")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return one_line(text)
    for name in ("error", "message", "detail"):
        entry = value.get(name) if isinstance(value, dict) else None
        if isinstance(entry, dict):
            entry = entry.get("message")
        if isinstance(entry, str) and entry:
            return one_line(entry)
    return one_line(text)
