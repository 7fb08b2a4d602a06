"""`aptool score --engine sentence-transformers` has the scores of that library."""

import json
import sys

import numpy as np
import pytest
import torch
from networks import QUESTIONS, REASON, SENTENCE_TRANSFORMERS, TEXTS, colbert, cross_encoder, write_network
from simulated_gpu import SimulatedGpu
from tiny import row, write_pools

import aptool as toolkit
from aptool.errors import AptoolError
from aptool.formats.pools import list_units, read_pools
from aptool.scoring import library_system, parts
from aptool.scoring.library_system import LibraryScorer, LibrarySystem, load_library_model
from aptool.scoring.score import score_files

pytest.importorskip("transformers", reason=REASON)
library = pytest.importorskip("sentence_transformers", reason=SENTENCE_TRANSFORMERS)

ENGINE = "sentence-transformers"
TEMPLATE = "{% for message in messages %}the {{ message['content'] }} ?{% endfor %}"


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


def with_word_vectors(network, folder):
    """Word vectors and an LSTM, without a pretrained network."""
    from sentence_transformers.sentence_transformer.modules import LSTM, Pooling, WordEmbeddings
    from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

    words = sorted({word for text in (*TEXTS.values(), *QUESTIONS.values()) for word in text.split()})
    vectors = np.random.default_rng(0).normal(size=(len(words), 12))
    embeddings = WordEmbeddings(WhitespaceTokenizer(words, stop_words=["the"]), vectors, max_seq_length=20)
    modules = [embeddings, LSTM(12, hidden_dim=8), Pooling(16, "max")]
    return sentence_encoder(folder, modules, prompts={"query": "where is ", "document": "near "})


def with_two_encoders(network, folder):
    """Questions and answers have different layers after the network."""
    from sentence_transformers.base.modules import Dense, Router
    from sentence_transformers.sentence_transformer.modules import Pooling

    router = Router.for_query_document([Dense(16, 8)], [Dense(16, 8)])
    return sentence_encoder(folder, [transformer(network), Pooling(16, "mean"), router])


def with_chat_template(network, folder):
    """A sentence encoder whose texts are messages."""
    from sentence_transformers.sentence_transformer.modules import Pooling
    from transformers import AutoModel, AutoTokenizer

    templated = folder.with_name("templated")
    tokenizer = AutoTokenizer.from_pretrained(network)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(templated)
    AutoModel.from_pretrained(network).save_pretrained(templated)
    return sentence_encoder(folder, [transformer(templated), Pooling(16, "mean")], similarity_fn_name="dot")


def with_unlike_head(network, folder):
    """A cross-encoder whose head is a module."""
    from sentence_transformers.base.modules import Dense
    from sentence_transformers.sentence_transformer.modules import Pooling

    head = Dense(16, 1, module_output_name="scores", activation_function=torch.nn.Identity())
    modules = [transformer(network), Pooling(16, "cls"), head]
    library.CrossEncoder(modules=modules, device="cpu").save(str(folder))
    return library.CrossEncoder(str(folder), device="cpu")


def with_token_pooling(network, folder):
    """A late interaction model that keeps half of the vectors of an answer."""
    from sentence_transformers.multi_vector_encoder.modules import HierarchicalTokenPooling

    colbert(network, folder.with_name("colbert"))
    model = library.MultiVectorEncoder(str(folder.with_name("colbert")), device="cpu")
    model.append(HierarchicalTokenPooling(2))
    model.save(str(folder), create_model_card=False)
    return library.MultiVectorEncoder(str(folder), device="cpu")


# Kinds of checkpoints that both engines read.
KINDS = ("network", "pairs", "tokens")
CHECKPOINTS = (with_word_vectors, with_two_encoders, with_chat_template, with_unlike_head, with_token_pooling)


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


def assert_close(run, scores):
    actual = toolkit.Run.load(run).to_dict()
    assert actual == {q: pytest.approx(row, abs=1e-5) for q, row in scores.items()}


@pytest.mark.parametrize("build", CHECKPOINTS)
def test_checkpoints_that_aptool_refuses_have_the_scores_of_the_library(
    aptool, network, pools, tmp_path, build
):
    torch.manual_seed(5)
    model = build(network, tmp_path / "model")

    refused = aptool("score", pools, "--model", tmp_path / "model", "--output", tmp_path / "own.run")
    options = ["--engine", ENGINE, "--device", "cpu"]
    finished = aptool("score", pools, "--model", tmp_path / "model", "--output", tmp_path / "r.run", *options)

    assert refused.code == 1
    assert refused.err[-1].endswith(f"or `aptool score --engine {ENGINE}` uses the library")
    assert (finished.code, finished.err) == (0, [])
    assert finished.out == [f"{tmp_path / 'r.run'}: 20 pairs"]
    assert_close(tmp_path / "r.run", expected(model))


def checkpoint(kind, network, folder):
    """The folder of a checkpoint that both engines read."""
    if kind == "network":
        return network
    if kind == "pairs":
        cross_encoder(network, folder, 1)
    else:
        colbert(network, folder)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_both_engines_agree_where_aptool_reads_a_checkpoint(network, pools, tmp_path, kind):
    folder = checkpoint(kind, network, tmp_path / "model")

    toolkit.score(pools, folder, tmp_path / "own.run", device="cpu")
    toolkit.score(pools, folder, tmp_path / "library.run", device="cpu", engine=ENGINE)

    assert_close(tmp_path / "library.run", toolkit.Run.load(tmp_path / "own.run").to_dict())


def test_a_resumed_run_has_the_bytes_of_an_uninterrupted_run(network, pools, tmp_path, monkeypatch):
    units, system = list_units([pools]), LibrarySystem(str(network), "cpu")
    score_files(units, system, tmp_path / "whole.run")
    write = parts.write_part

    def write_first(part, *arguments):
        if part.unit.row_group == 1:
            raise AptoolError("interrupted")
        write(part, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr("aptool.scoring.score.write_part", write_first)
        with pytest.raises(AptoolError, match="interrupted"):
            score_files(units, system, tmp_path / "resumed.run")
    resumed = score_files(units, system, tmp_path / "resumed.run")

    assert resumed.resumed == 1
    assert (tmp_path / "resumed.run").read_bytes() == (tmp_path / "whole.run").read_bytes()


@pytest.mark.parametrize("change", ["file", "version", "batch", "precision"])
def test_parts_of_another_file_version_or_setting_are_not_used(network, tmp_path, monkeypatch, change):
    system = LibrarySystem(str(network), "cpu")
    before = system.open().fingerprint
    assert system.open().fingerprint == before

    if change == "file":
        folder = write_network(tmp_path / network.name)
        (folder / "merges.bpe").write_text("other")  # a file of a tokenizer
        system = LibrarySystem(str(folder), "cpu")
    elif change == "version":
        versions = {"sentence-transformers": "6.2.1"}
        monkeypatch.setattr(library_system, "versions_of", lambda *names: versions)
    elif change == "batch":
        system = LibrarySystem(str(network), "cpu", tokens_per_batch=64)
    else:
        system = LibrarySystem(str(network), "cpu", "bf16")

    assert system.open().fingerprint != before


def test_each_distinct_answer_of_a_row_group_is_encoded_once(network, pools, tmp_path, monkeypatch):
    encoded, encode = [], library.SentenceTransformer.encode_document

    def record(model, texts, *arguments, **options):
        encoded.extend([] if texts == "a" else texts)
        return encode(model, texts, *arguments, **options)

    monkeypatch.setattr(library.SentenceTransformer, "encode_document", record)
    toolkit.score(pools, network, tmp_path / "r.run", device="cpu", engine=ENGINE)

    assert sorted(encoded) == sorted([*TEXTS.values()] * 2)  # two row groups


@pytest.mark.parametrize("kind", KINDS)
def test_small_blocks_have_the_same_scores(network, pools, tmp_path, monkeypatch, kind):
    folder = checkpoint(kind, network, tmp_path / "model")
    toolkit.score(pools, folder, tmp_path / "whole.run", device="cpu", engine=ENGINE)
    monkeypatch.setattr(library_system, "_ANSWERS", 2)
    monkeypatch.setattr(library_system, "_PAIRS", 3)

    toolkit.score(pools, folder, tmp_path / "blocks.run", device="cpu", engine=ENGINE)

    assert_close(tmp_path / "blocks.run", toolkit.Run.load(tmp_path / "whole.run").to_dict())


@pytest.mark.parametrize("kind", KINDS)
def test_scores_on_a_simulated_gpu_are_those_of_a_cpu(network, pools, tmp_path, kind):
    folder = checkpoint(kind, network, tmp_path / "model")
    system, batch = LibrarySystem(str(folder), "cpu"), read_pools(list_units([pools])[0])
    expected = system.open().score(batch)
    model = load_library_model(system)

    with SimulatedGpu():
        scorer = LibraryScorer(system, model.to("cuda"), "cuda")
        actual = scorer.score(batch)

    np.testing.assert_allclose(actual, expected, atol=1e-6)


def test_metadata_name_engine_class_and_versions(network, pools, tmp_path):
    toolkit.score(pools, network, tmp_path / "r.run", device="cpu", engine=ENGINE)

    metadata = (tmp_path / "r.run.ir-metadata.yml").read_text(encoding="utf-8")

    for text in (
        "sentence-transformers SentenceTransformer",
        f"sentence-transformers: {library.__version__}",
    ):
        assert text in metadata
    assert toolkit.Run.load(tmp_path / "r.run").tag == "bert"


def test_bf16_is_near_fp32_and_not_equal(network, pools, tmp_path):
    for precision in ("fp32", "bf16"):
        toolkit.score(
            pools, network, tmp_path / f"{precision}.run", device="cpu", engine=ENGINE, precision=precision
        )
    runs = [toolkit.Run.load(tmp_path / f"{name}.run").to_polars()["score"] for name in ("fp32", "bf16")]

    assert 0 < np.abs(np.sort(runs[0]) - np.sort(runs[1])).max() < 0.05


def test_without_the_extra_one_line_installs_it(aptool, network, pools, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)

    finished = aptool("score", pools, "--model", network, "--output", tmp_path / "r.run", "--engine", ENGINE)

    assert (finished.code, len(finished.err)) == (1, 1)
    assert (
        "engine sentence-transformers needs sentence_transformers: `python -m pip install" in finished.err[0]
    )
    assert '[sentence-transformers]"`' in finished.err[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--model", "bm25"], "engine 'sentence-transformers': requires the folder or the name of a model"),
        (["--kind", "causal-lm", "--true-token", "yes"], "true_token: expected None with the engine"),
        (["--kind", "cross-encoder"], "a network without head here; expected a model of kind cross-encoder"),
    ],
)
def test_options_that_do_not_fit_are_one_line(aptool, network, pools, tmp_path, options, message):
    model = [] if "--model" in options else ["--model", network]

    finished = aptool("score", pools, *model, "--output", tmp_path / "r.run", "--engine", ENGINE, *options)

    assert finished.code in (1, 2)
    assert message in finished.err[-1]
    assert not (tmp_path / "r.run").exists()


@pytest.mark.parametrize("command", ["explain", "train"])
def test_other_commands_take_no_engine(aptool, command):
    finished = aptool(command, "x", "--engine", ENGINE)

    assert finished.code == 2
    assert "No such option" in finished.err[-1]
    assert "--engine" in finished.err[-1]


def change(path, **entries):
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | entries), encoding="utf-8")


def test_a_network_without_a_maximum_length_is_read(network, tmp_path):
    folder = write_network(tmp_path / "model")
    change(folder / "tokenizer_config.json", model_max_length=10**30)

    scorer = LibrarySystem(str(folder), "cpu").open()

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
    "activation_fn: 'evil.Function': expected a module of torch.nn": lambda folder: change(
        folder / "config.json", sentence_transformers={"activation_fn": "evil.Function"}
    ),
    "not part of Sentence Transformers": lambda folder: (folder / "modules.json").write_text(
        '[{"idx": 0, "name": "0", "path": "", "type": "modeling.Evil"}]', encoding="utf-8"
    ),
    "an adapter; expected a checkpoint with merged weights": lambda folder: (
        folder / "adapter_config.json"
    ).write_text("{}", encoding="utf-8"),
    "model_type: 'SparseEncoder': expected a model of kind": lambda folder: change(
        folder / "config_sentence_transformers.json", model_type="SparseEncoder"
    ),
    "model_type: 'SentenceTransformer': expected CrossEncoder, as other files say": lambda folder: change(
        folder / "config_sentence_transformers.json", model_type="SentenceTransformer"
    ),
    "tokenizer_name_or_path: 'org/other': expected no name of another checkpoint": lambda folder: change(
        folder / "sentence_bert_config.json", tokenizer_name_or_path="org/other"
    ),
}


@pytest.mark.parametrize("message", DAMAGES)
def test_checkpoints_that_the_library_would_read_otherwise_are_refused(network, tmp_path, message):
    cross_encoder(network, tmp_path / "model", 3 if "labels" in message else 1)
    DAMAGES[message](tmp_path / "model")

    with pytest.raises(AptoolError) as error:
        LibrarySystem(str(tmp_path / "model"), "cpu", kind="cross-encoder").open()

    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_an_error_while_scoring_is_one_line(network, pools, tmp_path, monkeypatch):
    def fail(*arguments, **options):
        raise ValueError("no template\nfor this text")

    scorer = LibrarySystem(str(network), "cpu").open()
    monkeypatch.setattr(type(scorer._model), "encode_document", fail)

    with pytest.raises(AptoolError, match=r"no template; expected a checkpoint that sentence-transformers"):
        scorer.score(read_pools(list_units([pools])[0]))


def test_scores_that_are_not_finite_are_an_error(network, pools, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = write_network(tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    weights["embeddings.word_embeddings.weight"][:] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(AptoolError, match="score nan: expected a finite number"):
        toolkit.score(pools, folder, tmp_path / "r.run", device="cpu", engine=ENGINE)


def test_a_model_of_aptool_is_not_for_the_library(model_folder):
    with pytest.raises(AptoolError, match="a model of aptool; expected a checkpoint of another library"):
        LibrarySystem(str(model_folder), "cpu").open()
