"""The examples of CONTRIBUTING.md: a new encoder, pooling, data set and scorer."""

import importlib.util
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import numpy as np
import pytest

import aptool as library
from aptool.data.trec import read_qrels
from aptool.models.build import ENCODERS, POOLINGS

EXAMPLES = Path(__file__).parents[2] / "examples" / "extending"
SMALL = {
    "vectors.source": "random",
    "vectors.dim": 16,
    "training.minibatch": 8,
    "training.learning_rate": 0.01,
}


@pytest.fixture
def example(monkeypatch):
    """Import an example; restore the registries after the test."""
    registries = (ENCODERS, POOLINGS)
    before = [dict(registry) for registry in registries]

    def load(name):
        spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    yield load
    for registry, entries in zip(registries, before, strict=True):
        registry.clear()
        registry.update(entries)


@pytest.mark.parametrize(
    ("module", "recipe", "size"),
    [
        ("gru_encoder", "gru.toml", {"encoder.hidden": 16}),
        ("mean_max_pooling", "mean-max.toml", {"encoder.features": 16}),
        ("soft_attention", "soft-attention.toml", {"encoder.features": 16}),
    ],
)
def test_system_with_a_new_component_trains_saves_and_scores(
    example, module, recipe, size, collection_folder, tmp_path
):
    example(module)
    data = library.Collection(collection_folder)

    model = library.train(data, preset=str(EXAMPLES / recipe), set={**SMALL, **size}, seed=1)
    model.save(tmp_path / "model")
    run = library.load(tmp_path / "model", device="cpu").run(data.pools("dev"))

    # Six candidates, one relevant: a random order has an MRR of 0.41.
    assert library.evaluate(data.qrels("dev"), run, ["RR"]).means["MRR"] > 0.6
    question, answers = "where is the bridge ?", ["the bridge is near the river", "a garden"]
    pairs = [(question, answer) for answer in answers]
    alone = [float(model.score([pair])[0]) for pair in pairs]
    np.testing.assert_allclose(model.score(pairs), alone, atol=1e-6)  # scores do not depend on the batch


def test_parallel_lines_become_a_collection(example, tmp_path):
    questions, answers = tmp_path / "questions.txt", tmp_path / "answers.txt"
    questions.write_text("one?\ntwo?\nthree?\n", encoding="utf-8")
    answers.write_text("first\nsecond\nthird\n", encoding="utf-8")

    collection = example("parallel_lines").build(
        tmp_path / "mine", {"train": (str(questions), str(answers))}, candidates=2
    )

    qrels = read_qrels(collection.qrels_file("train"))
    assert sorted(qrels.select("question_id", "answer_id", "relevance").rows()) == [
        *(("Q0", "A0", 1), ("Q0", "A1", 0), ("Q1", "A1", 1)),
        *(("Q1", "A2", 0), ("Q2", "A0", 0), ("Q2", "A2", 1)),
    ]


class Reranker(BaseHTTPRequestHandler):
    """The rerank API of a model whose score is the length of a document; best first."""

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        scores = [(len(text), index) for index, text in enumerate(request["documents"])]
        ranked = sorted(scores, reverse=True)[: None if request["model"] == "lengths" else -1]
        body = {"results": [{"index": index, "relevance_score": score} for score, index in ranked]}
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *arguments):
        """Print nothing."""


@pytest.fixture
def server_url():
    with HTTPServer(("127.0.0.1", 0), Reranker) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/rerank"
        server.shutdown()


def test_pools_are_scored_by_a_server(example, server_url, collection_folder, tmp_path):
    server = example("external_scorer").RerankServer(server_url, "lengths")
    pools = library.Collection(collection_folder).pools("dev")

    library.score(pools, server, tmp_path / "out.run")

    scores = library.Run.load(tmp_path / "out.run").to_dict()
    texts = {question_id: answers for question_id, (_, answers) in pools.to_dict().items()}
    assert scores == {
        question_id: {answer_id: len(text) for answer_id, text in answers.items()}
        for question_id, answers in texts.items()
    }


@pytest.mark.parametrize(
    ("model", "message"), [("one less", "score nan: expected a finite number"), (None, "Connection refused")]
)
def test_a_missing_score_of_a_server_is_one_line(
    example, server_url, collection_folder, tmp_path, model, message
):
    url = server_url if model else "http://127.0.0.1:9/rerank"
    server = example("external_scorer").RerankServer(url, model)

    with pytest.raises(library.AptoolError, match=message) as error:
        library.score(collection_folder / "dev.pools.parquet", server, tmp_path / "out.run")
    assert "\n" not in str(error.value)
