"""Untrusted model folders: no code runs, no prompt appears, and sizes are compared before allocation."""

import json
import resource
import shutil

import forked
import pytest
import torch
from networks import initialized, network_recipe
from safetensors.torch import load_file, save_file

from aptool.errors import AptoolError, InputError
from aptool.models import hub
from aptool.models.checkpoints import load_any
from aptool.models.model import load_model, save_model
from aptool.models.pretrained import open_network, structure_of

TRAINING = {"collection": "tiny", "fingerprint": "0" * 16, "seed": 3, "best_epoch": 2, "dev": {"map": 0.7}}
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
        assert "auto_map" not in structure_of(open_network(str(network)).network)
        path.write_text(json.dumps({**json.loads(before), "attn_implementation": "evil/kernel"}))
        with pytest.raises(InputError, match="attn_implementation"):
            open_network(str(network))
    finally:
        path.write_text(before)
    assert not marker.exists()


def load_in_limits(model):
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(AptoolError) as raised:
        load_model(model)
    return f"{raised.value}\n{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before >> 10}"


def loading(model):
    """The error of loading a model, and the memory that it took in MB, in a separate process."""
    ended = forked.run(model.with_name("process"), load_in_limits, model)
    assert ended.code == 0, ended.err
    error, size = ended.out.splitlines()
    return error, int(size)


def test_sizes_are_compared_before_allocation(model_folder, tmp_path):
    shutil.copytree(model_folder, tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    config = json.loads(path.read_text())
    config["recipe"]["encoder"]["features"] = 60_000
    path.write_text(json.dumps(config))

    error, size = loading(tmp_path / "model")

    assert "model.safetensors" in error
    assert "as config.json says" in error
    assert size < 300


def test_sizes_of_a_network_are_compared_before_allocation(model):
    describe(model, hidden_size=16_384, intermediate_size=200_000)

    error, size = loading(model)

    assert "model.safetensors" in error
    assert "as config.json says" in error
    assert size < 300


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


def lengthen(name):
    def damage(folder):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        with (folder / name).open("ab") as file:
            file.truncate(3 << 30)

    return damage


def add_empty_tensors(folder):
    path = folder / "model.safetensors"
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header, tensors = json.loads(data[8 : 8 + size]), data[8 + size :]
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [len(tensors)] * 2}
    text = json.dumps({**header, **{f"empty{number}": empty for number in range(200_000)}}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + tensors)


def add_objects(folder):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "x": [{}] * 100_000}))


def add_words(folder):
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["model"]["vocab"] |= {f"w{number}": 100 + number for number in range(1 << 20)}
    path.write_text(json.dumps(tokenizer))


def add_special_tokens(folder):
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    token = {**tokenizer["added_tokens"][0], "special": True}
    tokenizer["added_tokens"] += [
        {**token, "id": 100 + number, "content": f"<{number}>"} for number in range(1 << 15)
    ]
    path.write_text(json.dumps(tokenizer))


def add_folders_of_files(folder):
    for number in range(9):
        (folder / f"more/{number}").mkdir(parents=True)
        for name in range(9):
            (folder / f"more/{number}/{name}").touch()


def add_sparse_files(folder):
    for number in range(17):
        with (folder / f"{number}.json").open("wb") as file:
            file.truncate(32 << 20)


def nest_folders(folder):
    (folder / "/".join(["more"] * 17)).mkdir(parents=True)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lengthen("special_tokens_map.json"),
            "special_tokens_map.json: 3,221,225,472 bytes; expected at most",
        ),
        (lengthen("1_Pooling/config.json"), "1_Pooling/config.json: 3,221,225,472 bytes; expected at most"),
        (lengthen("chat_template.jinja"), "chat_template.jinja: 3,221,225,472 bytes; expected at most"),
        (lengthen("more.safetensors"), "more.safetensors: a sparse file of 3,221,225,472 bytes"),
        (lengthen("more/onnx/model.onnx"), "model.onnx: a sparse file of 3,221,225,472 bytes"),
        (add_folders_of_files, "checkpoint: more than 64 files and folders; expected the folder of one"),
        (add_sparse_files, "checkpoint: more than 536,870,912 bytes of JSON and text"),
        (nest_folders, "more: folders in 16 folders; expected the folder of one model"),
        (add_empty_tensors, "model.safetensors: a header of "),
        (add_objects, "config.json: 100,0"),
        (add_words, "tokenizer.json: vocab: 1,048,6"),
        (add_special_tokens, "tokenizer.json: added_tokens: 32,7"),
    ],
)
def test_folder_with_a_huge_file_or_too_many_entries_is_refused(
    network, tmp_path, monkeypatch, damage, message
):
    monkeypatch.setattr(hub, "_MOST_ENTRIES", 64)
    folder = tmp_path / "checkpoint"
    shutil.copytree(network, folder)
    (folder / "1_Pooling").mkdir()
    damage(folder)

    for read in (load_any, lambda folder: open_network(str(folder))):
        with pytest.raises(InputError) as error:
            read(folder)
        assert message in str(error.value)
