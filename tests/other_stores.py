"""Google Cloud Storage and Azure on loopback.

Azure is Azurite, if it is installed: ``npm install azurite``, with its programs on the ``PATH``. Google Cloud
Storage is the S3 server behind a proxy, because the two APIs are almost equal. The proxy adds generations,
which replace ETags in conditional requests, and an error for deleting a missing object.
"""

import base64
import hashlib
import hmac
import itertools
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from contextlib import contextmanager
from email.utils import formatdate
from urllib.parse import quote, unquote, urlsplit

import pytest
import s3

# Azurite's account and key, which its manual publishes.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def google_variables(url):
    """Environment variables that direct to a server instead of Google Cloud Storage."""
    return {"GOOGLE_BASE_URL": url, "GOOGLE_BEARER_TOKEN": "test"}


def azure_variables(url):
    """Environment variables that direct to Azurite."""
    return {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": url}


class AsGoogle(s3.PassOn):
    """Forwards a request of Google's XML API to an S3 server."""

    generations: dict[str, int]
    numbers = itertools.count(1)

    def forward(self, body):
        """See ``s3.PassOn``."""
        parts = urlsplit(self.path)
        # The client writes "%2D" for "-", which the S3 server does not decode.
        self.path = parts._replace(path=quote(unquote(parts.path))).geturl()
        writes = self.command == "PUT" and not parts.query
        completes = self.command == "POST" and "uploadId" in parts.query
        if not (writes or completes or self.command == "DELETE"):
            return self._with_generation(parts.path, *super().forward(body))
        with self.server.lock:
            now = self.generations.get(parts.path, 0)
            expected = self.headers.get("x-goog-if-generation-match")
            if expected is not None and int(expected) != now:
                return 412, [], b"<Error><Code>PreconditionFailed</Code></Error>"
            if self.command == "DELETE" and not parts.query:
                if not now:
                    return 404, [], b"<Error><Code>NoSuchKey</Code></Error>"
                del self.generations[parts.path]
            answer = super().forward(body)
            if answer[0] == 200:
                self.generations[parts.path] = next(self.numbers)
            return self._with_generation(parts.path, *answer)

    def _with_generation(self, path, status, headers, content):
        return status, [*headers, ("x-goog-generation", str(self.generations.get(path, 0)))], content


@contextmanager
def google(s3_url):
    """A proxy with Google's XML API."""
    handler = type("Handler", (AsGoogle,), {"generations": {}})
    with s3.proxy(s3_url, handler) as started:
        yield started.url


@contextmanager
def azurite():
    """Start Azurite in a child process and yield its URL; skip the test if it is not installed."""
    program = shutil.which("azurite-blob")
    if program is None:
        pytest.skip("Azurite is not on the PATH: npm install azurite")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = [program, "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    with subprocess.Popen(
        [*start, "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=dict(os.environ),
    ) as process:
        try:
            for _ in range(600):
                try:
                    socket.create_connection(("127.0.0.1", port), 5).close()
                    break
                except OSError:
                    assert process.poll() is None, "Azurite has ended"
                    time.sleep(0.1)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def new_container(url, name):
    """Create a container by a request that is signed with the key of the account."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    signed = "PUT" + "\n" * 12 + "".join(f"{key}:{value}\n" for key, value in headers.items())
    signed += f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
    headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    request = urllib.request.Request(
        f"{url}/{ACCOUNT}/{name}?restype=container",
        method="PUT",
        headers={**headers, "Content-Length": "0"},
    )
    urllib.request.urlopen(request, timeout=30).close()
