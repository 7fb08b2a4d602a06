"""Data sets in the layout of the Hugging Face hub, from a folder or ``hf://datasets/ORG/NAME``.

The splits are those of the card's ``configs`` (the YAML at the top of README.md), else those that names of
files or folders tell: ``data/train-00000-of-00002.parquet``, ``validation.jsonl``, ``test/part.csv``.
Columns are found by their names: one row per pair, or one per question with a list of candidates.
"""

import fnmatch
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import fsspec

from aptool.datasets.column_names import ColumnNames, Labels, RawPair
from aptool.datasets.importing import write_collection
from aptool.datasets.json_rows import pairs_of_row, read_objects
from aptool.datasets.lines import open_plain, readable
from aptool.datasets.own_data import details_of, parquet_rows, split_pools
from aptool.datasets.policies import ImportPolicies, SplitPolicies
from aptool.datasets.tabular import read_table
from aptool.documents import parse_yaml
from aptool.errors import InputError, first_few
from aptool.formats.collection import CollectionFiles
from aptool.formats.urls import is_remote

SUFFIXES = (".parquet", ".jsonl", ".json", ".csv", ".tsv", ".jsonl.gz", ".json.gz", ".csv.gz", ".tsv.gz")
CARD = "README.md"
_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "val", "dev"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_HEADER = re.compile(r"\A---\s*\n(.*?)\n---\s*(?:\n|\Z)", re.DOTALL)
_NO_POLICIES = ImportPolicies()


class DataFiles(NamedTuple):
    """The files of each split of one configuration."""

    config: str | None
    splits: dict[str, list[str]]


def import_huggingface(
    out: str | Path,
    folder: str,
    names: ColumnNames,
    *,
    name: str,
    splits: Mapping[str, str] | None = None,
    config: str | None = None,
    policies: ImportPolicies = _NO_POLICIES,
) -> CollectionFiles:
    """Imports a data set with named columns.

    Args:
        out: the collection's folder.
        folder: a local folder, or ``hf://datasets/ORG/NAME``.
        names: the columns. Where a row has the column ``candidates``, it is a question with its candidates;
            else it is a pair.
        name: of the collection.
        splits: split of the collection -> split of the data set; None is all, ``validation`` as ``dev``.
        config: of the data set; None is ``default`` or the first one.
        policies: what becomes of rows that are not plain pairs.

    Raises:
        InputError: there is no such split or column (the message lists those that there are), or a row is
            not what it should be.
    """
    found = data_files(folder, config)
    wanted = splits or {"dev" if split == "validation" else split: split for split in found.splits}
    policies.check(list(wanted))
    labels = Labels(policies.relevant)
    sources = {}
    for split, theirs in wanted.items():
        if theirs not in found.splits:
            raise InputError(
                folder, problem=f"no split {theirs!r}", expected=f"one of {', '.join(found.splits)}"
            )
        files, of_split = found.splits[theirs], SplitPolicies(split, policies)
        called = files[0] if len(files) == 1 else str(Path(files[0]).parent)
        pairs = _pairs(files, names, of_split)
        sources[split] = split_pools(called, "row", pairs, names, of_split, labels)
    details = {"config": found.config, "splits": dict(wanted), **details_of(names, policies)}
    return write_collection(
        out,
        name=name,
        source=f"Hugging Face data set {folder}",
        splits=sources,
        questions=policies.questions,
        details=details,
        check=labels.check_use,
    )


def data_files(folder: str, config: str | None = None) -> DataFiles:
    """The data files of a data set.

    Args:
        folder: see `import_huggingface`.
        config: see `import_huggingface`.

    Raises:
        InputError: there is no such folder, configuration or data file.
    """
    root = folder.rstrip("/")
    files = _files_below(root)
    if CARD in files:
        configs = _configs(f"{root}/{CARD}")
        if config is not None and config not in configs:
            raise InputError(
                folder, problem=f"no config {config!r}", expected=f"one of {', '.join(configs) or 'none'}"
            )
        if configs:
            chosen = config or ("default" if "default" in configs else next(iter(configs)))
            return DataFiles(chosen, _declared(root, files, configs[chosen]))
    data = [
        file for file in files if file.endswith(SUFFIXES) and (config is None or config in file.split("/"))
    ]
    splits: dict[str, list[str]] = {}
    for file in data:
        split = _split_of(file)
        if split is not None:
            splits.setdefault(split, []).append(f"{root}/{file}")
    if not splits and data:
        splits = {"train": [f"{root}/{file}" for file in data]}  # as the hub has it
    if not splits:
        if config is not None and any(file.endswith(SUFFIXES) for file in files):
            raise InputError(folder, problem=f"no config {config!r}", expected="another one, or none")
        shown = first_few(files) or "nothing"
        raise InputError(
            folder, problem=f"no data file: {shown}", expected=f"files that end in {', '.join(SUFFIXES)}"
        )
    return DataFiles(config, {split: splits[split] for split in _WORDS if split in splits})


def _configs(card: str) -> dict[str, Any]:
    """``data_files`` by the name of the configuration, as the card declares them."""
    with open_plain(card) as file, readable(card):
        header = _HEADER.match(file.read().decode("utf-8", "replace"))
    facts = (
        parse_yaml(header[1], card, expected="YAML at the top of the card") if header is not None else None
    )
    declared = facts.get("configs") if isinstance(facts, dict) else None
    return {
        str(one.get("config_name", "default")): one["data_files"]
        for one in (declared if isinstance(declared, list) else [])
        if isinstance(one, dict) and "data_files" in one
    }


def _declared(root: str, files: list[str], declared: Any) -> dict[str, list[str]]:
    """The files that a configuration's ``data_files`` match, by split."""
    entries = declared if isinstance(declared, list) else [declared]
    splits: dict[str, list[str]] = {}
    for entry in entries:
        split, patterns = (
            (str(entry.get("split")), entry.get("path")) if isinstance(entry, dict) else ("train", entry)
        )
        for pattern in patterns if isinstance(patterns, list) else [patterns]:
            matched = [file for file in files if fnmatch.fnmatchcase(file, str(pattern))]
            if not matched:
                raise InputError(
                    f"{root}/{CARD}", problem=f"no file matches {pattern!r}", expected="files of the data set"
                )
            splits.setdefault(split, []).extend(f"{root}/{file}" for file in matched)
    return splits


def _split_of(file: str) -> str | None:
    """The split that a path tells by a word of its name or of one of its folders, the last word first."""
    for part in reversed(file.split("/")):
        words = re.split(r"[^a-z]+", part.lower())
        for split, known in _WORDS.items():
            if set(words) & set(known):
                return split
    return None


def _pairs(files: list[str], names: ColumnNames, policies: SplitPolicies) -> Iterator[RawPair]:
    number = 0
    for file in files:
        for row in _rows(file, names, policies):
            number += 1
            yield from pairs_of_row(file, number, "row", row, names, policies)


def _rows(file: str, names: ColumnNames, policies: SplitPolicies) -> Iterator[Mapping[str, Any]]:
    plain = file.removesuffix(".gz")
    if plain.endswith(".parquet"):
        yield from parquet_rows(file, names, policies)
    elif plain.endswith((".jsonl", ".json")):
        yield from (row for _, row in read_objects(file, field=names.field))
    else:
        yield from read_table(file)


def _files_below(root: str) -> list[str]:
    """The files in a folder and its folders, by their paths from there, sorted."""
    with readable(root):
        if not is_remote(root):
            found = [file.relative_to(root) for file in Path(root).rglob("*") if file.is_file()]
            return sorted(str(file) for file in found if not file.parts[0].startswith("."))
        system, name = fsspec.core.url_to_fs(root)
        return sorted(str(file).removeprefix(f"{name}/") for file in system.find(name))
