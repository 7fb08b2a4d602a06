"""`aptool score --engine openvino` has the scores of the library in PyTorch, up to the precision."""

import json
import sys

import networks
import numpy as np
import pytest
from networks import QUESTIONS, REASON, SENTENCE_TRANSFORMERS, cross_encoder, write_network
from tiny import row, write_pools

import aptool as toolkit
from aptool import environment
from aptool.errors import AptoolError
from aptool.formats.pools import list_units
from aptool.scoring import library_system, openvino
from aptool.scoring.openvino import calibration_texts
from aptool.scoring.score import score_files

pytest.importorskip("transformers", reason=REASON)
library = pytest.importorskip("sentence_transformers", reason=SENTENCE_TRANSFORMERS)

ENGINE = "openvino"
TEXTS = {name: text for name, text in networks.TEXTS.items() if text}


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    # The library pads the texts of the calibration to 384 tokens.
    return write_network(tmp_path_factory.mktemp("network") / "bert", positions=384)


@pytest.fixture
def pools(tmp_path, monkeypatch):
    """Four pools in two row groups; exported models are kept in a folder of the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rows = [row(name, text, list(TEXTS.items())) for name, text in QUESTIONS.items()]
    return write_pools(tmp_path / "dev.pools.parquet", rows[:2], rows[2:])


def scores(run):
    return toolkit.Run.load(run).to_polars().sort("question_id", "answer_id")["score"].to_numpy()


def checkpoint(kind, network, tmp_path):
    """The network, or a cross-encoder over it."""
    if kind == "network":
        return network
    folder = tmp_path / "pairs"
    cross_encoder(network, folder, 1)
    # Without token types, the library calibrates no cross-encoder over BERT.
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    settings["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def with_openvino():
    pytest.importorskip("optimum.intel", reason="these tests need the extra openvino")


@pytest.mark.parametrize("kind", ["network", "pairs"])
def test_fp32_has_the_scores_of_pytorch(aptool, network, pools, tmp_path, kind):
    with_openvino()
    folder = checkpoint(kind, network, tmp_path)

    finished = aptool("score", pools, "--model", folder, "--output", tmp_path / "r.run", "--engine", ENGINE)
    toolkit.score(pools, folder, tmp_path / "torch.run", device="cpu", engine="sentence-transformers")

    assert finished.code == 0
    assert len(finished.err) == 1
    assert "converting the network for OpenVINO, once" in finished.err[0]
    np.testing.assert_allclose(scores(tmp_path / "r.run"), scores(tmp_path / "torch.run"), atol=1e-5)
    assert "openvino:" in (tmp_path / "r.run.ir-metadata.yml").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["network", "pairs"])
def test_int8_is_near_fp32_and_a_resumed_run_has_the_same_bytes(network, pools, tmp_path, monkeypatch, kind):
    with_openvino()
    pytest.importorskip("datasets", reason="int8 needs the extra openvino")
    folder = checkpoint(kind, network, tmp_path)
    units, system = (
        list_units([pools]),
        library_system.LibrarySystem(str(folder), "cpu", "int8", engine=ENGINE),
    )
    score_files(units, system, tmp_path / "whole.run")
    toolkit.score(pools, folder, tmp_path / "torch.run", device="cpu", engine="sentence-transformers")

    def refuse(part, *arguments):
        raise AptoolError("interrupted")

    with monkeypatch.context() as patch:
        patch.setattr("aptool.scoring.score.write_part", refuse)
        with pytest.raises(AptoolError, match="interrupted"):
            score_files(units, system, tmp_path / "resumed.run")
    # The kept model is used: no network is converted again.
    monkeypatch.setattr(openvino, "_quantize", None)
    score_files(units, system, tmp_path / "resumed.run")

    assert (tmp_path / "resumed.run").read_bytes() == (tmp_path / "whole.run").read_bytes()
    difference = np.abs(scores(tmp_path / "whole.run") - scores(tmp_path / "torch.run"))
    assert 0 < difference.max() < 0.2


@pytest.mark.parametrize("engine", ["sentence-transformers", ENGINE])
def test_a_matrix_scores_with_an_engine(aptool, network, collection_folder, tmp_path, monkeypatch, engine):
    if engine == ENGINE:
        with_openvino()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "table.toml").write_text(
        f"""
[collections.tiny]
path = "{collection_folder}"
[systems.encoder]
model = "{network}"
engine = "{engine}"
[[rows]]
collection = "tiny"
systems = ["encoder"]
"""
    )

    finished = aptool("matrix", tmp_path / "table.toml", "--output", tmp_path / "out", "--device", "cpu")
    pools = collection_folder / "test.pools.parquet"
    toolkit.score(pools, network, tmp_path / "r.run", device="cpu", engine=engine)

    assert finished.code == 0
    run = tmp_path / "out/tiny/encoder/seed0/test.run"
    np.testing.assert_array_equal(scores(run), scores(tmp_path / "r.run"))


def test_modules_that_openvino_does_not_run_are_named(pools, tmp_path):
    with_openvino()
    from sentence_transformers.sentence_transformer.modules import Pooling, WordEmbeddings
    from sentence_transformers.sentence_transformer.modules.tokenizer import WhitespaceTokenizer

    words = sorted({word for text in TEXTS.values() for word in text.split()})
    vectors = np.random.default_rng(0).normal(size=(len(words), 12))
    modules = [WordEmbeddings(WhitespaceTokenizer(words), vectors), Pooling(12, "mean")]
    library.SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "words"))

    with pytest.raises(AptoolError, match="a module WordEmbeddings; expected a network that OpenVINO can"):
        toolkit.score(pools, tmp_path / "words", tmp_path / "r.run", engine=ENGINE)
    assert not (tmp_path / "r.run").exists()


def test_parts_of_another_engine_precision_or_calibration_are_not_used(network):
    model = library_system.load_library_model(library_system.LibrarySystem(str(network), "cpu"))
    systems = [
        library_system.LibrarySystem(str(network), "cpu"),
        library_system.LibrarySystem(str(network), "cpu", engine=ENGINE),
        library_system.LibrarySystem(str(network), "cpu", "bf16", engine=ENGINE),
        library_system.LibrarySystem(str(network), "cpu", "int8", engine=ENGINE, texts=("a",)),
        library_system.LibrarySystem(str(network), "cpu", "int8", engine=ENGINE, texts=("b",)),
    ]

    fingerprints = {library_system.LibraryScorer(system, model, "cpu").fingerprint for system in systems}

    assert len(fingerprints) == len(systems)


def test_calibration_takes_questions_and_answers_of_the_pools(pools):
    texts = calibration_texts(list_units([pools]), None)

    assert sorted(texts) == sorted({*TEXTS.values(), *QUESTIONS.values()})
    assert texts == calibration_texts(list_units([pools]), None)


def test_calibration_of_a_cross_encoder_takes_pairs(network, pools, tmp_path):
    cross_encoder(network, tmp_path / "pairs", 1)
    units = list_units([pools])

    of_pairs, of_texts = (
        library_system.LibrarySystem(str(folder), "cpu", "int8", engine=ENGINE).calibrated(units, None).texts
        for folder in (tmp_path / "pairs", network)
    )

    assert set(of_pairs) == {
        (question, answer) for question in QUESTIONS.values() for answer in TEXTS.values()
    }
    assert of_texts == calibration_texts(units, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--precision", "int8"], "precision 'int8': requires the engine openvino (--engine openvino)"),
        (["--engine", ENGINE, "--device", "cuda"], "device 'cuda': expected auto or cpu"),
        (["--engine", ENGINE, "--precision", "tf32"], "precision 'tf32': expected auto, fp32, bf16 or int8"),
    ],
)
def test_options_that_do_not_fit_are_one_line(aptool, network, pools, tmp_path, options, message):
    finished = aptool("score", pools, "--model", network, "--output", tmp_path / "r.run", *options)

    assert finished.code == 2
    assert message in finished.err[-1]


def test_without_the_extra_one_line_installs_it(aptool, network, pools, tmp_path, monkeypatch):
    monkeypatch.setattr("aptool.version.find_spec", lambda package: None if package == "openvino" else sys)

    finished = aptool("score", pools, "--model", network, "--output", tmp_path / "r.run", "--engine", ENGINE)

    assert (finished.code, len(finished.err)) == (1, 1)
    assert "engine openvino needs openvino: `python -m pip install" in finished.err[0]
    assert '[openvino]"`' in finished.err[0]


@pytest.mark.parametrize(
    ("lines", "native"),
    [
        ("processor : 0\nflags\t\t: fpu avx2 avx512f\n", set()),
        ("flags\t\t: avx2 avx_vnni\n", {"int8"}),
        ("flags\t\t: avx512_bf16 avx512_vnni\n", {"bf16", "int8"}),
        ("Features\t: asimd bf16 i8mm\n", {"bf16", "int8"}),
        ("", set()),
    ],
)
def test_flags_of_the_processor_tell_its_native_precisions(monkeypatch, lines, native):
    monkeypatch.setattr(environment, "_text", lambda path: lines)

    assert {name for name in ("bf16", "int8") if environment.is_native(name)} == native
    assert environment.is_native("fp32")


@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("flags", [{"avx2"}, {"avx512f", "avx512_bf16", "avx512_vnni"}])
def test_a_precision_that_the_processor_lacks_is_said_to_be_slower_than_fp32(
    network, pools, tmp_path, monkeypatch, caplog, precision, flags
):
    monkeypatch.setattr(environment, "processor_flags", lambda: flags)
    monkeypatch.setattr("aptool.version.find_spec", lambda package: sys)

    def refuse(system):
        raise AptoolError("not loaded")

    monkeypatch.setattr(library_system, "load_library_model", refuse)
    with pytest.raises(AptoolError, match="not loaded"):
        toolkit.score(pools, network, tmp_path / "r.run", engine=ENGINE, precision=precision)

    is_slow = flags == {"avx2"} and precision != "fp32"
    message = f"precision {precision}: this processor lacks it in hardware, so fp32 is faster"
    assert [record.message for record in caplog.records] == [message] * is_slow


def test_int8_without_texts_is_an_error(network):
    with_openvino()

    with pytest.raises(AptoolError, match="no texts to calibrate int8; expected pools with texts"):
        library_system.LibrarySystem(str(network), "cpu", "int8", engine=ENGINE).open()
