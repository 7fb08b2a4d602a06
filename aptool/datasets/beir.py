"""BEIR (Thakur et al., 2021): a folder with ``corpus.jsonl``, ``queries.jsonl`` and ``qrels/SPLIT.tsv``.

Judgements come as ``query-id<TAB>corpus-id<TAB>score`` behind a header line; some data sets grade relevance.
BEIR holds no first stage: a run file is given, or BM25 retrieves.
"""

from collections.abc import Mapping

from aptool.datasets.corpus import FileCorpus, read_qrels_tsv, read_queries
from aptool.datasets.policies import Conflicts, Resolution
from aptool.datasets.retrieval import PoolOptions, Topics, write_retrieval_collection
from aptool.errors import InputError
from aptool.formats.collection import CollectionFiles
from aptool.formats.location import Location, PathOrUrl, location
from aptool.formats.trec import read_run

SOURCE = "BEIR, github.com/beir-cellar/beir"


def build(
    out: PathOrUrl,
    folder: PathOrUrl,
    *,
    name: str | None = None,
    runs: Mapping[str, str] | None = None,
    options: PoolOptions | None = None,
    questions: str = "all",
    conflicts: Resolution = "error",
) -> CollectionFiles:
    """Imports a data set in BEIR's layout.

    Args:
        out: the collection's folder.
        folder: of the data set.
        name: of the collection; None is the folder's.
        runs: split -> a first-stage run file; BM25 retrieves for a split without one.
        options: how pools are cut.
        questions: which questions are kept; see `CollectionWriter`.
        conflicts: what becomes of a pair with different labels; see `Conflicts`.

    Raises:
        InputError: a file is missing or is not BEIR's; a run is of another data set.
    """
    root = location(folder)
    corpus, queries = _file(root, "corpus.jsonl"), read_queries(str(_file(root, "queries.jsonl")))
    files = [file for file in _entries(root / "qrels") if file.suffix == ".tsv"]
    if not files:
        raise InputError(root / "qrels", problem="no judgements", expected="SPLIT.tsv, such as test.tsv")
    given = dict(runs or {})
    splits: dict[str, Topics] = {}
    for file in files:
        resolved = Conflicts(conflicts)
        qrels = read_qrels_tsv(str(file), resolved)
        judged = qrels["question_id"].unique(maintain_order=True).to_list()
        run = given.pop(file.stem, None)
        splits[file.stem] = Topics(
            path=str(file),
            queries={question: queries[question] for question in judged if question in queries},
            qrels=qrels,
            run=read_run(run).frame if run is not None else None,
            run_path=str(run),
            conflicts=resolved,
        )
    if given:
        split, run = next(iter(given.items()))
        raise InputError(run, problem=f"a run for split {split!r}", expected=f"one of {', '.join(splits)}")
    return write_retrieval_collection(
        out,
        name=name or "-".join(root.resolve().name.split()),
        source=SOURCE,
        corpus=FileCorpus(str(corpus)),
        splits=splits,
        options=options or PoolOptions(),
        questions=questions,
    )


def _entries(folder: Location) -> list[Location]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _file(root: Location, name: str) -> Location:
    for candidate in (root / name, root / f"{name}.gz"):
        if candidate.is_file():
            return candidate
    raise InputError(root / name, problem="file not found", expected="a folder in the layout of BEIR")
