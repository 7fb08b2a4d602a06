"""A model behind a server with the rerank API.

vLLM, text-embeddings-inference, infinity, llama.cpp, Cohere and Jina share this API. A request has a query
and documents; the answer has the index and the score of each document. The key of the server is read from
``APTOOL_API_KEY`` in the process that sends the requests, and appears in no file, message or error.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, urlsplit

import numpy as np
from typing_extensions import override

from aptool.errors import InputError, first_line
from aptool.formats.pools import Answers, PoolBatch, Unit
from aptool.scoring.rerank_client import KEY, RerankClient
from aptool.scoring.systems import Scorer, System, is_server_url

_MOST_REQUESTS = 1024
_POLL_SECONDS = 0.5
_LONGEST_TIMEOUT = 24 * 3600
_RESERVED = ("query", "documents", "texts", "model")
_EXPECTED_URL = "http://HOST:PORT/PATH or https://HOST/PATH, such as http://localhost:8000/rerank"


@dataclass(frozen=True)
class RerankServer(System):
    """A model behind a server with the rerank API, for `score`.

    The key of the server, if it needs one, is read from the environment variable ``APTOOL_API_KEY``; on a
    cluster, each worker reads its own.

    Attributes:
        url: URL of the API, such as ``http://localhost:8000/rerank``, without user, password and query.
        model: name of the model in the requests; Cohere and Jina require it.
        batch: number of documents per request. Scores of a listwise model depend on it.
        requests: number of concurrent requests, per worker on a cluster.
        timeout: seconds for the answer to a request.
        fields: further fields of the requests, such as ``{"truncate_prompt_tokens": -1}``.

    Example:
        >>> server = aptool.RerankServer("http://localhost:8000/v1/rerank", model="BAAI/bge-reranker-v2-m3")
        >>> server.requests
        8
    """

    url: str
    model: str | None = None
    batch: int = 32
    requests: int = 8
    timeout: float = 60.0
    fields: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        _split(self.url)
        if self.model is not None and (not isinstance(self.model, str) or not self.model.strip()):
            raise InputError("server", position="model", value=self.model, expected="a name")
        for name, most in (("batch", 1 << 20), ("requests", _MOST_REQUESTS)):
            number = getattr(self, name)
            if not isinstance(number, int) or isinstance(number, bool) or not 1 <= number <= most:
                raise InputError(
                    "server", position=name, value=number, expected=f"an integer from 1 to {most:,}"
                )
        seconds = self.timeout
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not is_number or not 0 < seconds <= _LONGEST_TIMEOUT:
            expected = f"seconds, more than 0 and at most {_LONGEST_TIMEOUT:,}"
            raise InputError("server", position="timeout", value=seconds, expected=expected)
        self._check_fields()

    def _check_fields(self) -> None:
        if not isinstance(self.fields, Mapping):
            raise InputError("server", position="fields", value=self.fields, expected="a dict")
        for name in _RESERVED:
            if name in self.fields:
                problem, expected = f"the field {name!r}", "fields that aptool does not set"
                raise InputError("server", position="fields", problem=problem, expected=expected)
        try:
            json.dumps(dict(self.fields), allow_nan=False)
        except (TypeError, ValueError) as error:
            problem = first_line(error)
            raise InputError("server", position="fields", problem=problem, expected="JSON values") from error

    @override
    def open(
        self, units: Sequence[Unit] = (), answers: Answers | None = None, device: str | None = None
    ) -> "RerankScorer":
        return RerankScorer(self)


class RerankScorer(Scorer):
    """Scores pools by requests to a server; it connects when it scores."""

    def __init__(self, server: RerankServer) -> None:
        self._server = server
        self._client: RerankClient | None = None
        name, fields = server.model or "rerank", dict(server.fields)
        description: dict[str, Any] = {"name": name, "server": server.url, "batch": server.batch}
        if fields:
            description["fields"] = fields
        settings = ["server", server.url, server.model, server.batch, fields]
        super().__init__(server, "-".join(name.split()), settings, description)

    def _connected(self) -> RerankClient:
        """The client, which lasts until an error."""
        if self._client is None:
            server = self._server
            parts, model, fields = _split(server.url), server.model, server.fields
            self._client = RerankClient(server.url, parts, model, server.timeout, fields)
        return self._client

    @override
    def score(self, inputs: PoolBatch, progress: Callable[[int], None] = lambda pairs: None) -> np.ndarray:
        client, size = self._connected(), self._server.batch
        questions, answers = inputs.questions.to_pylist(), inputs.answers.to_pylist()
        question_ids, pair_answer = inputs.question_ids.to_pylist(), inputs.pair_answer.tolist()
        scores = np.empty(len(pair_answer), dtype=np.float32)

        def score_batch(row: int, begin: int, end: int) -> int:
            documents = [answers[answer] for answer in pair_answer[begin:end]]
            scores[begin:end] = client.scores(question_ids[row], questions[row], documents)
            return end - begin

        pools = zip(inputs.offsets[:-1].tolist(), inputs.offsets[1:].tolist(), strict=True)
        batches = [
            (row, begin, min(begin + size, end))
            for row, (first, end) in enumerate(pools)
            for begin in range(first, end, size)
        ]
        threads = ThreadPoolExecutor(self._server.requests)
        try:
            running = {threads.submit(score_batch, *batch) for batch in batches}
            while running:
                # With a time limit, an interrupt ends the wait, whichever thread gets the signal.
                finished, running = wait(running, _POLL_SECONDS, FIRST_EXCEPTION)
                for request in finished:
                    progress(request.result())
        except BaseException:
            client.stop()
            self._client = None
            raise
        finally:
            threads.shutdown(cancel_futures=True)
            client.close()
        return scores


def _split(url: str) -> SplitResult:
    """Return the parts of a URL; an error does not show a password or a query."""
    if not is_server_url(url) or not url.isascii() or any(char <= " " for char in url):
        raise InputError("server", problem="not the URL of a server", expected=_EXPECTED_URL)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        problem = "a URL with a wrong host or port"
        raise InputError("server", problem=problem, expected=_EXPECTED_URL) from error
    shown = f"{parts.scheme}://{host}{'' if port is None else f':{port}'}{parts.path}"
    if not host or not parts.path.strip("/"):
        raise InputError(shown, expected=_EXPECTED_URL)
    if "@" in parts.netloc or "?" in url or "#" in url:
        problem = "a user, password, query or fragment in the URL"
        raise InputError(shown, problem=problem, expected=f"a URL without them, and the key in {KEY}")
    return parts
