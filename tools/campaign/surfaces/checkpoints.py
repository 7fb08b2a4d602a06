"""Models in the layouts of other libraries, each with one file changed."""

import importlib.util
import json
import shutil
from pathlib import Path

import checkpoints as layouts
import readers
from case import Case, content, surface
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
        given = case.random.choice(
            (("export", "m"), ("vectors", "distill", "--model", "m", "--collection", case.world.collection))
        )
        case.run(*given, "--output", "e", outputs=("e",))
        assert not Path("ran").exists(), "ran code of the folder"
        return
    outputs = ("x.run", "x.run.parts", "x.run.ir-metadata.yml")
    pools = case.world.collection / "test.pools.parquet"
    if case.run("score", pools, "--model", "m", "--output", "x.run", outputs=outputs) is not None:
        actual, expected = (
            readers.scores(data) for data in (Path("x.run").read_bytes(), content(case.world.run))
        )
        assert {q: set(actual[q]) for q in actual} == {q: set(expected[q]) for q in expected}
    assert not Path("ran").exists(), "ran code of the folder"
