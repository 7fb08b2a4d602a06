"""A loopback server with the rerank API, which misbehaves on request.

The answers follow the published schemas: ``results`` with ``index`` and ``relevance_score``, best first
(vLLM, infinity, llama.cpp, Cohere, Jina), or a bare list with ``index`` and ``score``
(text-embeddings-inference).
"""

import contextlib
import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def score(query, document):
    """The score of the served model: shared words, and a fraction that distinguishes documents."""
    shared = set(query.lower().split()) & set(document.lower().split())
    return len(shared) + len(document) / 1024


class RerankService:
    """A running server.

    Attributes:
        url: URL of the API.
        requests: the parsed bodies of all requests, in order.
        headers: the headers of all requests.
        faults: names of methods of the handler, one per coming request; then the server behaves well.
        most: the highest number of requests at the same time.
        accepts_texts: whether the server is text-embeddings-inference.
    """

    def __init__(self, url):
        self.url, self.requests, self.headers, self.faults = url, [], [], []
        self.running = self.most = 0
        self.lock = threading.Lock()
        self.accepts_texts = False
        self.key = None
        self.delay = 0.0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        """Print nothing."""

    def do_POST(self):
        service = self.server.service
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with service.lock:
            service.requests.append(request)
            service.headers.append(dict(self.headers))
            service.running += 1
            service.most = max(service.most, service.running)
            fault = service.faults.pop(0) if service.faults else None
        try:
            time.sleep(service.delay)
            if service.key is not None and self.headers["Authorization"] != f"Bearer {service.key}":
                given = self.headers["Authorization"]
                self.send(401, {"error": {"message": f"Incorrect API key provided: {given}."}})
            elif fault is not None:
                getattr(self, fault)(request)
            else:
                self.good(request)
        finally:
            with service.lock:
                service.running -= 1

    def good(self, request):
        if self.server.service.accepts_texts and "texts" not in request:
            message = "Failed to deserialize the JSON body into the target type: missing field `texts`"
            self.send(422, message, "text/plain; charset=utf-8")
            return
        self.send(200, self.answer(request))

    def answer(self, request):
        documents = request.get("texts", request.get("documents"))
        scores = [(score(request["query"], text), index) for index, text in enumerate(documents)]
        ranked = sorted(scores, key=lambda pair: -pair[0])
        if "texts" in request:
            return [{"index": index, "score": value} for value, index in ranked]
        results = [{"index": index, "relevance_score": value} for value, index in ranked]
        return {
            "id": "rerank-1",
            "model": request.get("model"),
            "results": results,
            "usage": {"total_tokens": 9},
        }

    def send(self, status, value, content_type="application/json", headers=()):
        body = (value if isinstance(value, str) else json.dumps(value)).encode()
        self.send_response(status)
        for name, text in [("Content-Type", content_type), ("Content-Length", str(len(body))), *headers]:
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(body)

    # Faults

    def error_500(self, request):
        self.send(500, {"error": "CUDA error"})

    def error_503(self, request):
        self.send(503, "<html>Service Unavailable</html>", "text/html")

    def busy(self, request):
        self.send(429, {"message": "Model is overloaded"}, headers=[("Retry-After", "0")])

    def busy_for_an_hour(self, request):
        self.send(429, {"message": "Too many requests"}, headers=[("Retry-After", "3600")])

    def slow(self, request):
        time.sleep(1.0)
        with contextlib.suppress(OSError):
            self.good(request)

    def drip(self, request, before=b"HTTP/1.1 200 OK\r\n\r\n", piece=b" "):
        """Send an endless answer in small pieces."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.wfile.write(before)
            for _ in range(100):
                self.wfile.write(piece)
                time.sleep(0.02)

    def drip_header(self, request):
        self.drip(request, b"HTTP/1.1 200 OK\r\nX: ", b"a")

    def drip_chunk_size(self, request):
        self.drip(request, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0")

    def drip_trailer(self, request):
        self.drip(request, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n")

    def drip_continue(self, request):
        self.drip(request, b"", b"HTTP/1.1 100 Continue\r\n\r\n")

    def repeat_documents(self, request):
        answer = self.answer(request)
        answer["documents"] = request["documents"]
        self.send(200, answer)

    def long(self, request):
        self.send(200, "[" + "{}," * (1 << 20) + "{}]")

    def superscript_length(self, request):
        self.drip(request, b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\n")

    def two_lengths(self, request):
        self.drip(request, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n")

    def length_of_many_digits(self, request):
        self.drip(request, b"HTTP/1.1 200 OK\r\nContent-Length: " + b"1" * 5000 + b"\r\n\r\n")

    def busy_superscript(self, request):
        self.send(429, {"message": "Model is overloaded"}, headers=[("Retry-After", "\xb2")])

    def busy_until_no_date(self, request):
        date = f"Thu, 26 Nov {'9' * 30} 10:00:00 GMT"
        self.send(429, {"message": "Model is overloaded"}, headers=[("Retry-After", date)])

    def cut_before(self, request):
        self.close_connection = True

    def cut_within(self, request):
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b'{"results": [')
        self.close_connection = True

    def html(self, request):
        self.send(200, "<!doctype html><title>Sign in</title>", "text/html; charset=utf-8")

    def redirect(self, request):
        self.send(307, "", headers=[("Location", "https://example.org/rerank?token=abc")])

    def unprocessable(self, request):
        self.send(422, {"detail": [{"loc": ["body", "model"], "msg": "Field required"}]})

    def not_found(self, request):
        self.send(404, {"detail": "Not Found"})

    def changed(self, change):
        def send(request):
            answer = self.answer(request)
            change(answer["results"])
            self.send(200, answer)

        return send

    def short(self, request):
        self.changed(lambda results: results.pop())(request)

    def duplicate(self, request):
        self.changed(lambda results: results[0].update(index=results[1]["index"]))(request)

    def out_of_range(self, request):
        self.changed(lambda results: results[0].update(index=len(results)))(request)

    def negative(self, request):
        self.changed(lambda results: results[0].update(index=-1))(request)

    def no_index(self, request):
        self.changed(lambda results: results[0].pop("index"))(request)

    def not_a_number(self, request):
        self.changed(lambda results: results[0].update(relevance_score=float("nan")))(request)

    def too_large(self, request):
        self.changed(lambda results: results[0].update(relevance_score=1e39))(request)

    def text_score(self, request):
        self.changed(lambda results: results[0].update(relevance_score="0.9"))(request)

    def no_score(self, request):
        self.changed(lambda results: results[0].pop("relevance_score"))(request)

    def not_results(self, request):
        self.send(200, {"data": "none"})


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        """Print nothing if a client is gone."""


@contextlib.contextmanager
def serving(certificate=None):
    """Run a server on a free port of the loopback interface while the block runs.

    Args:
        certificate: PEM file with the certificate and the key of an HTTPS server; None for HTTP.
    """
    server = _Server(("127.0.0.1", 0), _Handler)
    scheme = "http"
    if certificate is not None:
        scheme, context = "https", ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.service = RerankService(f"{scheme}://127.0.0.1:{server.server_port}/v1/rerank")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
