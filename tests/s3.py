"""An S3 server on loopback for tests, and a proxy before it that counts, fails or delays requests."""

import http.client
import http.server
import importlib.util
import os
import secrets
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import contextmanager

import pytest

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}

# moto's server. It compares and writes in two steps, between which another request could write.
SERVER = """
import io, sys, threading
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

application, lock = DomainDispatcherApplication(create_backend_app), threading.Lock()

def serve(environment, start):
    if environment["REQUEST_METHOD"] != "PUT":
        return application(environment, start)
    # Read before locking, so that a client that pauses during a request does not block other clients.
    chunked = environment.get("wsgi.input_terminated")
    content = environment["wsgi.input"].read(-1 if chunked else int(environment.get("CONTENT_LENGTH") or 0))
    with lock:
        return [b"".join(application({**environment, "wsgi.input": io.BytesIO(content)}, start))]

run_simple("127.0.0.1", int(sys.argv[1]), serve, threaded=True)
"""


def is_installed():
    """Whether the server and the client are installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("moto", "pyarrow"))


def require():
    """Skip a test if the server or the client is not installed."""
    if not is_installed():
        pytest.skip("moto is not installed")


@contextmanager
def server():
    """Start an S3 server in a child process and yield its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **CREDENTIALS},
    ) as process:
        try:
            for _ in range(600):
                try:
                    # Only for a first request to S3 does the server import what answers it: slow on a
                    # busy machine.
                    put_empty(f"{url}/ready")
                    break
                except OSError:
                    assert process.poll() is None, "the S3 server has ended"
                    time.sleep(0.1)
            yield url
        finally:
            process.terminate()


def new_bucket(url):
    """Create a bucket and return its URL."""
    name = f"bucket-{secrets.token_hex(4)}"
    put_empty(f"{url}/{name}")
    return f"s3://{name}"


def put_empty(url):
    """Create a bucket, or an empty object in it, such as the folder marker of other tools."""
    request = urllib.request.Request(url, method="PUT")
    request.add_header(
        "Authorization", "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, Signature=x"
    )
    urllib.request.urlopen(request, timeout=120).close()


def put_bytes(path, content=b"1"):
    """Write a file on a disk or a store, as another program does."""
    from aptool.outputs import output_file

    with output_file(path) as temporary:
        temporary.write_bytes(content)


def put(source, url):
    """Upload a file, or the files of a folder."""
    from aptool.outputs import upload
    from aptool.paths import Url

    if source.is_file():
        upload(source, Url(str(url)))
    for file in source.rglob("*") if source.is_dir() else ():
        if file.is_file():
            upload(file, Url(f"{url}/{file.relative_to(source)}"))


class Proxy(http.server.ThreadingHTTPServer):
    """Forwards requests to an S3 server.

    Attributes:
        bytes_read: bytes of objects that were sent to the client.
        requests: (method, path) of all requests, in order.
        before: called with method and path before a request is passed on; a status is answered in its stead.
        after: called with method and path after the server has answered; a status is answered in its stead.
    """

    daemon_threads = True

    def __init__(self, server_url):
        super().__init__(("127.0.0.1", 0), PassOn)
        self.backend = server_url.removeprefix("http://")
        self.bytes_read = 0
        self.requests = []
        self.before = self.after = lambda method, path: None
        self.lock = threading.Lock()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, client_address):
        pass  # a client that was killed


@contextmanager
def proxy(server_url):
    with Proxy(server_url) as started:
        thread = threading.Thread(target=started.serve_forever, args=(0.01,))
        thread.start()
        yield started
        started.shutdown()
        thread.join()


class PassOn(http.server.BaseHTTPRequestHandler):
    """Forwards one request."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *parts):
        pass

    def _pass_on(self):
        server = self.server
        body = self._body()
        with server.lock:
            server.requests.append((self.command, self.path))
        status, answer = server.before(self.command, self.path), None
        if status is None:
            answer = self._forward(body)
            status = server.after(self.command, self.path)
        if status is not None:
            answer = status, [], b""
        elif self.command == "GET" and "?" not in self.path:
            with server.lock:
                server.bytes_read += len(answer[2])
        self._answer(*answer)

    def _body(self):
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _forward(self, body):
        """Status, headers and content of the response of the server."""
        connection = http.client.HTTPConnection(self.server.backend, timeout=60)
        try:
            dropped = ("transfer-encoding", "expect")
            headers = {name: value for name, value in self.headers.items() if name.lower() not in dropped}
            connection.request(self.command, self.path, body=body, headers=headers)
            response = connection.getresponse()
            return response.status, response.getheaders(), response.read()
        finally:
            connection.close()

    def _answer(self, status, headers, content):
        self.send_response_only(status)
        length = () if self.command == "HEAD" else ("content-length",)
        for name, value in headers:
            if name.lower() not in ("transfer-encoding", "connection", *length):
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(content)))
        elif not headers:
            self.send_header("Content-Length", "0")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass_on  # noqa: N815
