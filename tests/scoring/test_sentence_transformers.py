"""Checkpoints of other libraries have the scores of sentence-transformers, wherever they are scored."""

import json
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from networks import (
    QUESTIONS,
    REASON,
    SENTENCE_TRANSFORMERS,
    TEXTS,
    colbert,
    cross_encoder,
    write_network,
)
from simulated_gpu import SimulatedGpu
from tiny import row, write_pools

import aptool as toolkit
from aptool.data.pools import list_units, read_pools
from aptool.errors import AptoolError
from aptool.scoring import sentence_transformers
from aptool.scoring.model_system import model_system
from aptool.scoring.sentence_transformers import (
    SentenceTransformers,
    SentenceTransformersScorer,
    load_checkpoint,
)

pytest.importorskip("transformers", reason=REASON)
library = pytest.importorskip("sentence_transformers", reason=SENTENCE_TRANSFORMERS)


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    return write_network(tmp_path_factory.mktemp("network") / "bert")


@pytest.fixture
def pools(tmp_path):
    """Four pools in two row groups, with the same five answers in a different order."""
    rows = [
        row(name, text, [*list(TEXTS.items())[start:], *list(TEXTS.items())[:start]])
        for start, (name, text) in enumerate(QUESTIONS.items())
    ]
    return write_pools(tmp_path / "dev.pools.parquet", rows[:2], rows[2:])


def transformer(network, **options):
    from sentence_transformers.base.modules import Transformer

    return Transformer(str(network), **options)


def sentence_encoder(folder, modules, **options):
    library.SentenceTransformer(modules=modules, device="cpu", **options).save(
        str(folder), create_model_card=False
    )
    return library.SentenceTransformer(str(folder), device="cpu")


def with_two_encoders(network, folder):
    """Questions and answers have different layers after the network."""
    from sentence_transformers.base.modules import Dense, Router
    from sentence_transformers.sentence_transformer.modules import Pooling

    router = Router.for_query_document([Dense(16, 8)], [Dense(16, 8)])
    return sentence_encoder(folder, [transformer(network), Pooling(16, "mean"), router])


def cross_encoder_of(network, folder):
    cross_encoder(network, folder, 1)
    return library.CrossEncoder(str(folder), device="cpu")


def late_interaction(network, folder):
    colbert(network, folder)
    return library.MultiVectorEncoder(str(folder), device="cpu")


def mean_of_states(network, folder):
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

    return sentence_encoder(folder, [transformer(network), Pooling(16, "mean"), Normalize()])


def bare_network(network, folder):
    write_network(folder)
    return library.SentenceTransformer(str(folder), device="cpu")


def classifier(network, folder):
    """A network with a head, without modules.json."""
    cross_encoder(network, folder.with_name("with-modules"), 1)
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder.with_name("with-modules") / name, folder / name)
    return library.CrossEncoder(str(folder), device="cpu")


CHECKPOINTS = {
    build.__name__: build
    for build in (
        *(mean_of_states, with_two_encoders, bare_network, cross_encoder_of, classifier, late_interaction),
    )
}
KINDS = ("mean_of_states", "cross_encoder_of", "late_interaction")


@pytest.fixture
def built(network, tmp_path):
    """A function that builds a checkpoint, and returns its folder and the model of the library."""

    def build(name):
        torch.manual_seed(5)
        return tmp_path / "model", CHECKPOINTS[name](network, tmp_path / "model")

    return build


def expected(model):
    """The scores of the library by question and answer."""
    questions, answers = list(QUESTIONS.values()), list(TEXTS.values())
    if isinstance(model, library.CrossEncoder):
        scores = model.predict([(q, a) for q in questions for a in answers])
    else:
        scores = model.similarity(model.encode_query(questions), model.encode_document(answers))
    rows = np.asarray(scores).reshape(len(questions), len(answers))
    assert rows.std(1).min() > 1e-4
    return {q: dict(zip(TEXTS, row.tolist(), strict=True)) for q, row in zip(QUESTIONS, rows, strict=True)}


def close(scores):
    return {q: pytest.approx(row, abs=1e-6, rel=1e-6) for q, row in scores.items()}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_scores_are_those_of_the_library(aptool, built, pools, tmp_path, name):
    folder, model = built(name)
    scores = expected(model)

    finished = aptool("score", pools, "--model", folder, "--output", tmp_path / "r.run", "--device", "cpu")
    loaded = toolkit.load(folder, device="cpu")

    assert (finished.code, finished.err) == (0, [])
    assert finished.out == [f"{tmp_path / 'r.run'}: 20 pairs"]
    assert toolkit.Run.load(tmp_path / "r.run").to_dict() == close(scores)
    assert loaded.run(toolkit.Pools.load(pools)).to_dict() == close(scores)
    described = json.loads((tmp_path / "r.run.json").read_text(encoding="utf-8"))["system"]
    assert described["engine"] == f"sentence-transformers {type(model).__name__}"
    ids, texts = list(TEXTS), list(TEXTS.values())
    for question, text in QUESTIONS.items():
        ranking = {ids[number]: score for number, score in loaded.rank(text, texts)}
        assert ranking == pytest.approx(scores[question], abs=1e-6, rel=1e-6)


@pytest.mark.parametrize("change", ["file", "version", "batch", "precision"])
def test_parts_of_another_file_version_or_setting_are_not_used(network, tmp_path, monkeypatch, change):
    system = SentenceTransformers(str(network), "cpu")
    before = system.open().fingerprint
    assert system.open().fingerprint == before

    if change == "file":
        folder = write_network(tmp_path / network.name)
        (folder / "merges.bpe").write_text("other")  # a file of a tokenizer
        system = SentenceTransformers(str(folder), "cpu")
    elif change == "version":
        versions = {"sentence-transformers": "6.2.1"}
        monkeypatch.setattr(sentence_transformers, "versions_of", lambda *names: versions)
    elif change == "batch":
        system = SentenceTransformers(str(network), "cpu", tokens_per_batch=64)
    else:
        system = SentenceTransformers(str(network), "cpu", "bf16")

    assert system.open().fingerprint != before


def test_each_distinct_answer_of_a_unit_is_encoded_once(network, pools, tmp_path, monkeypatch):
    encoded, encode = [], library.SentenceTransformer.encode_document

    def record(model, texts, *arguments, **options):
        encoded.extend([] if texts == "a" else texts)
        return encode(model, texts, *arguments, **options)

    monkeypatch.setattr(library.SentenceTransformer, "encode_document", record)
    toolkit.score(pools, network, tmp_path / "r.run", device="cpu")

    assert sorted(encoded) == sorted(TEXTS.values())


@pytest.mark.parametrize("name", KINDS)
def test_small_blocks_have_the_same_scores(built, pools, tmp_path, monkeypatch, name):
    folder, _ = built(name)
    toolkit.score(pools, folder, tmp_path / "whole.run", device="cpu")
    monkeypatch.setattr(sentence_transformers, "_ANSWERS", 2)
    monkeypatch.setattr(sentence_transformers, "_PAIRS", 3)

    toolkit.score(pools, folder, tmp_path / "blocks.run", device="cpu")

    whole = toolkit.Run.load(tmp_path / "whole.run").to_dict()
    assert toolkit.Run.load(tmp_path / "blocks.run").to_dict() == close(whole)


@pytest.mark.parametrize("name", KINDS)
def test_scores_on_a_simulated_gpu_are_those_of_a_cpu(built, pools, name):
    folder, _ = built(name)
    system, batch = SentenceTransformers(str(folder), "cpu"), read_pools(list_units([pools])[0])
    expected = system.open().prepare(batch).score()
    model = load_checkpoint(system)

    with SimulatedGpu():
        scorer = SentenceTransformersScorer(system, model.to("cuda"), "cuda")
        actual = scorer.prepare(batch).score()

    np.testing.assert_allclose(actual, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            ["explain", "--question", "a", "--answer", "b"],
            "a model of another library; expected a model",
        ),
        (["score", "--backend", "openvino"], "backend openvino needs optimum.intel: `python -m pip install"),
        (["score"], "a checkpoint of another library needs sentence_transformers: `python -m pip install"),
    ],
)
def test_what_a_checkpoint_lacks_is_one_line(aptool, network, pools, tmp_path, monkeypatch, command, message):
    monkeypatch.setitem(sys.modules, "optimum.intel", None)
    if command == ["score"]:
        monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    name, *options = command
    more = [pools, "--output", tmp_path / "r.run"] if name == "score" else []

    finished = aptool(name, *more, "--model", network, *options)

    assert finished.code in (1, 2)
    assert message in finished.err[-1]
    assert not (tmp_path / "r.run").exists()


def test_a_package_that_cannot_be_imported_is_one_line_with_the_reason(tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text("raise ImportError('no model') from RuntimeError('no nms')")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(AptoolError, match=r"which cannot be imported: RuntimeError: no nms$"):
        sentence_transformers.require("broken", purpose="x", extra="report")


def test_openvino_is_asked_for_the_precision(network, monkeypatch):
    asked = []

    def load(folder, **options):
        asked.append(options)
        raise ValueError("this machine has no OpenVINO")

    fake = SimpleNamespace(SentenceTransformer=load)
    monkeypatch.setattr(sentence_transformers, "require", lambda name, **options: fake)
    for precision in ("fp32", "bf16"):
        with pytest.raises(AptoolError, match="this machine has no OpenVINO"):
            model_system(str(network), precision=precision, backend="openvino").open()

    assert {options["backend"] for options in asked} == {"openvino"}
    settings = [options["model_kwargs"] for options in asked]
    hints = [some["ov_config"]["INFERENCE_PRECISION_HINT"] for some in settings]
    assert hints == ["f32", "bf16"]


def change(path, **entries):
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | entries), encoding="utf-8")


def test_a_network_without_a_maximum_length_is_read(network, tmp_path):
    folder = write_network(tmp_path / "model")
    change(folder / "tokenizer_config.json", model_max_length=10**30)

    scorer = SentenceTransformers(str(folder), "cpu").open()

    assert scorer.max_answer_tokens == 64  # its positions


def lose_a_weight(folder):
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    weights.pop("classifier.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def pickle_weights(folder):
    from safetensors.torch import load_file

    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


DAMAGES = {
    "missing weights": lose_a_weight,
    "pickled ones are not read": pickle_weights,
    "3 labels; expected one label": lambda folder: None,
    "not part of Sentence Transformers": lambda folder: (folder / "modules.json").write_text(
        '[{"idx": 0, "name": "0", "path": "", "type": "modeling.Evil"}]', encoding="utf-8"
    ),
    "expected a checkpoint without code of its own, which is not run": lambda folder: change(
        folder / "config.json", model_type="evil", auto_map={"AutoConfig": "evil.Config"}
    ),
    "expected a checkpoint with merged weights": lambda folder: (folder / "adapter_config.json").write_text(
        '{"peft_type": "LORA", "base_model_name_or_path": "org/other"}', encoding="utf-8"
    ),
    "model_type: 'SparseEncoder': expected one of": lambda folder: change(
        folder / "config_sentence_transformers.json", model_type="SparseEncoder"
    ),
}


@pytest.mark.parametrize("message", DAMAGES)
def test_a_checkpoint_that_cannot_be_scored_is_one_line(network, tmp_path, message):
    cross_encoder(network, tmp_path / "model", 3 if "labels" in message else 1)
    DAMAGES[message](tmp_path / "model")

    with pytest.raises(AptoolError) as error:
        SentenceTransformers(str(tmp_path / "model"), "cpu").open()

    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_an_error_while_scoring_is_one_line(network, pools, tmp_path, monkeypatch):
    def fail(*arguments, **options):
        raise ValueError("no template\nfor this text")

    scorer = SentenceTransformers(str(network), "cpu").open()
    monkeypatch.setattr(type(scorer.model), "encode_document", fail)

    with pytest.raises(AptoolError, match=r"no template; expected a checkpoint that sentence-transformers"):
        scorer.prepare(read_pools(list_units([pools])[0])).score()
