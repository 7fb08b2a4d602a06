"""Rerank servers that answer slowly, forever, or with damaged HTTP and JSON."""

import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest import mock

import readers
from case import Case, surface
from mutators import mutate_bytes

from aptool.scoring import rerank_client

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"

# Beginnings of an answer, and pieces that follow forever.
STARTS = (
    *(b"", OK, OK + b"X: ", OK + b"\r\n", OK + b"Content-Length: 9999\r\n\r\n", CHUNKED, CHUNKED + b"1\r\n"),
    *(CHUNKED + b"0\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 503 Busy\r\nRetry-After: "),
)
PIECES = (
    *(b"a", b" ", b"0", b"{},", b"[", b"X: y\r\n", b"1\r\na\r\n", b"\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"),
    b"\0",
)
HEADERS = (
    *("Content-Length: \xb2", "Content-Length: -1", "Content-Length: 1, 2", "Content-Length: " + "1" * 5000),
    *("Content-Length: 1\r\nContent-Length: 2", "Transfer-Encoding: chunked", "Content-Encoding: gzip"),
    *("Retry-After: \xb2", "Retry-After: Thu, 99 Nov 99999999999 10:00:00 GMT", "X: " + "y" * 70_000),
)


class _Server:
    """A server that sends one kind of fault, after some good answers."""

    def __init__(self, generator: random.Random) -> None:
        self._good = generator.choice((0, 0, 1, 2))
        self._kind = generator.choice(("drip", "flood", "header", "damaged"))
        self._start, self._piece = generator.choice(STARTS), generator.choice(PIECES)
        self._header, self._random = generator.choice(HEADERS), generator
        self._stopped = threading.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/rerank"

    @contextmanager
    def running(self) -> Iterator[None]:
        threading.Thread(target=self._accept, daemon=True).start()
        try:
            yield
        finally:
            self._stopped.set()
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError, ValueError), connection, connection.makefile("rb") as file:
            while not self._stopped.is_set():
                length = 0
                while (line := file.readline()).strip():
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.partition(b":")[2])
                if not line:
                    return
                self._answer(connection, len(json.loads(file.read(length))["documents"]))

    def _answer(self, connection: socket.socket, documents: int) -> None:
        results = [{"index": index, "relevance_score": index / 8} for index in range(documents)]
        body = json.dumps({"results": results}).encode()
        self._good -= 1
        if self._good >= 0:
            connection.sendall(OK + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        elif self._kind == "header":
            status = "429 Busy" if self._header.startswith("Retry") else "200 OK"
            connection.sendall(f"HTTP/1.1 {status}\r\n{self._header}\r\n\r\n".encode("latin-1") + body)
            connection.shutdown(socket.SHUT_RDWR)
        elif self._kind == "damaged":
            damaged = mutate_bytes(self._random, body)
            connection.sendall(OK + b"Content-Length: %d\r\n\r\n" % len(damaged) + damaged)
        else:
            connection.sendall(self._start)
            while not self._stopped.is_set():
                connection.sendall(self._piece * (1 if self._kind == "drip" else 4096))
                if self._kind == "drip":
                    time.sleep(0.02)


@surface(6)
def servers(case: Case) -> None:
    server = _Server(case.random)
    pools = case.world.collection / "test.pools.parquet"
    outputs = ("x.run", "x.run.parts", "x.run.ir-metadata.yml")
    options = ["--server-timeout", 0.2, "--server-requests", case.random.choice((1, 4))]
    with server.running(), mock.patch.object(rerank_client, "FIRST_WAIT", 0.001):
        done = case.run(
            *("score", pools, "--model", server.url, "--output", "x.run", *options), outputs=outputs
        )
    if done is not None:
        for scores in readers.scores(Path("x.run").read_bytes()).values():
            assert all(abs(score) < 4e38 for score in scores.values())
