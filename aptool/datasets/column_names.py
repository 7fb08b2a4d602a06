"""Which columns (or JSON keys) of a user's own data hold what."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from aptool.datasets.pairs import Columns, Pair


@dataclass(frozen=True)
class ColumnNames:
    """The columns (or JSON keys) of the parts of a pair, and the format of a table.

    Attributes:
        question: column (or key) of the question's text.
        answer: column of the candidate's text, or its key in a candidate; None: ``answer``, and in
            a candidate also ``text``.
        label: column of its relevance, or its key in a candidate; beside candidates that are plain texts the
            key of a list with the label of each.
        question_id: column of the question's id; None: identified by its text.
        answer_id: column of the candidate's id; None: identified by its text.
        candidates: key of the list of candidates.
        positions: beside candidates that are plain texts, key of the list of positions, from 0, of the
            relevant ones.
        field: path of keys, joined by dots, to the list of objects in a JSON document; None: the document is
            the list.
        header: names of the columns of a table without a header line; None: the first line has them.
        delimiter: column separator; None: a comma if the name ends in .csv or .csv.gz, else a tab.
        quotes: ``literal``: quotation marks are text; ``csv``: they enclose fields, in which the delimiter
            and line breaks are text; None: ``literal`` where the delimiter is a tab, else ``csv``.
    """

    question: str = "question"
    answer: str | None = None
    label: str = "label"
    question_id: str | None = None
    answer_id: str | None = None
    candidates: str = "candidates"
    positions: str = "relevant"
    field: str | None = None
    header: tuple[str, ...] | None = None
    delimiter: str | None = None
    quotes: Literal["literal", "csv"] | None = None

    @property
    def columns(self) -> Columns:
        """The names of the parts, for messages."""
        question_id, answer_id = self.question_id or self.question, self.answer_id or self.pair_answer
        return Columns(question_id, self.question, answer_id, self.pair_answer, self.label)

    @property
    def pair_answer(self) -> str:
        """Column of the candidate's text in a row that is a pair."""
        return self.answer or "answer"

    def candidate_answer(self, candidate: Mapping[str, Any]) -> str:
        """Key of the text in a candidate that is an object."""
        return self.answer or ("answer" if "answer" in candidate and "text" not in candidate else "text")


def with_ids(pairs: Iterator[Pair], names: ColumnNames, split: str) -> Iterator[Pair]:
    """Pairs with ids; where the file has none, they number the texts of a split by first appearance.

    The split is part of the id, so that a run of one split fits no other's qrels.
    """
    questions: dict[str, str] = {}
    answers: dict[str, dict[str, str]] = {}
    for pair in pairs:
        if names.question_id is None:
            pair = pair._replace(
                question_id=questions.setdefault(pair.question, f"{split}-Q{len(questions)}")
            )
        if names.answer_id is None:
            known = answers.setdefault(pair.question_id, {})
            if pair.answer is None:
                yield pair
                continue
            answer_id = known.setdefault(pair.answer, f"{pair.question_id}-{len(known)}")
            pair = pair._replace(answer_id=answer_id)
        yield pair


def listed(names: Sequence[str]) -> str:
    """Names of columns for a message: quoted, shortened, at most twenty."""
    shown = [repr(name if len(name) <= 30 else name[:29] + "…") for name in names[:20]]
    return ", ".join(shown) + (", …" if len(names) > 20 else "")


def nearest(name: str, names: Sequence[str]) -> str:
    """``; 'NAME' perhaps``, with the name among ``names`` that is like the one that is missing, or ''."""
    lowered = {column.casefold(): column for column in names}
    near = difflib.get_close_matches(name.casefold(), lowered, n=1, cutoff=0.5)
    return f"; {lowered[near[0]]!r} perhaps" if near else ""
