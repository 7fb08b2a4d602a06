"""Networks other than BERT."""

import json

import pytest
import torch
from networks import IDS, REASON, corpus, initialized, write_with_tokenizer
from tiny import tokens

from aptool.errors import InputError
from aptool.models.encoders import EncoderSpec
from aptool.models.pretrained import open_network
from aptool.models.ragged import Ragged
from aptool.models.transformer import TransformerEncoder, TransformerOptions

transformers = pytest.importorskip("transformers", reason=REASON)

SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
KINDS = {
    "bert": SMALL | {"max_position_embeddings": 64},
    "roberta": SMALL | {"pad_token_id": 1, "max_position_embeddings": 66},
    "distilbert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32},
    "electra": SMALL | {"embedding_size": 8},
    "gpt2": {"n_embd": 16, "n_layer": 2, "n_head": 2},
    "t5": {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2},
}


@pytest.mark.parametrize(
    ("kind", "takes_embeddings"), [*((kind, True) for kind in KINDS), ("bert", False), ("gpt2", False)]
)
def test_batched_states_and_gradients_equal_those_of_single_texts(kind, takes_embeddings):
    torch.manual_seed(0)
    spec = EncoderSpec(40, 16, {"model_type": kind, "vocab_size": 40, **KINDS[kind]})
    encoder = TransformerEncoder(spec, TransformerOptions())
    assert encoder._takes_embeddings  # otherwise the test would be empty
    encoder._takes_embeddings = takes_embeddings
    encoder.train()
    encoder.network.eval()  # without dropout
    # Texts as long as BERT accepts, and RoBERTa with two positions fewer, leave no room for padding.
    texts = [*corpus(40), [7] * 64, [8] * 63]
    ids = Ragged.of(tokens(*texts))

    def gradients():
        values = {name: weight.grad for name, weight in encoder.network.named_parameters()}
        encoder.network.zero_grad()
        return {name: gradient for name, gradient in values.items() if gradient is not None}

    states = encoder(ids).values
    states.pow(3).sum().backward()
    actual = gradients()
    expected = [encoder.network(input_ids=torch.tensor([text])).last_hidden_state[0] for text in texts]
    torch.cat(expected).pow(3).sum().backward()

    torch.testing.assert_close(states, torch.cat(expected), atol=1e-5, rtol=1e-4)
    expected = gradients()
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    for name, gradient in expected.items():
        torch.testing.assert_close(actual[name], gradient, atol=1e-5 * largest, rtol=1e-3)


def written(folder, kind, make="AutoModel", **more):
    """A folder with a network of one kind, and the network."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, vocab_size=len(IDS), **KINDS.get(kind, {}), **more)
    whole = getattr(transformers, make)
    network = whole.from_config(config) if make == "AutoModel" else whole(config)
    return write_with_tokenizer(folder, network), network.eval()


@pytest.mark.parametrize("make", ["T5Model", "T5EncoderModel"])
def test_decoder_is_dropped(make, tmp_path):
    folder, whole = written(tmp_path / "t5", "t5", make)
    ranker, _ = initialized("mean-minilm", folder)
    text = corpus(1, longest=12)[0]

    with torch.inference_mode():
        expected = whole.encoder(input_ids=torch.tensor([text])).last_hidden_state[0]
        actual = ranker.encoder(Ragged.of(tokens(text))).values

    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-4)
    assert not any("decoder" in name for name in ranker.state_dict())


def test_a_network_without_its_tokenizer_is_refused(tmp_path):
    # The library would construct one with the special tokens and no words.
    folder, _ = written(tmp_path / "bert", "bert")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()

    with pytest.raises(InputError, match=r"no tokenizer\.json; expected a network with its tokenizer"):
        open_network(str(folder))

    (folder / "vocab.txt").write_text("\n".join(IDS), encoding="utf-8")  # as older networks have
    assert len(open_network(str(folder)).tokenizer) == len(IDS)


def test_code_of_a_network_is_not_run(tmp_path, monkeypatch):
    folder, _ = written(tmp_path / "bert", "bert")
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "ours", "auto_map": {"AutoConfig": "ours.Ours", "AutoModel": "ours.Ours"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "ours.py").write_text(f"open({str(tmp_path / 'run')!r}, 'w')\n")
    monkeypatch.setattr("builtins.input", lambda *prompt: "y")  # the library asks

    with pytest.raises(InputError) as error:
        open_network(str(folder))

    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()
