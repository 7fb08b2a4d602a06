"""The columns (or JSON keys) of a user's data, and the ids that replace missing id columns."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from aptool.datasets.pairs import Columns, Pair
from aptool.datasets.policies import UNLABELLED_OPTION
from aptool.errors import InputError


@dataclass(frozen=True)
class ColumnNames:
    """The columns (or JSON keys) of the parts of a pair, and the format of a table.

    Attributes:
        question: column (or key) of the question's text.
        answer: column of the candidate's text, or its key in a candidate; None: ``answer``, and in
            a candidate also ``text``.
        label: column of the relevance label, or its key in a candidate; for candidates that are plain texts,
            key of the list of their labels.
        question_id: column of the question's id; None: the text identifies the question.
        answer_id: column of the candidate's id; None: the text identifies the candidate.
        candidates: key of the list of candidates.
        positions: for candidates that are plain texts, key of the list of positions, from 0, of the relevant
            candidates.
        field: path of keys, joined by dots, to the list of objects in a JSON document; None: the document is
            the list.
        header: names of the columns of a table without a header line; None: the first line has them.
        delimiter: column separator; None: a comma if the name ends in .csv or .csv.gz, else a tab.
        quotes: ``literal``: quotation marks are text; ``csv``: quotation marks enclose fields, in which the
            delimiter and line breaks are text; None: ``literal`` if the delimiter is a tab, else ``csv``.
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
        """The columns of a row that is a pair; a text replaces a missing id."""
        question_id, answer_id = self.question_id or self.question, self.answer_id or self.pair_answer
        return Columns(question_id, self.question, answer_id, self.pair_answer, self.label)

    @property
    def pair_answer(self) -> str:
        """Column of the candidate's text in a row that is a pair."""
        return self.answer or "answer"

    def candidate_answer(self, candidate: Mapping[str, object]) -> str:
        """Key of the text in a candidate that is an object."""
        return self.answer or ("answer" if "answer" in candidate and "text" not in candidate else "text")


def with_ids(pairs: Iterator[Pair], names: ColumnNames, split: str) -> Iterator[Pair]:
    """Number the texts of a split by first appearance, where the file has no ids.

    The split is part of the id, so that a run of one split fits no other's qrels.
    """
    questions: dict[str, str] = {}
    answers: dict[str, dict[str, str]] = {}
    for pair in pairs:
        if names.question_id is None:
            question_id = questions.setdefault(pair.question, f"{split}-Q{len(questions)}")
            pair = pair._replace(question_id=question_id)
        if names.answer_id is None and pair.answer is not None:
            ids = answers.setdefault(pair.question_id, {})
            pair = pair._replace(answer_id=ids.setdefault(pair.answer, f"{pair.question_id}-{len(ids)}"))
        yield pair


def quoted_names(names: Sequence[str]) -> str:
    """List at most twenty names for a message, quoted and shortened."""
    shown = [repr(name if len(name) <= 30 else name[:29] + "…") for name in names[:20]]
    return (", ".join(shown) or "none") + (", …" if len(names) > 20 else "")


def option_hint(part: str, split: str) -> str:
    """Name the options that help if the column of a part, such as ``question_id``, is missing."""
    hint = f"--{part.replace('_', '-')} NAME"
    return hint if part != "label" else f"{hint}, or {UNLABELLED_OPTION} {split} for a split without labels"


def missing_column(
    path: str, place: str | None, name: str, names: Sequence[str], hint: str = ""
) -> InputError:
    """The error for a missing column: lists the columns, the nearest name and the options that help."""
    expected = "this column" + (f", or {hint}" if hint else "")
    lowered = {column.casefold(): column for column in names}
    near = difflib.get_close_matches(name.casefold(), lowered, n=1, cutoff=0.5)
    if near:
        expected += f"; did you mean {lowered[near[0]]!r}?"
    problem = f"not found among {quoted_names(names)}"
    return InputError(path, place=place, column=name, problem=problem, expected=expected)
