"""Word vectors from static embedding models: folders that model2vec reads, and names on the hub."""

import json
import logging
import sys

import numpy as np
import pytest
import torch
from recorded import recorded
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import Unigram, WordPiece
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Metaspace, Whitespace

from aptool.errors import AptoolError, InputError
from aptool.text.vectors import read_vectors
from aptool.version import install_command

needs_model2vec = pytest.mark.usefixtures("model2vec")
SUBWORDS = ["[PAD]", "[UNK]", "[CLS]", "the", "play", "##ing", "##ed"]
ROWS = torch.tensor([[0.0, 0], [9, 9], [8, 8], [1, 2], [4, 0], [0, 4], [2, 6]])


@pytest.fixture
def model2vec():
    return pytest.importorskip("model2vec", reason="the extra `distill` is not installed")


def word_piece() -> Tokenizer:
    tokenizer = Tokenizer(WordPiece({token: i for i, token in enumerate(SUBWORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = Lowercase()
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]"])
    tokenizer.enable_truncation(1)
    tokenizer.enable_padding(length=8)
    return tokenizer


@pytest.fixture
def folder(tmp_path):
    def write(tensors, tokenizer=None, name="model", config="config.json", **options):
        path = tmp_path / name
        path.mkdir(parents=True, exist_ok=True)
        save_file(tensors, path / "model.safetensors")
        (tokenizer or word_piece()).save(str(path / "tokenizer.json"))
        (path / config).write_text(json.dumps({"model_type": "model2vec", "normalize": False, **options}))
        return path

    return write


def as_dict(vectors):
    return dict(zip(vectors.words, vectors.matrix.tolist(), strict=True))


@needs_model2vec
@pytest.mark.parametrize(
    ("name", "config"),
    [("embeddings", "config.json"), ("embedding.weight", "config_sentence_transformers.json")],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8])
def test_a_word_is_the_mean_of_its_subwords(folder, name, config, dtype):
    path = folder({name: ROWS.to(dtype)}, config=config)
    with recorded() as log:
        vectors = read_vectors(path, ["the", "Playing", "xyz", "played", "playing", "", "the"])
    # playing is the mean of play and ##ing, (4, 0) and (0, 4); xyz has no known token.
    assert as_dict(vectors) == {"the": [1, 2], "Playing": [2, 2], "played": [3, 3], "playing": [2, 2]}
    assert vectors.matrix.dtype == np.float32
    expected = "static model, dimension 2, 4 words found, 1 as one token and 3 as the mean of their subwords"
    assert log.messages == [f"{path}: {expected}"]


@needs_model2vec
def test_means_of_half_precision_are_not_rounded(folder):
    rows = ROWS.clone()
    rows[4], rows[5] = torch.tensor([2048.0, 0]), torch.tensor([2050.0, 1])
    # (2048 + 2050) / 2 = 2049 lies between two float16.
    assert as_dict(read_vectors(folder({"embeddings": rows.half()}), ["playing"])) == {"playing": [2049, 0.5]}


@needs_model2vec
def test_settings_for_texts_do_not_change_word_vectors(folder, caplog):
    """Vectors keep their length, long words are not truncated, and nothing is logged about either."""
    path = folder({"embeddings": ROWS}, normalize=True, max_length=2)
    with caplog.at_level(logging.WARNING):
        vectors = read_vectors(path, ["the", "playing" + "ed" * 3])
    # play ##ing ##ed ##ed ##ed: ((4, 0) + (0, 4) + 3 (2, 6)) / 5.
    assert vectors.matrix == pytest.approx(np.array([[1, 2], [2, 22 / 5]]))
    assert not caplog.records


@needs_model2vec
def test_no_requested_or_encodable_word_is_valid(folder):
    path = folder({"embeddings": ROWS})
    assert read_vectors(path, []).matrix.shape == (0, 2)
    assert read_vectors(path, ["xyz"]).matrix.shape == (0, 2)


@needs_model2vec
def test_tokens_of_a_unigram_model_may_begin_with_a_prefix(folder):
    tokenizer = Tokenizer(Unigram([("<unk>", 0.0), ("▁the", -1.0), ("▁play", -1.0), ("ing", -2.0)], unk_id=0))
    tokenizer.pre_tokenizer = Metaspace()
    path = folder({"embeddings": ROWS[:4]}, tokenizer)
    # play (8, 8) and ing (1, 2); 中 is unknown.
    assert as_dict(read_vectors(path, ["the", "playing", "中"])) == {"the": [9, 9], "playing": [4.5, 5]}


@needs_model2vec
def test_mapping_and_weights_apply(folder):
    table = torch.tensor([[1.0, 1], [2, 3], [5, 7]])
    mapping = torch.tensor([0, 0, 0, 1, 2, 2, 1])
    weights = torch.tensor([0.0, 0, 0, 2, 0.5, 3, 1])
    path = folder({"embeddings": table, "mapping": mapping, "weights": weights})
    vectors = as_dict(read_vectors(path, ["the", "play", "playing", "played"]))
    # played: the mean of 0.5 (5, 7) and 1 (2, 3); playing: of 0.5 (5, 7) and 3 (5, 7).
    assert vectors == {"the": [4, 6], "play": [2.5, 3.5], "playing": [8.75, 12.25], "played": [2.25, 3.25]}


@needs_model2vec
@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"linear": ROWS}, "embeddings"),
        ({"embeddings": ROWS[:5]}, "Number of tokens (7) does not match number of vectors (5)"),
        ({"embeddings": ROWS, "weights": torch.ones(3)}, "out of bounds"),
        ({"embeddings": ROWS, "mapping": torch.full((7,), 7)}, "out of bounds"),
        ({"embeddings": ROWS * torch.nan}, "column 'the': NaN or infinity; expected finite numbers"),
    ],
)
def test_inconsistent_folders_are_refused(folder, tensors, message):
    path = folder(tensors)
    with pytest.raises(InputError) as error:
        read_vectors(path, ["the", "played"])
    assert str(error.value).startswith(f"{path}: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@needs_model2vec
def test_broken_and_missing_files_are_refused(folder):
    path = folder({"embeddings": ROWS})
    (path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match="expected a static model: its folder"):
        read_vectors(path, ["the"])
    word_piece().save(str(path / "tokenizer.json"))
    data = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match="expected a static model"):
        read_vectors(path, ["the"])
    (path / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"model: Could not find .*; expected a static model: its folder"):
        read_vectors(path, ["the"])


def test_a_name_on_the_hub_is_found_in_its_cache(folder, tmp_path, monkeypatch):
    hub = pytest.importorskip("model2vec.persistence.hf")
    monkeypatch.setattr(hub, "HF_HUB_CACHE", str(tmp_path))
    folder({"embeddings": ROWS}, name="models--somebody--static/snapshots/0123")
    vectors = read_vectors("somebody/static", ["playing", "xyz"])
    assert as_dict(vectors) == {"playing": [2, 2]}
    assert vectors.source == "somebody/static"


@pytest.mark.parametrize("local", [True, False], ids=["folder", "hub"])
def test_the_error_of_a_missing_extra_names_the_install_command(folder, local, monkeypatch):
    source = str(folder({"embeddings": ROWS})) if local else "somebody/static"
    monkeypatch.setitem(sys.modules, "model2vec", None)
    with pytest.raises(AptoolError) as error:
        read_vectors(source, ["a"])
    assert str(error.value) == f"{source}: a static model needs model2vec: {install_command('distill')}"
