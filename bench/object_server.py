"""An S3 server on loopback that logs its requests.

    python -m bench.object_server PORT LOG

It is moto's server, which has objects in memory. A line of the log has the start and the end of a request, in
seconds of ``time.time``, the method, and the bytes of the response.
"""

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "bench",
    "AWS_SECRET_ACCESS_KEY": "bench",
    "AWS_REGION": "us-east-1",
}
BUCKET = "bench"
Done = TypeVar("Done")


class Requests(NamedTuple):
    """The requests to a server in a period.

    Attributes:
        number: number of requests.
        seconds: seconds in which at least one request was being processed.
        bytes: bytes of the responses.
    """

    number: int
    seconds: float
    bytes: int


class Server(NamedTuple):
    """A server with one bucket."""

    url: str
    bucket: str
    log: Path

    def requests(self, begin: float, end: float) -> Requests:
        """The requests that started between two times of ``time.time``."""
        rows = [json.loads(line) for line in self.log.read_text(encoding="ascii").splitlines()]
        inside = sorted(row for row in rows if begin <= row[0] <= end)
        busy, covered = 0.0, begin
        for start, stop, _, _ in inside:
            busy += max(0.0, min(stop, end) - max(start, covered))
            covered = max(covered, stop)
        return Requests(len(inside), busy, sum(row[3] for row in inside))

    def watched(self, work: Callable[..., Done], *arguments: Any) -> tuple[Done, float, Requests]:
        """The result of a call, its duration in seconds, and the requests during the call."""
        begun, clock = time.time(), time.perf_counter()
        result = work(*arguments)
        took = time.perf_counter() - clock
        return result, took, self.requests(begun, time.time())


@contextmanager
def object_server(folder: Path) -> Iterator[Server]:
    """Run a server in another process; this process and its children use it while the block runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url, log = f"http://127.0.0.1:{port}", folder / "requests.jsonl"
    log.touch()
    before = dict(os.environ)
    os.environ.update(CREDENTIALS, AWS_ENDPOINT_URL=url)
    command = [sys.executable, "-m", "bench.object_server", str(port), str(log)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait(process, url)
        request = urllib.request.Request(f"{url}/{BUCKET}", method="PUT")
        request.add_header(
            "Authorization", "AWS4-HMAC-SHA256 Credential=bench/20260101/us-east-1/s3/aws4_request"
        )
        urllib.request.urlopen(request, timeout=30).close()
        yield Server(url, f"s3://{BUCKET}", log)
    finally:
        process.terminate()
        process.wait()
        os.environ.clear()
        os.environ.update(before)


def _wait(process: "subprocess.Popen[bytes]", url: str) -> None:
    for _ in range(600):
        try:
            urllib.request.urlopen(f"{url}/moto-api/", timeout=5).close()
            return
        except OSError:
            if process.poll() is not None:
                sys.exit("the S3 server has ended: pip install 'moto[server]'")
            time.sleep(0.1)


def main() -> None:
    """Serve until the process is terminated."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import run_simple

    log = Path(sys.argv[2]).open("a", encoding="ascii")  # noqa: SIM115 - closed with the process
    application, lock = DomainDispatcherApplication(create_backend_app), threading.Lock()

    def timed(environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        begin = time.time()
        answer = b"".join(application(environment, start))
        with lock:
            log.write(json.dumps([begin, time.time(), environment["REQUEST_METHOD"], len(answer)]) + "\n")
            log.flush()
        return [answer]

    run_simple("127.0.0.1", int(sys.argv[1]), timed, threaded=True)


if __name__ == "__main__":
    main()
