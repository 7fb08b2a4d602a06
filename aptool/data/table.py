"""Importer of tables with a row per question and candidate, in files or in memory.

Without ids, a question is identified by its text, and a candidate by its text within the question.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from aptool.arguments import PathLike, check_choice, check_path, check_text, is_path
from aptool.data.frames import (
    LEGAL_ANSWER_ID,
    LEGAL_QUESTION_ID,
    NO_ROW,
    TABLE,
    RawTable,
    Table,
    check,
    comparable,
    convert,
    read_columns,
)
from aptool.data.near_copies import divide
from aptool.data.table_files import check_text_format, read_table, table_files
from aptool.data.writing import (
    ANSWERS_ADDED,
    UNLABELLED_DROPPED,
    LabelledPool,
    SplitPools,
    collection_name,
    write_collection,
)
from aptool.errors import InputError, UsageError
from aptool.paths import PathOrUrl

logger = logging.getLogger(__name__)

# The parts of a row; ids are optional.
PARTS = ("question", "answer", "label", "question_id", "answer_id")
_RATIO = re.compile(r"[1-9][0-9]{0,3}(?::[1-9][0-9]{0,3}){1,2}")
_BLANK = r"^[\s\x1c-\x1f]*$"
_EXPECTED = f"a path, {TABLE}, or a dict of these by split"


def import_table(
    rows: PathLike | Table | Mapping[str, PathLike | Table],
    output: PathLike,
    columns: Mapping[str, str] | None = None,
    *,
    questions: str = "all",
    unlabelled: str = "refuse",
    add_candidates: str | None = None,
    split_ratio: str | None = None,
    separator: str | None = None,
    encoding: str | None = None,
    overwrite: bool = False,
) -> None:
    """Import each split from a file, a folder or a glob (see `table_files`), or from a table in memory.

    The arguments are those of `Collection.from_rows`. The name of the collection is that of its folder.
    """
    splits = rows if isinstance(rows, Mapping) else {"train": rows}
    if not splits:
        raise InputError("rows", value=rows, expected=_EXPECTED)
    out = check_path("output", output)
    unknown = [part for part in columns or {} if part not in PARTS]
    if unknown:
        raise UsageError(f"columns: {unknown[0]!r}: expected one of {', '.join(PARTS)}")
    given = {"question": "question", "answer": "answer", "label": "label", **(columns or {})}
    names = {part: check_text(part, given[part]) for part in PARTS if part in given}
    check_text_format(separator, encoding)
    shares = _shares(split_ratio)
    if shares and len(splits) != 1:
        raise UsageError(f"--split-ratio: expected one table, not {', '.join(splits)}")
    check_choice("unlabelled", unlabelled, ("refuse", "drop"))
    check_choice("add_candidates", add_candidates or "all", ("all",))
    paths: list[str] = []
    sources: dict[str, SplitPools] = {}
    for split, source in splits.items():
        counts: dict[str, int] = {}
        path = f"rows of {split!r}"
        tables: Iterable[RawTable]
        if is_path(source):
            path = check_path(path, source)
            paths.append(path)
            tables = (read_table(file, names.values(), separator, encoding) for file in table_files(path))
        else:
            tables = [RawTable(path, read_columns(path, source, _EXPECTED))]
        prefix = "table" if shares else split  # of ids of questions, which name no split that comes later
        drop, may_lack = unlabelled == "drop", add_candidates is not None
        pools = _pools(prefix, path, tables, names, counts, drop_unlabelled=drop, may_lack_labels=may_lack)
        sources[split] = SplitPools(pools, path, counts)
    if shares:
        sources = divide(next(iter(sources.values())), shares)
    if add_candidates:
        for split, content in sources.items():
            filled = fill_pools(content, has_answer_ids="answer_id" in names)
            sources[split] = content._replace(pools=filled)
    layout = {**names, "separator": separator, "encoding": encoding}
    details: dict[str, object] = {
        "layout": {key: value for key, value in layout.items() if value is not None}
    }
    options = {"add_candidates": add_candidates, "split_ratio": split_ratio}
    details |= {key: value for key, value in options.items() if value is not None}
    shown = ", ".join(file.rstrip("/").rsplit("/", 1)[-1] for file in paths)
    write_collection(
        out,
        sources,
        name=collection_name(out),
        source=f"imported from {shown or 'rows in memory'}",
        questions=questions,
        details=details,
        overwrite=overwrite,
    )
    if "question_id" not in names:
        logger.info("questions with the same text are one question (see --question-id)")


def pairs_of(
    tables: Sequence[RawTable], names: Mapping[str, str], nullable: Iterable[str] = ()
) -> pl.DataFrame:
    """The pairs of tables, in the columns of `pools_of`; positions in several tables begin with the file.

    ``names`` and ``nullable`` are those of `convert`.
    """
    frames = []
    for table in tables:
        file = f"{table.name.rsplit('/', 1)[-1]}, " if len(tables) > 1 else ""
        positions = [file + table.position(row) for row in range(table.height)]
        pairs = convert(table, names, nullable)
        frames.append(pairs.with_columns(position=pl.Series(positions, dtype=pl.String)))
    return pl.concat(frames)


def pools_of(
    path: PathOrUrl,
    pairs: pl.DataFrame,
    names: Mapping[str, str] | None = None,
    *,
    graded: bool = True,
    drop_empty: bool = False,
) -> Iterator[LabelledPool]:
    """Group pairs into pools, in the order in which questions first appear; check what a collection requires.

    Args:
        path: source of the pairs, for messages.
        pairs: position (in the source, such as ``line 3``, for messages), question_id, question, answer_id,
            answer and relevance. Pairs of a question need not be adjacent. Without answer_id, candidates are
            numbered. A null answer is a question without a candidate.
        names: column -> its name in the source, for messages.
        graded: take all labels, instead of 0 and 1.
        drop_empty: drop and count candidates without text, instead of keeping them.
    """
    if pairs.is_empty():
        raise InputError(path, **NO_ROW)
    if "answer_id" not in pairs.columns:
        number = pl.int_range(pl.len()).over("question_id")
        pairs = pairs.with_columns(answer_id=pl.format("{}-{}", "question_id", number))
    is_dropped = _is_blank("answer") if drop_empty else pl.lit(False)
    pairs = pairs.with_columns(is_dropped=is_dropped & pl.col("answer").is_not_null())
    candidates = pairs.filter(pl.col("answer").is_not_null() & ~pl.col("is_dropped"))
    if not graded:
        rule = ("relevance", ~pl.col("relevance").is_in([0, 1]), "0 or 1")
        check(path, candidates, [rule], candidates["position"].__getitem__, names)
    _check_questions(path, pairs, names)
    _check_candidates(path, candidates, names)
    questions = pairs.group_by("question_id", maintain_order=True).agg(
        pl.col("question").first(), pl.col("is_dropped").sum()
    )
    pools = candidates.group_by("question_id").agg("answer_id", "answer", "relevance")
    for name, question, dropped, ids, texts, labels in questions.join(
        pools, on="question_id", how="left", maintain_order="left"
    ).iter_rows():
        labelled = dict(zip(ids or [], labels or [], strict=True))
        yield LabelledPool(name, question, ids or [], texts or [], labelled, dropped)


def _check_questions(path: PathOrUrl, pairs: pl.DataFrame, names: Mapping[str, str] | None) -> None:
    first = pl.col("question", "position").first().over("question_id")
    pairs = pairs.with_columns(first.name.prefix("first_"))
    earlier = "the text that question {question_id!r} has in {first_position}"
    rules = [
        LEGAL_QUESTION_ID,
        ("question", _is_blank("question"), "a text"),
        ("question", pl.col("question") != pl.col("first_question"), earlier),
    ]
    check(path, pairs, rules, pairs["position"].__getitem__, names)


def _check_candidates(path: PathOrUrl, candidates: pl.DataFrame, names: Mapping[str, str] | None) -> None:
    first = pl.col("answer", "relevance", "position").first().over("question_id", "answer_id")
    candidates = candidates.with_columns(first.name.prefix("first_"))
    other_label = pl.col("relevance") != pl.col("first_relevance")
    earlier = "that candidate {answer_id!r} of this question has in {first_position}"
    rules = [
        LEGAL_ANSWER_ID,
        ("answer", pl.col("answer") != pl.col("first_answer"), f"the text {earlier}"),
        ("relevance", other_label, f"the label {{first_relevance}} {earlier}"),
    ]
    check(path, candidates, rules, candidates["position"].__getitem__, names)


def _is_blank(column: str) -> pl.Expr:
    """Whether a text has no character other than white space."""
    return pl.col(column).str.contains(_BLANK)


def _shares(split_ratio: str | None) -> list[int]:
    """The numbers of ``TRAIN:DEV`` or ``TRAIN:DEV:TEST``; empty without a ratio."""
    if split_ratio is None:
        return []
    if not _RATIO.fullmatch(str(split_ratio)):
        expected = "TRAIN:DEV or TRAIN:DEV:TEST, such as 80:10:10"
        raise UsageError(f"--split-ratio {split_ratio!r}: expected {expected}")
    return [int(number) for number in split_ratio.split(":")]


def _pools(
    split: str,
    path: str,
    tables: Iterable[RawTable],
    names: Mapping[str, str],
    counts: dict[str, int],
    *,
    drop_unlabelled: bool,
    may_lack_labels: bool,
) -> Iterator[LabelledPool]:
    """Read the pools of a split; count the rows that policies affect."""
    tables = [table for table in tables if table.height]
    columns = {"relevance" if part == "label" else part: name for part, name in names.items()}
    if may_lack_labels and names["label"] == "label" and not any("label" in t.columns for t in tables):
        logger.info(f"{split}: no column 'label': each answer is relevant for its question")
        del columns["relevance"]
    if not tables:
        raise InputError(path, **NO_ROW)
    for table in tables:
        for column, name in columns.items():
            table.column(name, _hint(column, name))
    pairs = pairs_of(tables, columns, ("answer", "relevance")).with_columns(pl.col("answer").fill_null(""))
    if "relevance" in columns:
        pairs = _labelled(path, pairs, columns["relevance"], counts, drop=drop_unlabelled)
    else:
        pairs = pairs.with_columns(relevance=pl.lit(1, pl.Int64))
    if "question_id" not in columns:
        pairs = _with_question_ids(split, pairs, counts)
    if "answer_id" not in columns:
        first = pl.col("row").first().over("question_id", "answer")
        pairs = pairs.with_row_index("row").with_columns(first=first)
        number = pl.col("first").rank("dense").over("question_id") - 1
        pairs = pairs.with_columns(answer_id=pl.format("{}-{}", "question_id", number))
    yield from pools_of(path, pairs, columns, drop_empty=True)


def _hint(column: str, name: str) -> str:
    """What the error of a missing column says about options."""
    option = "label" if column == "relevance" else column.replace("_", "-")
    if name != "label":
        return f", or --{option} NAME"
    return f", or --{option} NAME, or --add-candidates all if each row is a question with its right answer"


def _labelled(
    path: str, pairs: pl.DataFrame, label: str, counts: dict[str, int], *, drop: bool
) -> pl.DataFrame:
    """The pairs with a label; a candidate that is dropped as empty needs none."""
    is_unlabelled = pl.col("relevance").is_null() & ~_is_blank("answer")
    unlabelled = pairs.filter(is_unlabelled)
    if unlabelled.is_empty():
        return pairs.with_columns(pl.col("relevance").fill_null(0))
    if not drop:
        expected = "a whole number (--unlabelled drop leaves such rows out)"
        position = unlabelled["position"][0]
        raise InputError(path, position=position, column=label, problem="no value", expected=expected)
    counts[UNLABELLED_DROPPED] = unlabelled.height
    return pairs.filter(~is_unlabelled).with_columns(pl.col("relevance").fill_null(0))


def _with_question_ids(split: str, pairs: pl.DataFrame, counts: dict[str, int]) -> pl.DataFrame:
    """Number the questions by first appearance; spellings that look the same are one question.

    An id has the name of the split, so that it fits no qrels of another one.
    """
    spellings = pairs["question"].unique(maintain_order=True).to_list()
    first: dict[str, tuple[str, str]] = {}  # comparable text -> id, first spelling
    questions = [first.setdefault(comparable(text), (f"{split}-Q{len(first)}", text)) for text in spellings]
    if len(spellings) > len(first):
        counts["other_spellings_of_a_question_joined"] = len(spellings) - len(first)
    spelling = pl.col("question")
    return pairs.with_columns(
        question_id=spelling.replace_strict(
            spellings, [name for name, _ in questions], return_dtype=pl.String
        ),
        question=spelling.replace_strict(spellings, [text for _, text in questions], return_dtype=pl.String),
    )


def fill_pools(
    content: SplitPools,
    pool_size: int | None = None,
    seed: int = 0,
    *,
    has_answer_ids: bool,
    shared: Iterable[tuple[str, str]] = (),
) -> Iterator[LabelledPool]:
    """Add answers of other questions of the split to each pool, in the order in which the source has them.

    Equal answers are one candidate, which is relevant for each question that has the answer. Pools get all
    answers, or answers drawn at random up to ``pool_size`` candidates. Without ids of the source, a candidate
    is numbered by the first occurrence of its answer in the split. ``shared`` are the ids and texts of
    answers that need not be in a pool.
    """
    answers: dict[str, tuple[str, str]] = {}  # comparable text -> first id, first text
    texts: dict[str, str] = {}  # answer id -> comparable text

    def add(answer_id: str, text: str, position: str) -> str:
        key = comparable(text)
        answers.setdefault(key, (answer_id, text))
        if texts.setdefault(answer_id, key) != key:
            expected = f"the text that answer {answer_id!r} has in another question"
            raise InputError(content.path, position=position, column="answer", value=text, expected=expected)
        return key

    for answer_id, text in shared:
        add(answer_id, text, f"answer {answer_id!r}")
    labelled = []
    for pool in content.pools:
        labels: dict[str, int] = {}
        position = f"question {pool.question_id!r}"
        for answer_id, text in zip(pool.answer_ids, pool.texts or (), strict=True):
            label = pool.relevance[answer_id]
            earlier = labels.setdefault(add(answer_id, text, position), label)
            if label != earlier:
                expected = f"one label, not {earlier} and {label}"
                raise InputError(
                    content.path, position=position, column="answer", value=text, expected=expected
                )
        labelled.append((pool, labels))
    keys, ids_and_texts = list(answers), list(answers.values())
    numbers = {key: number for number, key in enumerate(keys)}
    random = np.random.default_rng(seed)
    for pool, labels in labelled:
        if not labels:  # a question without an answer, which the import drops and counts
            yield pool
            continue
        chosen = list(range(len(keys)))
        if pool_size is not None:
            own = [numbers[key] for key in labels]
            size = min(pool_size + len(own), len(keys))
            drawn = random.choice(len(keys), size, replace=False).tolist()
            others = [number for number in drawn if keys[number] not in labels]
            chosen = sorted([*own, *others[: max(pool_size - len(own), 0)]])
        ids = [ids_and_texts[n][0] if has_answer_ids else f"{pool.question_id}-{n}" for n in chosen]
        relevance = {name: labels.get(keys[n], 0) for name, n in zip(ids, chosen, strict=True)}
        if content.counts is not None and len(ids) > len(labels):
            content.counts[ANSWERS_ADDED] = content.counts.get(ANSWERS_ADDED, 0) + len(ids) - len(labels)
        yield pool._replace(answer_ids=ids, texts=[ids_and_texts[n][1] for n in chosen], relevance=relevance)
