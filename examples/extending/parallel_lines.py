"""A new data set: two files of parallel lines, questions in one and their answers in the other.

An importer reads its format into a frame with a pair per row. `pools_of` checks the pairs and groups them by
question; `write_collection` applies the policies, counts every row and writes the files. The other candidates
of a question are the answers of the next questions.

    from parallel_lines import build
    build("data/mine", {"train": ("train.questions.txt", "train.answers.txt")}, candidates=10)
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import polars as pl

from aptool.data.collection import Collection
from aptool.data.table import pools_of
from aptool.data.writing import LabelledPool, SplitPools, write_collection
from aptool.errors import InputError


def build(output: str | Path, splits: Mapping[str, tuple[str, str]], *, candidates: int = 10) -> Collection:
    """Import each split from its two files.

    Args:
        output: folder of the collection to write.
        splits: name of a split -> its file of questions and its file of answers.
        candidates: size of a pool.

    Raises:
        InputError: a line is empty, or the files differ in length; the message names file and line.
    """
    read = {
        split: SplitPools(_pools(questions, answers, candidates), questions)
        for split, (questions, answers) in splits.items()
    }
    write_collection(output, read, name=Path(output).name, source="parallel lines")
    return Collection(output)


def _pools(questions: str, answers: str, candidates: int) -> Iterator[LabelledPool]:
    """The pool of each question: its answer and the answers of the next lines."""
    texts, answer_texts = (
        Path(path).read_text(encoding="utf-8").splitlines() for path in (questions, answers)
    )
    if len(answer_texts) != len(texts):
        problem, expected = f"{len(answer_texts)} lines", f"{len(texts)}, as in {questions}"
        raise InputError(answers, problem=problem, expected=expected)
    if "" in answer_texts:
        position = f"line {answer_texts.index('') + 1}"
        raise InputError(answers, position=position, column="answer", value="", expected="a text")
    pairs = [
        (line, (line + step) % len(texts))
        for line in range(len(texts))
        for step in range(min(candidates, len(texts)))
    ]
    frame = pl.DataFrame(
        {
            "position": [f"line {line + 1}" for line, _ in pairs],
            "question_id": [f"Q{line}" for line, _ in pairs],
            "question": [texts[line] for line, _ in pairs],
            "answer_id": [f"A{other}" for _, other in pairs],
            "answer": [answer_texts[other] for _, other in pairs],
            "relevance": [int(line == other) for line, other in pairs],
        }
    )
    yield from pools_of(questions, frame)
