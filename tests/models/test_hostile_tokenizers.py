"""Untrusted tokenizers: bounded memory and time, and one line that names the file."""

import json
import resource

import forked
import pytest
import torch
from networks import REASON, initialized, network_recipe, piece_tokenizer, write_network
from safetensors.torch import save_file

from aptool.errors import AptoolError
from aptool.models.checkpoints import load_any
from aptool.models.model import save_model

pytest.importorskip("transformers", reason=REASON)

TRAINING = {"collection": "tiny", "fingerprint": "0" * 16, "seed": 3, "best_epoch": 2, "dev": {"map": 0.7}}


def static(folder):
    pieces = piece_tokenizer()
    pieces.post_processor = None
    folder.mkdir()
    pieces.save(str(folder / "tokenizer.json"))
    save_file({"embeddings": torch.ones(len(pieces.get_vocab()), 4)}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "model2vec"}))


def trained(folder):
    network = write_network(folder.parent / "bert")
    ranker, tokenizer = initialized("mean-minilm", network)
    save_model(folder, ranker, tokenizer, network_recipe("mean-minilm", network), TRAINING, [])


MODELS = {"model2vec": static, "aptool": trained, "network": write_network}


def load_in_limits(folder):
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    resource.setrlimit(resource.RLIMIT_CPU, (90, 90))
    try:
        return load_any(folder).tokenizer.encode(["a aa aaa where is the river"])
    except AptoolError as error:
        return str(error)


def raise_word(document):
    vocabulary = document["model"]["vocab"]
    vocabulary[next(reversed(vocabulary))] = 4_294_967_290


def rename_unknown(document):
    document["model"]["unk_token"] = "[NOPE]"


def repeat_replacements(document):
    step = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}
    document["normalizer"] = {"type": "Sequence", "normalizers": [step] * 7}


def repeat_bytes(document):
    step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [step] * 40}


def grow_added_token(document):
    """A token to which the library applies the normalizer while it reads the file."""
    step = {"type": "Replace", "pattern": {"String": " "}, "content": " " * 200}
    document["normalizer"] = {"type": "Sequence", "normalizers": [step] * 5}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "special"), False)
    document["added_tokens"] = [{"id": 0, "content": " ", "normalized": True, **flags}]


def replace_nothing(document):
    document["normalizer"] = {"type": "Replace", "pattern": {"Regex": ""}, "content": "e"}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (raise_word, "token id 4294967290; at most"),
        (rename_unknown, "'[NOPE]'"),
        (repeat_replacements, "normalizer: Replace: texts can become more than 256 times as long"),
        (grow_added_token, "normalizer: Replace: texts can become more than 256 times as long"),
        (replace_nothing, "normalizer: Replace: the pattern is empty"),
        (repeat_bytes, "ByteLevel: texts can become more than 256 times as long"),
    ],
)
def test_tokenizer_that_asks_for_gigabytes_is_refused_with_one_line(tmp_path, model, damage, expected):
    folder = tmp_path / "model"
    MODELS[model](folder)
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text())
    damage(document)
    path.write_text(json.dumps(document))

    ended = forked.run(tmp_path / "process", load_in_limits, folder)

    assert ended.code == 0, ended.err
    assert ended.err == ""
    assert ended.out.startswith(f"{path}: ")
    assert expected in ended.out
    assert ended.out.count("\n") == 0
