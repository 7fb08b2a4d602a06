"""Model folders from anywhere: none runs code, asks a question, or takes memory before sizes are compared."""

import json
import resource
import shutil
import subprocess
import sys

import pytest
import torch
from networks import REASON, initialized, network_recipe, write_network
from safetensors.torch import load_file, save_file

from aptool.errors import AptoolError, InputError
from aptool.models.model import load_model, save_model
from aptool.models.pretrained import read_pretrained

FACTS = {"collection": "tiny", "fingerprint": "0" * 16, "seed": 3, "best_epoch": 2, "dev": {"map": 0.7}}
EVIL = 'from pathlib import Path\nPath({marker!r}).write_text("ran")\nclass Evil:\n    pass\n'


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    pytest.importorskip("transformers", reason=REASON)
    return write_network(tmp_path_factory.mktemp("network") / "bert")


@pytest.fixture
def model(network, tmp_path):
    """A folder whose network can be changed."""
    ranker, tokenizer = initialized("mean-minilm", network)
    save_model(tmp_path / "model", ranker, tokenizer, network_recipe("mean-minilm", network), FACTS, [])
    return tmp_path / "model"


def describe(model, replace=False, **entries):
    path = model / "config.json"
    config = json.loads(path.read_text())
    config["backbone"]["network"] = {**({} if replace else config["backbone"]["network"]), **entries}
    path.write_text(json.dumps(config))


@pytest.fixture
def marker(tmp_path, monkeypatch):
    """Code where the library would look for it, which leaves a file if it runs."""
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
    ("entries", "place"),
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
def test_a_network_that_leads_to_code_is_refused_without_a_question(
    model, marker, capfd, entries, place, replace
):
    describe(model, replace, **entries)

    with pytest.raises(AptoolError) as error:
        load_model(model)

    assert place in str(error.value)
    assert len(str(error.value)) < 400
    assert "\n" not in str(error.value)
    assert not marker.exists()
    assert capfd.readouterr() == ("", "")


def test_a_model_folder_of_code_is_one_line_to_the_command(model, marker, aptool, collection_folder):
    describe(model, True, model_type="clap_text_model", auto_map={"AutoModel": "automap--evil.Evil"})

    pools = collection_folder / "test.pools.parquet"
    finished = aptool("score", pools, "--model", model, "--output", model.parent / "x.run")

    assert finished.code == 1
    assert len(finished.err) == 1
    assert "backbone/network/auto_map" in finished.err[0]
    assert not marker.exists()


def test_a_deeply_nested_network_is_refused(model):
    nested = {}
    for _ in range(300):
        nested = {"encoder": nested}
    describe(model, **nested)
    with pytest.raises(InputError, match="nested too deeply"):
        load_model(model)


def test_code_of_a_pretrained_network_is_left_out_of_a_model(network, marker, tmp_path):
    path = network / "config.json"
    before = path.read_text()
    try:
        path.write_text(json.dumps({**json.loads(before), "auto_map": {"AutoModel": "evil.Evil"}}))
        assert "auto_map" not in read_pretrained(str(network)).config
        path.write_text(json.dumps({**json.loads(before), "attn_implementation": "evil/kernel"}))
        with pytest.raises(InputError, match="attn_implementation"):
            read_pretrained(str(network))
    finally:
        path.write_text(before)
    assert not marker.exists()


LOAD = """
import resource, sys
from aptool.errors import AptoolError
from aptool.models.model import load_model
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    load_model(sys.argv[1])
except AptoolError as error:
    print(error)
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print((after - before) // 1024)
"""


def grown(model):
    """The error and the MB that reading a model took, in a process of its own."""
    found = subprocess.run(
        [sys.executable, "-c", LOAD, str(model)],
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30)),
    )
    assert found.returncode == 0, found.stderr
    error, size = found.stdout.splitlines()
    return error, int(size)


def test_sizes_are_compared_before_memory_is_taken(model_folder, tmp_path):
    shutil.copytree(model_folder, tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    config["recipe"]["encoder"]["features"] = 60_000
    path.write_text(json.dumps(config))

    error, size = grown(tmp_path / "model")

    assert "model.safetensors" in error
    assert "as config.json says" in error
    assert size < 300


def test_sizes_of_a_network_are_compared_before_memory_is_taken(model):
    describe(model, hidden_size=16_384, intermediate_size=200_000)

    error, size = grown(model)

    assert "model.safetensors" in error
    assert "as config.json says" in error
    assert size < 600


@pytest.mark.parametrize("kind", ["int64", "float8_e4m3fn"])
def test_weights_are_of_a_floating_type(model, kind):
    weights = load_file(model / "model.safetensors")
    save_file(
        {name: one.to(getattr(torch, kind)) for name, one in weights.items()},
        model / "model.safetensors",
        {"format": "pt"},
    )

    with pytest.raises(AptoolError, match="weights of one of the types F64, F32, F16, BF16"):
        load_model(model)
