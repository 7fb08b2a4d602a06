"""Untrusted model folders: no code runs, and no prompt appears."""

import json

import pytest
import torch
from networks import initialized, network_recipe
from safetensors.torch import load_file, save_file

from aptool.errors import AptoolError, InputError
from aptool.models.model import load_model, save_model
from aptool.models.pretrained import open_network, structure_of

TRAINING = {"collection": "tiny", "fingerprint": "0" * 16, "seed": 3, "best_epoch": 2, "dev": {"MAP": 0.7}}
EVIL = 'from pathlib import Path\nPath({marker!r}).write_text("ran")\nclass Evil:\n    pass\n'


@pytest.fixture
def model(network, tmp_path):
    """A model folder, which a test may change."""
    ranker, tokenizer = initialized("mean-minilm", network)
    save_model(tmp_path / "model", ranker, tokenizer, network_recipe("mean-minilm", network), TRAINING, [])
    return tmp_path / "model"


def describe(model, replace=False, **entries):
    path = model / "config.json"
    config = json.loads(path.read_text())
    config["backbone"]["network"] = {**({} if replace else config["backbone"]["network"]), **entries}
    path.write_text(json.dumps(config))


@pytest.fixture
def marker(tmp_path, monkeypatch):
    """A file that exists only if code of the model ran."""
    marker = tmp_path / "marker"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "automap").mkdir()
    for folder in (tmp_path, tmp_path / "automap"):
        (folder / "evil.py").write_text(EVIL.format(marker=str(marker)))
    yes = (tmp_path / "yes").open("w+")
    yes.write("y\n" * 1000)
    yes.seek(0)
    monkeypatch.setattr("sys.stdin", yes)
    yield marker
    yes.close()


@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize(
    ("entries", "position"),
    [
        ({"model_type": "clap_text_model", "auto_map": {"AutoModel": "automap--evil.Evil"}}, "auto_map"),
        ({"model_type": "bert", "auto_map": {"AutoModel": "evil.Evil", "AutoConfig": "evil.E"}}, "auto_map"),
        ({"model_type": "bert", "attn_implementation": "evil/kernel"}, "attn_implementation"),
        ({"model_type": "bert", "attn_implementation": {"": "evil/kernel"}}, "attn_implementation"),
        ({"model_type": "bert", "_attn_implementation": "flash_attention_2"}, "_attn_implementation"),
        ({"model_type": "bert", "experts_implementation": "evil/kernel"}, "experts_implementation"),
        ({"model_type": "bert", "_attn_implementation_internal": "evil/kernel"}, "_implementation"),
        ({"model_type": "bert", "quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
        ({"model_type": "bert", "custom_pipelines": {"x": {"impl": "evil.Evil"}}}, "custom_pipelines"),
        ({"model_type": "bert", "use_kernels": True}, "use_kernels"),
        ({"model_type": "bert", "trust_remote_code": True}, "trust_remote_code"),
        ({"model_type": "timm_wrapper", "architecture": "hf_hub:evil/x"}, "model_type"),
        ({"model_type": "detr", "backbone": "evil/x", "use_pretrained_backbone": True}, "backbone"),
        (
            {
                "model_type": "encoder-decoder",
                "encoder": {"model_type": "clap_text_model", "auto_map": {"AutoModel": "automap--evil.Evil"}},
                "decoder": {"model_type": "bert"},
            },
            "encoder/auto_map",
        ),
        ({"model_type": "bert", "list": [{"auto_map": {"AutoModel": "evil.Evil"}}]}, "list/0/auto_map"),
        ({"model_type": "evil"}, "model_type"),
        ({"model_type": "clap_text_model"}, "model_type"),
        ({"model_type": "bert", "num_hidden_layers": 10**9}, "num_hidden_layers"),
    ],
)
def test_network_that_refers_to_code_is_refused(model, marker, capfd, entries, position, replace):
    describe(model, replace, **entries)

    with pytest.raises(AptoolError) as error:
        load_model(model)

    assert position in str(error.value)
    assert len(str(error.value)) < 400
    assert "\n" not in str(error.value)
    assert not marker.exists()
    assert capfd.readouterr() == ("", "")


def test_score_command_refuses_code_with_one_line(model, marker, aptool, collection_folder):
    describe(model, True, model_type="clap_text_model", auto_map={"AutoModel": "automap--evil.Evil"})

    pools = collection_folder / "test.pools.parquet"
    finished = aptool("score", pools, "--model", model, "--output", model.parent / "x.run")

    assert finished.code == 1
    assert len(finished.err) == 1
    assert "backbone/network/auto_map" in finished.err[0]
    assert not marker.exists()


def test_code_of_a_pretrained_network_is_left_out_of_a_model(network, marker, tmp_path):
    path = network / "config.json"
    before = path.read_text()
    try:
        path.write_text(json.dumps({**json.loads(before), "auto_map": {"AutoModel": "evil.Evil"}}))
        assert "auto_map" not in structure_of(open_network(str(network)).network)
        path.write_text(json.dumps({**json.loads(before), "attn_implementation": "evil/kernel"}))
        with pytest.raises(InputError, match="attn_implementation"):
            open_network(str(network))
    finally:
        path.write_text(before)
    assert not marker.exists()


@pytest.mark.parametrize("kind", ["int64", "float8_e4m3fn"])
def test_weights_of_another_type_are_refused(model, kind):
    weights = load_file(model / "model.safetensors")
    save_file(
        {name: weight.to(getattr(torch, kind)) for name, weight in weights.items()},
        model / "model.safetensors",
        {"format": "pt"},
    )

    with pytest.raises(AptoolError, match="weights of one of the types F64, F32, F16, BF16"):
        load_model(model)
