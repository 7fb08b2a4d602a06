"""Importer of TREC-QA (Wang, Smith and Mitamura, 2007): sentences retrieved for questions of TREC 8 to 13.

Two layouts are read: the files of jacana-qa (Yao et al., 2013), which look like XML and are not, and folders
with one line per pair in ``a.toks`` (question), ``b.toks`` (answer), ``id.txt`` and ``sim.txt`` (label).

Raw TREC-QA has dev and test questions whose candidates are all relevant or all non-relevant; clean TREC-QA
has none. Scores on the two are not comparable, so the manifest records which one the labels show.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping

from aptool.data.collection import Collection
from aptool.data.importing import SplitPools, write_collection
from aptool.data.pairs import Columns, Pair, pools_of
from aptool.data.text_files import read_rows
from aptool.data.values import parse_label
from aptool.data.writing import LabelledPool
from aptool.errors import InputError
from aptool.paths import PathOrUrl, location

logger = logging.getLogger(__name__)

SOURCE = "TREC-QA (Wang et al. 2007), as in jacana-qa-naacl2013 (Yao et al. 2013)"
_QUESTION, _ANSWER, _ID, _LABEL = "a.toks", "b.toks", "id.txt", "sim.txt"
_FILES = (_ID, _QUESTION, _ANSWER, _LABEL)
_OPENING = re.compile(r"<QApairs id='([^']*)'>")
_TAG = re.compile(r"</?(question|positive|negative)>|</?QApairs\b.*>")
# Lines of a block: tokens, parts of speech, dependency labels, dependency heads, named entities. A positive
# answer has two more lines, for the words that answer the question and their positions.
_TOKENS, _HEADS, _ANNOTATED = 0, 3, 5

# The names of the splits in a folder, in order of precedence.
SPLITS = {"train": ("train-all", "train"), "dev": ("clean-dev", "dev"), "test": ("clean-test", "test")}

Lines = Iterator[tuple[int, str]]


def import_trecqa(
    out: PathOrUrl, splits: Mapping[str, str], *, questions: str = "all", overwrite: bool = False
) -> Collection:
    """Import TREC-QA, each split from a jacana file, or from a folder with one line per pair.

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
    """Read the pools of one split in the order of the file, jacana questions without a candidate included."""
    if _is_folder(path):
        pairs = _folder_pairs(path.rstrip("/"))
        return pools_of(path, pairs, Columns(_ID, _QUESTION, "", _ANSWER, _LABEL))
    return _jacana_pools(path)


def _is_folder(path: str) -> bool:
    return location(path).is_dir()


def _folder_pairs(folder: str) -> Iterator[Pair]:
    columns = {name: list(read_rows(f"{folder}/{name}")) for name in _FILES}
    lines = len(columns[_ID])
    for name, rows in columns.items():
        if len(rows) != lines:
            expected = f"as many as {folder}/{_ID} has: {lines}"
            raise InputError(f"{folder}/{name}", problem=f"{len(rows)} lines", expected=expected)
    rows = columns[_ID]
    texts = [question for _, question in columns[_QUESTION]]
    if lines > len(set(texts)) and lines == len({question_id for _, question_id in rows}):
        first: dict[str, str] = {}
        rows = [
            (number, first.setdefault(text, question_id))
            for (number, question_id), text in zip(rows, texts, strict=True)
        ]
        message = f"each of {lines:,} lines has another id; grouped into {len(first):,} questions by text"
        logger.warning(f"{folder}: warning: {message}")
    columns = {**columns, _ID: rows}
    for (number, question_id), (_, question), (_, answer), (_, label) in zip(*columns.values(), strict=True):
        position = f"line {number}"
        relevance = parse_label(f"{folder}/{_LABEL}", position, "label", label)
        yield Pair(position, question_id.strip(), question, None, answer, relevance)


def _jacana_pools(path: str) -> Iterator[LabelledPool]:
    seen: dict[str, int] = {}
    for number, question_id, question, pairs in _jacana_questions(path):
        if question_id in seen:
            expected = f"each question once; line {seen[question_id]} begins this one already"
            raise InputError(
                path, position=f"line {number}", column="id", value=question_id, expected=expected
            )
        seen[question_id] = number
        if pairs:
            columns = Columns("id", "question", "", "answer", "label")
            yield from pools_of(path, pairs, columns)
        else:
            yield LabelledPool(question_id, question, [], [], {})
    if not seen:
        raise InputError(path, problem="no question", expected="<QApairs id='…'> elements")


def _jacana_questions(path: str) -> Iterator[tuple[int, str, str, list[Pair]]]:
    """Line, id, text and pairs of each ``<QApairs>``. Any other line is an error."""
    lines = read_rows(path)
    for number, line in lines:
        opening = _OPENING.fullmatch(line)
        if opening is None:
            raise InputError(path, position=f"line {number}", value=line, expected="<QApairs id='…'>")
        question_id, question = opening[1], None
        pairs: list[Pair] = []
        for inner, tag in _lines_before(path, lines, "</QApairs>", number):
            allowed = ("<question>",) if question is None else ("<positive>", "<negative>")
            if tag not in allowed:
                expected = "<question>" if question is None else "<positive>, <negative> or </QApairs>"
                raise InputError(path, position=f"line {inner}", value=tag, expected=expected)
            kind = tag[1:-1]
            text = _sentence(path, inner, _block(path, lines, kind, inner))
            if question is None:
                question = text
            else:
                relevance = int(kind == "positive")
                pairs.append(Pair(f"line {inner}", question_id, question, None, text, relevance))
        if question is None:
            raise InputError(path, position=f"line {number}", value=line, expected="a <question> in it")
        yield number, question_id, question, pairs


def _lines_before(path: str, lines: Iterable[tuple[int, str]], end: str, start_line: int) -> Lines:
    """Read lines up to the line ``end``, which closes the element that begins in ``start_line``."""
    for number, line in lines:
        if line == end:
            return
        yield number, line
    expected = f"{end} for the element that begins in line {start_line}"
    raise InputError(path, problem="the end of the file", expected=expected)


def _block(path: str, lines: Iterable[tuple[int, str]], kind: str, start_line: int) -> list[tuple[int, str]]:
    """The lines up to the closing tag; if a tag is among them, the closing tag is missing."""
    block = list[tuple[int, str]]()
    for number, line in _lines_before(path, lines, f"</{kind}>", start_line):
        if _TAG.fullmatch(line):
            expected = f"</{kind}> for the element that begins in line {start_line}"
            raise InputError(path, position=f"line {number}", value=line, expected=expected)
        block.append((number, line))
    return block


def _sentence(path: str, start_line: int, block: list[tuple[int, str]]) -> str:
    """The tokens of a block. Its annotations show whether a line is missing."""
    rows = [line.split("\t") for _, line in block]
    for (number, line), row in zip(block[:_ANNOTATED], rows, strict=False):
        if len(row) != len(rows[_TOKENS]):
            expected = f"{len(rows[_TOKENS])} fields between tabs, as line {block[_TOKENS][0]} has"
            raise InputError(path, position=f"line {number}", value=line, expected=expected)
    if len(rows) < _ANNOTATED or not all(field.isdecimal() for field in rows[_HEADS]):
        expected = "lines of tokens, parts of speech, dependencies, heads (numbers) and named entities"
        raise InputError(path, position=f"line {start_line}", problem=f"{len(rows)} lines", expected=expected)
    return " ".join(rows[_TOKENS])
