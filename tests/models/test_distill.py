"""Distilling word vectors: the arithmetic on small numbers, and a tiny transformer end to end."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from aptool.environment import install_command
from aptool.errors import InputError
from aptool.models import distill
from aptool.models.distill import (
    distill_vectors,
    encode_words,
    principal_components,
    sif_weights,
)
from aptool.models.pretrained import OpenedNetwork
from aptool.text.tokenizer import Tokens


class Words:
    """A tokenizer whose tokens are letters, between a 1 and a 2."""

    def encode(self, words, limit):
        texts = [[1, *(ord(letter) - 94 for letter in word), 2] for word in words]
        return Tokens(np.concatenate(texts).astype(np.int32), np.cumsum([0, *map(len, texts)]))


class Average(torch.nn.Module):
    """A network with attention masks: a state is the token's row plus the mean of all unmasked rows."""

    def __init__(self):
        super().__init__()
        self.rows = torch.nn.Embedding(40, 6)
        torch.nn.init.normal_(self.rows.weight, generator=torch.Generator().manual_seed(0))

    def forward(self, input_ids, attention_mask):
        rows = self.rows(input_ids)
        mask = attention_mask.unsqueeze(2).float()
        states = rows + (rows * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True)
        return SimpleNamespace(last_hidden_state=states)


def encoder_of(network):
    return OpenedNetwork("some/model", network.eval(), Words(), 512)


def test_principal_components_of_points_on_known_axes():
    # Along (3, 4)/5 with variance 8, along (-4, 3)/5 with variance 2, around the point (10, 20).
    along, across = np.array([3, 4]) / 5, np.array([-4, 3]) / 5
    centre = np.array([10, 20])
    points = np.array([centre + 4 * along, centre - 4 * along, centre + 2 * across, centre - 2 * across])
    first, share = principal_components(points, 1)
    assert first == pytest.approx(np.array([[4], [-4], [0], [0]]))
    assert share == pytest.approx(0.8)
    both, share = principal_components(points, 2)
    # The largest loading of the second axis is 4/5, taken positive: it points along (4, -3)/5.
    assert both[:, 1] == pytest.approx([0, 0, -2, 2])
    assert share == pytest.approx(1)


def test_no_more_components_than_the_points_span():
    flat = np.random.default_rng(0).standard_normal((50, 3)) @ np.eye(3, 8)
    components, share = principal_components(flat, 300)
    assert components.shape == (50, 3)
    assert share == pytest.approx(1)
    # Without dropped components, distances do not change.
    assert np.linalg.norm(components[0] - components[1]) == pytest.approx(np.linalg.norm(flat[0] - flat[1]))


def test_frequent_words_are_made_short():
    # p is 0.9, 0.1 and 0: weights 0.1 / (0.1 + p).
    assert sif_weights(np.array([9, 1, 0]), 0.1) == pytest.approx([0.1, 0.5, 1.0])


def test_a_vector_does_not_depend_on_the_batch(monkeypatch):
    encoder = encoder_of(Average())
    words = ["a", "abcdefgh", "ba", "abc", "h"]
    alone = np.concatenate([encode_words(encoder, [word]) for word in words])
    monkeypatch.setattr(distill, "_BATCH", 4)
    together = encode_words(encoder, words)
    assert together == pytest.approx(alone, abs=1e-6)
    # The mean of the states is twice the mean of the rows.
    rows = encoder.network.rows.weight.detach().numpy()
    assert together[2] == pytest.approx(2 * rows[[1, 4, 3, 2]].mean(axis=0), abs=1e-6)


def test_vectors_have_the_same_length_before_weighting():
    encoder = encoder_of(Average())
    words = [f"{a}{b}" for a in "abcde" for b in "abcde"]
    plain = distill_vectors(encoder, words, np.ones(25), dim=4, sif=1e12)
    assert plain.words == words
    # The length of 4 numbers with root mean square 1/6 is 2/6.
    assert np.linalg.norm(plain.matrix, axis=1) == pytest.approx(np.full(25, 1 / 3))
    weighted = distill_vectors(encoder, words, np.array([75, *[1] * 24]), dim=4, sif=0.1)
    # p of the first word is 75/99.
    assert weighted.matrix[0] == pytest.approx(plain.matrix[0] * 0.1 / (0.1 + 75 / 99), rel=1e-5)
    wide = distill_vectors(encoder, words, np.ones(25), dim=300)
    # Sums of two of five letter vectors, minus their mean, span 4 dimensions.
    assert wide.matrix.shape == (25, 4)


def test_numbers_that_are_not_finite_are_an_error():
    broken = Average()
    broken.rows.weight.data[5] = torch.nan  # the letter c
    with pytest.raises(InputError, match="some/model: 'bc': expected an encoder with finite states"):
        distill_vectors(encoder_of(broken), ["a", "bc", "b"], np.ones(3))


def test_the_error_of_a_missing_extra_names_the_install_command(
    aptool, collection_folder, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "transformers", None)
    out = tmp_path / "v.bin"
    done = aptool("vectors", "distill", "--model", "a/b", "--collection", collection_folder, "--output", out)
    assert done.code == 1
    assert done.err == [f"aptool: distilling from a/b needs transformers: {install_command('transformers')}"]
    assert not out.exists()


def test_words_of_several_collections_are_distilled(aptool, encoder_folder, collection_folder, tmp_path):
    single, double = tmp_path / "single.bin", tmp_path / "double.bin"
    common = "vectors", "distill", "--model", encoder_folder, "--collection", collection_folder
    assert aptool(*common, "--output", single, "--dim", 3).code == 0
    # The same words, each twice as often, have the same relative frequencies.
    assert aptool(*common, "--dim", 3, "--collection", collection_folder, "--output", double).code == 0
    assert single.read_bytes() == double.read_bytes()
    assert single.read_bytes().split(maxsplit=2)[1] == b"3"
    wrong = aptool(*common)
    assert (wrong.code, len(wrong.err)) == (2, 1)
    assert "Missing option '--output'" in wrong.err[0]


def test_a_folder_without_a_transformer_is_refused(aptool, encoder_folder, collection_folder, tmp_path):
    (encoder_folder / "model.safetensors").unlink()
    common = "--collection", collection_folder, "--output", tmp_path / "v.bin"
    for model in (encoder_folder, collection_folder):
        done = aptool("vectors", "distill", "--model", model, *common)
        assert done.code == 1
        assert len(done.err) == 1
        assert "expected the folder of a pretrained network" in done.err[0]


def test_a_tokenizer_without_an_unknown_token_is_refused(aptool, encoder_folder, collection_folder, tmp_path):
    path = encoder_folder / "tokenizer.json"
    document = json.loads(path.read_text())
    del document["model"]["vocab"]["[UNK]"]
    document["added_tokens"] = [token for token in document["added_tokens"] if token["content"] != "[UNK]"]
    path.write_text(json.dumps(document))
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (encoder_folder / name).exists():
            (encoder_folder / name).write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))

    common = "--collection", collection_folder, "--output", tmp_path / "v.bin"
    done = aptool("vectors", "distill", "--model", encoder_folder, *common)

    assert (done.code, len(done.err)) == (1, 1)
    assert "WordPiece error: Missing [UNK] token from the vocabulary" in done.err[0]
