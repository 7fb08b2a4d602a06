"""A matrix of six systems that takes seconds."""

from tiny import options

TABLE = """
[collections.tiny]
path = "{collection}"
splits = ["dev", "test"]

[systems.random]
baseline = "random"
[systems.bm25]
baseline = "bm25"
[systems.qa-cnn]
preset = "qa-cnn"
set = {qa_cnn}
[systems.ap-cnn]
preset = "ap-cnn"
set = {ap_cnn}
[systems.ap-bilstm]
preset = "ap-bilstm"
set = {ap_bilstm}
[systems.fused]
fuse = ["bm25", "ap-cnn"]

[[rows]]
collection = "tiny"
systems = ["random", "bm25", "qa-cnn", "ap-cnn", "ap-bilstm", "fused"]
seeds = [1]
"""
TRIALS = 6


def table(collection, *more):
    settings = {"qa_cnn": (), "ap_cnn": ("vectors.source=learned",), "ap_bilstm": ("training.dropout=0.2",)}
    sets = {name: str([*options(name.replace("_", "-"), *extra), *more]) for name, extra in settings.items()}
    return TABLE.format(collection=collection, **sets)


def contents(folder):
    """The runs, weights and tokenizers of a matrix by path."""
    files = [*folder.rglob("*.run"), *folder.rglob("model.safetensors"), *folder.rglob("tokenizer.json")]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}
