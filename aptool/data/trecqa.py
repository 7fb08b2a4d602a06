"""Importer of TREC-QA (Wang, Smith and Mitamura, 2007): sentences retrieved for questions of TREC 8 to 13.

A split is a folder with one line per pair in ``a.toks`` (question), ``b.toks`` (answer), ``id.txt`` and
``sim.txt`` (label).

Raw TREC-QA has dev and test questions whose candidates are all relevant or all non-relevant; clean TREC-QA
has none. Scores on the two are not comparable, so the manifest records which one the labels show.
"""

from collections.abc import Iterator, Mapping

import polars as pl

from aptool.data.collection import Collection
from aptool.data.frames import RawTable
from aptool.data.importing import SplitPools, write_collection
from aptool.data.table import pairs_of, pools_of
from aptool.data.table_files import read_rows
from aptool.data.writing import LabelledPool
from aptool.errors import InputError
from aptool.paths import PathOrUrl

SOURCE = "TREC-QA (Wang et al. 2007), as in jacana-qa-naacl2013 (Yao et al. 2013)"
_ID = "id.txt"
_NAMES = {"question_id": _ID, "question": "a.toks", "answer": "b.toks", "relevance": "sim.txt"}

# The names of the splits in a folder, in order of precedence.
SPLITS = {"train": ("train-all", "train"), "dev": ("clean-dev", "dev"), "test": ("clean-test", "test")}


def import_trecqa(
    out: PathOrUrl, splits: Mapping[str, str], *, questions: str = "all", overwrite: bool = False
) -> Collection:
    """Import TREC-QA, each split from its folder.

    The paper's questions are ``both-labels`` (1,162 train, 65 dev, 68 test).
    """
    # Read before anything is written: the manifest's variant depends on the labels. It is a few megabytes.
    sources = {split: SplitPools(path, list(read_pools(path))) for split, path in splits.items()}
    variant, decided = None, "open: there is only a train split"
    if any(split != "train" for split in sources):
        variant, decided = "raw" if _is_raw(sources, questions) else "clean", "found from the labels"
    write_collection(
        out,
        overwrite=overwrite,
        name=f"trecqa-{variant}" if variant else "trecqa",
        source=SOURCE,
        splits=sources,
        questions=questions,
        details={"variant": variant, "variant_decided": decided},
    )
    return Collection(out)


def _is_raw(sources: Mapping[str, SplitPools], questions: str) -> bool:
    """Whether all candidates of some dev or test pool that is written have the same label."""
    if questions == "both-labels":
        return False
    one_sided = ({True}, {False}) if questions == "all" else ({True},)
    pools = (pool for split, content in sources.items() if split != "train" for pool in content.pools)
    return any({value > 0 for value in pool.relevance.values()} in one_sided for pool in pools)


def read_pools(path: str) -> Iterator[LabelledPool]:
    """Read the pools of one split in the order of the files."""
    folder = path.rstrip("/")
    columns = {name: dict(read_rows(f"{folder}/{name}")) for name in _NAMES.values()}
    numbers = list(columns[_ID])
    for name, lines in columns.items():
        if len(lines) != len(numbers):
            expected = f"as many as {folder}/{_ID} has: {len(numbers)}"
            raise InputError(f"{folder}/{name}", problem=f"{len(lines)} lines", expected=expected)
    texts = {name: pl.Series(list(lines.values()), dtype=pl.String) for name, lines in columns.items()}
    texts[_ID] = texts[_ID].str.strip_chars()
    table = RawTable(folder, texts, lambda row: f"line {numbers[row]}")
    yield from pools_of(path, pairs_of([table], _NAMES), _NAMES, graded=False)
