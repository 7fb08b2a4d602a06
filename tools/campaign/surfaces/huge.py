"""Model folders with a file or an entry count far beyond that of any model."""

import importlib.util
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import checkpoints as layouts
from case import Case, score_with_model, surface

NAMES = (
    *("special_tokens_map.json", "added_tokens.json", "tokenizer_config.json", "generation_config.json"),
    *("chat_template.jinja", "vocab.txt", "merges.txt", "extra.safetensors", "spiece.model"),
)


def _changed(path: Path, change: Callable[[Any], None]) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    path.write_text(json.dumps(document), encoding="utf-8")


def _sparse(generator: random.Random) -> None:
    names = [str(path) for path in Path("m").rglob("*") if path.is_file()]
    with Path(generator.choice([*names, *(f"m/{name}" for name in NAMES)])).open("ab") as file:
        file.truncate(generator.randint(1 << 30, 1 << 34))


def _tensors(generator: random.Random) -> None:
    """Add tensors without values to the header of the weights."""
    path = generator.choice(sorted(Path("m").rglob("*.safetensors")))
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header, values = json.loads(data[8 : 8 + size]), data[8 + size :]
    empty = {"dtype": "F32", "shape": [0], "data_offsets": [len(values)] * 2}
    count = generator.randint(1 << 12, 1 << 18)
    text = json.dumps({**header, **{f"empty{number}": empty for number in range(count)}}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + values)


def _entries(generator: random.Random) -> None:
    """Add entries to a configuration."""
    path = generator.choice([path for path in Path("m").rglob("*.json") if path.name != "tokenizer.json"])
    count = generator.randint(1 << 12, 1 << 19)
    inner: Any = generator.choice([{}, [], "a", 1, None])
    _changed(
        path, lambda document: document.update(x=[inner] * count) if isinstance(document, dict) else None
    )


def _words(generator: random.Random) -> None:
    count = generator.choice((1 << 14, 1 << 17, (1 << 20) + 1))
    words = {f"w{number}": 100 + number for number in range(count)}
    _changed(Path("m/tokenizer.json"), lambda document: document["model"]["vocab"].update(words))


def _added_tokens(generator: random.Random) -> None:
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokens = [
        {"id": 100 + number, "content": f"<{number}>", **plain}
        for number in range(generator.choice((1 << 10, 1 << 14, 1 << 16)))
    ]
    _changed(Path("m/tokenizer.json"), lambda document: document["added_tokens"].extend(tokens))


CHANGES = (_sparse, _sparse, _tensors, _entries, _words, _added_tokens)


@surface(6 if importlib.util.find_spec("transformers") else 0)
def huge_models(case: Case) -> None:
    kind = case.random.choice(layouts.KINDS)
    shutil.copytree(case.world.checkpoints / kind, "m")
    case.random.choice(CHANGES)(case.random)
    score_with_model(case)
