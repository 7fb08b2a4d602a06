"""Models in the layouts of other libraries, each with one file changed."""

import importlib.util
import json
import random
import shutil
from pathlib import Path
from typing import Any

import checkpoints as layouts
import readers
from case import Case, content, score_with_model, surface
from mutators import flip, mutate_bytes, mutate_document

# Entries of model folders that would run code or download files.
HOSTILE = (
    {"auto_map": {"AutoModel": "evil.Evil", "AutoConfig": "evil.Evil", "AutoTokenizer": ["evil.Evil", None]}},
    {"trust_remote_code": True},
    {"custom_pipelines": {"x": {"impl": "evil.Evil", "pt": ["AutoModel"]}}},
    {"tokenizer_class": "EvilTokenizer"},
    {"quantization_config": {"quant_method": "gptq"}},
    {"attn_implementation": "evil/kernel"},
    {"type": "evil.Evil"},
    {"type": "sentence_transformers.models.evil.Pooling"},
    {"activation_function": "evil.Evil"},
    {"model_args": {"trust_remote_code": True}},
    {"base_model_name_or_path": "evil/evil", "peft_type": "LORA"},
)


def _large_id(document: Any, random_: random.Random) -> None:
    vocabulary = document["model"]["vocab"]
    vocabulary[random_.choice(list(vocabulary))] = random_.choice((-1, 78, 10**6, 2**24, 2**31, 2**32 - 6))


def _repeated(document: Any, random_: random.Random) -> None:
    pattern = random_.choice(
        ({"String": "e"}, {"String": ""}, {"Regex": ""}, {"Regex": "(e+)+$"}, {"Regex": "."})
    )
    step = {"type": "Replace", "pattern": pattern, "content": "e" * random_.choice((2, 10, 1000))}
    steps = [step] * random_.choice((1, 2, 7, 63, 500))
    document["normalizer"] = {"type": "Sequence", "normalizers": steps}


def _split(document: Any, random_: random.Random) -> None:
    steps = (
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False},
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True},
        {"type": "Split", "pattern": {"Regex": ""}, "behavior": "Isolated", "invert": False},
        {"type": "UnicodeScripts"},
    )
    pretokenizers = [random_.choice(steps)] * random_.choice((1, 3, 40))
    document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": pretokenizers}


def _unknown(document: Any, random_: random.Random) -> None:
    document["model"]["unk_token"] = random_.choice(("[NOPE]", "", None, 0, "the"))


def _special(document: Any, random_: random.Random) -> None:
    token = {
        "id": random_.choice((0, 3, 500, 2**32 - 1)),
        "content": random_.choice(("[CLS]", "e", " ", "[X]")),
    }
    flags = dict.fromkeys(
        ("single_word", "lstrip", "rstrip", "normalized", "special"), random_.random() < 0.5
    )
    document["added_tokens"] = [{**token, **flags}] * random_.choice((1, 2))


def _bounds(document: Any, random_: random.Random) -> None:
    document["truncation"] = {"direction": "Left", "max_length": random_.choice((0, 1, 10**9))}
    document["truncation"] |= {"strategy": "LongestFirst", "stride": random_.choice((0, 5))}
    document["padding"] = {
        "strategy": {"Fixed": random_.choice((1, 10**8))},
        "direction": "Right",
        "pad_id": 0,
    }
    document["padding"] |= {"pad_to_multiple_of": random_.choice((None, 0, 10**8)), "pad_type_id": 0}
    document["padding"] |= {"pad_token": "[PAD]"}


TOKENIZERS = (_large_id, _repeated, _split, _unknown, _special, _bounds)


@surface(3 if importlib.util.find_spec("transformers") else 0)
def tokenizers_of_libraries(case: Case) -> None:
    """A tokenizer that asks for memory or time, or has ids that its network lacks."""
    kind = case.random.choice((*layouts.KINDS, "aptool"))
    shutil.copytree(case.world.model if kind == "aptool" else case.world.checkpoints / kind, "m")
    path = Path("m/tokenizer.json")
    document = json.loads(path.read_text(encoding="utf-8"))
    for change in case.random.sample(TOKENIZERS, case.random.choice((1, 1, 2))):
        change(document, case.random)
    path.write_text(json.dumps(document), encoding="utf-8")
    pools = case.world.collection / "test.pools.parquet"
    outputs = ("x.run", "x.run.parts", "x.run.ir-metadata.yml")
    if case.run("score", pools, "--model", "m", "--output", "x.run", outputs=outputs) is not None:
        actual, expected = (
            readers.scores(data) for data in (Path("x.run").read_bytes(), content(case.world.run))
        )
        assert {q: set(actual[q]) for q in actual} == {q: set(expected[q]) for q in expected}


@surface(2 if importlib.util.find_spec("transformers") else 0)
def checkpoints(case: Case) -> None:
    kind = case.random.choice(layouts.KINDS)
    shutil.copytree(case.world.checkpoints / kind, "m")
    Path("evil.py").write_text("from pathlib import Path\nPath('ran').touch()\nclass Evil: pass\n")
    shutil.copy("evil.py", "m/evil.py")
    names = sorted(path for path in Path("m").rglob("*") if path.suffix in (".json", ".safetensors"))
    path = case.random.choice(names)
    if path.suffix == ".safetensors":
        mutate = flip if case.random.random() < 0.5 else mutate_bytes
        path.write_bytes(mutate(case.random, path.read_bytes()))
    else:
        document = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(document, dict) and case.random.random() < 0.25:
            path.write_text(json.dumps(document | case.random.choice(HOSTILE)))
        elif case.random.random() < 0.8:
            path.write_text(mutate_document(case.random, document), errors="surrogateescape")
        else:
            path.write_bytes(mutate_bytes(case.random, path.read_bytes()))
    if case.random.random() < 0.1:
        adapter = {"peft_type": "LORA", "base_model_name_or_path": "evil/evil", "auto_mapping": "evil.Evil"}
        Path("m/adapter_config.json").write_text(json.dumps(adapter))
    if case.random.random() < 0.2:
        given = ("vectors", "distill", "--model", "m", "--collection", case.world.collection)
        case.run(*given, "--output", "e", outputs=("e",))
        assert not Path("ran").exists(), "ran code of the folder"
        return
    score_with_model(case)
    assert not Path("ran").exists(), "ran code of the folder"
