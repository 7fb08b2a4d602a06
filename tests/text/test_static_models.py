"""Word vectors from static embedding models: folders as model2vec and others write them, and the hub."""

import json
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import Unigram, WordPiece
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Metaspace, Whitespace

from aptool.errors import AptoolError, InputError
from aptool.text.vectors import read_vectors

PIECES = ["[PAD]", "[UNK]", "[CLS]", "the", "play", "##ing", "##ed"]
ROWS = torch.tensor([[0.0, 0], [9, 9], [8, 8], [1, 2], [4, 0], [0, 4], [2, 6]])


def word_pieces() -> Tokenizer:
    tokenizer = Tokenizer(WordPiece({piece: i for i, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    tokenizer.normalizer = Lowercase()
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]"])
    tokenizer.enable_truncation(1)
    tokenizer.enable_padding(length=8)
    return tokenizer


@pytest.fixture
def folder(tmp_path):
    def write(tensors, tokenizer=None, name="model"):
        path = tmp_path / name
        path.mkdir(parents=True, exist_ok=True)
        save_file(tensors, path / "model.safetensors")
        (tokenizer or word_pieces()).save(str(path / "tokenizer.json"))
        (path / "config.json").write_text(json.dumps({"model_type": "model2vec", "normalize": False}))
        return path

    return write


def as_dict(vectors):
    return dict(zip(vectors.words, vectors.matrix.tolist(), strict=True))


NAMES = (
    "embeddings",
    "embedding.weight",
    "encoder.embedding.weight",
    "bert.embeddings.word_embeddings.weight",
)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int8])
def test_a_word_is_the_mean_of_its_pieces(folder, name, dtype):
    path = folder({name: ROWS.to(dtype)})
    said = []
    found = read_vectors(path, ["the", "Playing", "xyz", "played", "playing"], said.append)
    # playing = play + ##ing: the mean of (4, 0) and (0, 4); xyz has no known piece.
    assert as_dict(found) == {"the": [1, 2], "Playing": [2, 2], "played": [3, 3], "playing": [2, 2]}
    assert found.matrix.dtype == np.float32
    assert said == [f"{path}: static model, 2 numbers a word, 4 words found, 1 whole and 3 from their pieces"]


def test_all_words_are_the_whole_ones_in_the_vocabulary(folder):
    assert as_dict(read_vectors(str(folder({"embeddings": ROWS})))) == {"the": [1, 2], "play": [4, 0]}


def test_the_marks_of_unigram_tokenizers_are_no_part_of_words(folder):
    tokenizer = Tokenizer(Unigram([("<unk>", 0.0), ("▁the", -1.0), ("▁play", -1.0), ("ing", -2.0)], unk_id=0))
    tokenizer.pre_tokenizer = Metaspace()
    path = folder({"embeddings": ROWS[:4]}, tokenizer)
    assert as_dict(read_vectors(path)) == {"the": [9, 9], "play": [8, 8]}
    # play (8, 8) and ing (1, 2); nothing of 中 is known.
    assert as_dict(read_vectors(path, ["playing", "中"])) == {"playing": [4.5, 5]}


def test_mapping_and_weights_are_those_of_model2vec(folder):
    static_model = pytest.importorskip("model2vec").StaticModel
    table = torch.tensor([[1.0, 1], [2, 3], [5, 7]])
    mapping = torch.tensor([0, 0, 0, 1, 2, 2, 1])
    weights = torch.tensor([0.0, 0, 0, 2, 0.5, 3, 1])
    path = folder({"embeddings": table, "mapping": mapping, "weights": weights})
    words = ["the", "play", "playing", "played"]
    found = as_dict(read_vectors(path, words))
    # played: the mean of 0.5 (5, 7) and 1 (2, 3).
    assert found["played"] == [2.25, 3.25]
    tokenizer = word_pieces()
    tokenizer.no_padding()
    model = static_model(
        table.numpy(), tokenizer, weights=weights.numpy(), token_mapping=mapping.numpy(), max_length=None
    )
    assert np.array_equal(model.encode(words), list(found.values()))


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"linear": ROWS}, "['linear']: expected a tensor named embeddings or"),
        ({"embeddings": ROWS[0]}, "column 'embeddings': (2,): expected a matrix"),
        ({"embeddings": ROWS[:5]}, "'5 rows': expected a row for each of the tokenizer's 7 tokens"),
        ({"embeddings": ROWS, "weights": torch.ones(3)}, "'3 rows': expected a row for each"),
        ({"embeddings": ROWS, "mapping": torch.full((7,), 7)}, "column 'mapping': expected rows from 0 to 6"),
        ({"embeddings": ROWS * torch.nan}, "column 'the': 'NaN': expected finite numbers"),
    ],
)
def test_folders_that_do_not_fit_are_named(folder, tensors, message):
    path = folder(tensors)
    with pytest.raises(InputError) as error:
        read_vectors(path, ["the", "played"])
    assert str(error.value).startswith(f"{path / 'model.safetensors'}: ")
    assert message in str(error.value)


def test_broken_and_missing_files_are_named(folder):
    path = folder({"embeddings": ROWS})
    (path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match=r"tokenizer\.json: .*expected a tokenizer\.json"):
        read_vectors(path)
    word_pieces().save(str(path / "tokenizer.json"))
    data = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match=r"model\.safetensors: .*expected a safetensors file"):
        read_vectors(path)
    (path / "model.safetensors").unlink()
    with pytest.raises(InputError, match=r"model\.safetensors: 'no such file'"):
        read_vectors(path)


def test_a_name_on_the_hub_is_found_in_its_cache(folder, tmp_path, monkeypatch):
    hub = pytest.importorskip("model2vec.persistence.hf")
    monkeypatch.setattr(hub, "HF_HUB_CACHE", str(tmp_path))
    folder({"embeddings": ROWS}, name="models--somebody--static/snapshots/0123")
    vectors = read_vectors("somebody/static", ["playing", "xyz"])
    assert as_dict(vectors) == {"playing": [2, 2]}
    assert vectors.source == "somebody/static"


def test_a_hub_name_without_its_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "model2vec", None)
    with pytest.raises(AptoolError, match=r'^somebody/static: .* `pip install "aptool\[distill\]"`$'):
        read_vectors("somebody/static", ["a"])
