"""Importer of data sets in the layout of the Hugging Face hub: a folder, or ``hf://datasets/ORG/NAME``.

The card's ``configs`` (the YAML at the top of README.md) define the splits; else the names of files or
folders do: ``data/train-00000-of-00002.parquet``, ``validation.jsonl``, ``test/part.csv``.
"""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import fsspec
from fsspec.utils import glob_translate

from aptool.datasets.import_options import ClassNames, ColumnNames, ImportPolicies, RawPair, SplitPolicies
from aptool.datasets.row_reader import Row, RowReader
from aptool.datasets.rows import NO_POLICIES, write_rows
from aptool.datasets.tabular import read_table
from aptool.datasets.text_files import read_objects
from aptool.documents import parse_yaml
from aptool.errors import InputError, first_few
from aptool.formats.collection import CollectionFiles
from aptool.formats.inputs import open_unpacked, readable, unpacked_name
from aptool.formats.location import PathOrUrl, is_remote

SUFFIXES = (".parquet", ".jsonl", ".json", ".csv", ".tsv")
CARD = "README.md"
_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_HEADER = re.compile(r"\A(---\s*\n.*?)\n---\s*(?:\n|\Z)", re.DOTALL)


class DataFiles(NamedTuple):
    """The files of each split of one configuration."""

    config: str | None
    splits: dict[str, list[str]]
    features: Any = None  # the card's description of the columns


def import_huggingface(
    out: PathOrUrl,
    folder: str,
    names: ColumnNames,
    *,
    name: str,
    splits: Mapping[str, str] | None = None,
    config: str | None = None,
    policies: ImportPolicies = NO_POLICIES,
) -> CollectionFiles:
    """Import a data set whose rows are pairs, or questions with a list of candidates.

    ``splits`` maps splits of the collection to those of the data set; None is all, ``validation`` as ``dev``.
    A ``config`` of None is ``default`` or the first one.
    """
    data = data_files(folder, config)
    splits = splits or {"dev" if split == "validation" else split: split for split in data.splits}
    sources = {}
    for split, source_split in splits.items():
        if source_split not in data.splits:
            expected = f"one of {', '.join(data.splits)}"
            raise InputError(folder, problem=f"no split {source_split!r}", expected=expected)
        files = data.splits[source_split]
        path = files[0] if len(files) == 1 else files[0].rpartition("/")[0]
        classes = ClassNames(folder, names.label, data.features)
        sources[split] = path, partial(_pairs, files, names, classes)
    source, details = f"Hugging Face data set {folder}", {"config": data.config, "splits": dict(splits)}
    return write_rows(out, sources, names, policies, name=name, source=source, details=details)


def data_files(folder: str, config: str | None = None) -> DataFiles:
    """Find the data files of a data set; the arguments are those of `import_huggingface`."""
    root = folder.rstrip("/")
    files = _files_below(root)
    metadata = _card_metadata(f"{root}/{CARD}") if CARD in files else {}
    if CARD in files:
        configs = _configs(metadata)
        if config is not None and config not in configs:
            expected = f"one of {', '.join(configs) or 'none'}"
            raise InputError(folder, problem=f"no config {config!r}", expected=expected)
        if configs:
            config = config or ("default" if "default" in configs else next(iter(configs)))
            declared = _declared_files(root, files, configs[config])
            return DataFiles(config, declared, _features(metadata, config))
    features = _features(metadata, config)
    data = [file for file in files if unpacked_name(file).endswith(SUFFIXES)]
    of_config = [file for file in data if config is None or config in file.split("/")]
    splits: dict[str, list[str]] = {}
    for file in of_config:
        split = _split_of(file)
        if split is not None:
            splits.setdefault(split, []).append(f"{root}/{file}")
    if splits:
        return DataFiles(config, {split: splits[split] for split in _WORDS if split in splits}, features)
    if of_config:  # one split, as on the hub
        return DataFiles(config, {"train": [f"{root}/{file}" for file in of_config]}, features)
    if data:
        raise InputError(folder, problem=f"no config {config!r}", expected="another configuration, or none")
    problem = f"no data file: {first_few(files) or 'nothing'}"
    raise InputError(folder, problem=problem, expected=f"files that end in {', '.join(SUFFIXES)}")


def _files_below(root: str) -> list[str]:
    """The relative paths of all files below a folder, sorted; hidden files of a local folder are left out."""
    with readable(root):
        if not is_remote(root):
            paths = [file.relative_to(root) for file in Path(root).rglob("*") if file.is_file()]
            return sorted(str(path) for path in paths if not path.parts[0].startswith("."))
        system, name = fsspec.core.url_to_fs(root)
        return sorted(str(file).removeprefix(f"{name}/") for file in system.find(name))


def _card_metadata(card: str) -> dict[str, Any]:
    """The YAML at the top of a card."""
    with open_unpacked(card) as file, readable(card):
        header = _HEADER.match(file.read().decode("utf-8", "replace"))
    if header is None:
        return {}
    metadata = parse_yaml(header[1], card, expected="YAML at the top of the card")
    return metadata if isinstance(metadata, dict) else {}


def _features(metadata: dict[str, Any], config: str | None) -> Any:
    """The columns of a configuration, as ``dataset_info`` of a card describes them."""
    described = metadata.get("dataset_info")
    described = described if isinstance(described, list) else [described]
    entries = [entry for entry in described if isinstance(entry, dict)]
    named = [entry for entry in entries if entry.get("config_name", "default") == (config or "default")]
    return next((entry.get("features") for entry in named or (entries if len(entries) == 1 else [])), None)


def _configs(metadata: dict[str, Any]) -> dict[str, Any]:
    """``data_files`` by the name of the configuration, as the card declares them."""
    configs = metadata.get("configs")
    return {
        str(config.get("config_name", "default")): config["data_files"]
        for config in (configs if isinstance(configs, list) else [])
        if isinstance(config, dict) and "data_files" in config
    }


def _declared_files(root: str, files: list[str], declared: Any) -> dict[str, list[str]]:
    """The files that a configuration's ``data_files`` match, by split."""
    splits: dict[str, list[str]] = {}
    for entry in declared if isinstance(declared, list) else [declared]:
        split, patterns = "train", entry
        if isinstance(entry, dict):
            split, patterns = str(entry.get("split")), entry.get("path")
        for pattern in patterns if isinstance(patterns, list) else [patterns]:
            matched = _matching(f"{root}/{CARD}", files, str(pattern))
            splits.setdefault(split, []).extend(f"{root}/{file}" for file in matched)
    return splits


def _matching(card: str, files: list[str], pattern: str) -> list[str]:
    """The files that a pattern of a card matches: ``*`` stays in a folder, ``**/`` is any folders or none."""
    try:
        expression = re.compile(glob_translate(pattern))
    except ValueError as error:  # ** and other characters in one component
        raise InputError(card, value=pattern, expected="a pattern of file names") from error
    matched = [file for file in files if expression.match(file)]
    if not matched:
        raise InputError(card, problem=f"no file matches {pattern!r}", expected="files of the data set")
    return matched


def _split_of(file: str) -> str | None:
    """The split that a word of a file's name names, or of a folder's name, the innermost folder first."""
    for part in reversed(file.split("/")):
        words = set(re.split(r"[^a-z]+", part.lower()))
        for split, synonyms in _WORDS.items():
            if words.intersection(synonyms):
                return split
    return None


def _pairs(
    files: list[str], names: ColumnNames, classes: ClassNames, policies: SplitPolicies
) -> Iterator[RawPair]:
    """Read the pairs of all files; rows are numbered from 1 over all of them."""
    readers = (RowReader(file, names, policies, classes) for file in files)
    rows = ((reader, row) for reader in readers for row in _rows(reader, names.field))
    for number, (reader, row) in enumerate(rows, 1):
        yield from reader.pairs(f"row {number}", row)


def _rows(reader: RowReader, field: str | None) -> Iterator[Row]:
    plain = unpacked_name(reader.path)
    if plain.endswith(".parquet"):
        yield from reader.parquet_rows()
    elif plain.endswith((".jsonl", ".json")):
        yield from (row for _, row in read_objects(reader.path, field=field))
    else:
        yield from read_table(reader.path)
