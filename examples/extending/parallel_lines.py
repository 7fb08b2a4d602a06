"""A new data set: two files of parallel lines, questions in one and their answers in the other.

An importer reads its format into pairs, each with its line for error messages. `pools_of` groups them by
question; `write_collection` applies the policies, counts every row and writes the files. The other candidates
of a question are the answers of the next questions.

    from parallel_lines import build
    build("data/mine", {"train": ("train.questions.txt", "train.answers.txt")}, candidates=10)
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

from aptool.data.collection import Collection
from aptool.data.importing import SplitPools, write_collection
from aptool.data.pairs import Columns, Pair, pools_of
from aptool.data.values import check_text
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
        split: SplitPools(
            questions,
            pools_of(questions, _pairs(questions, answers, candidates), Columns()),
        )
        for split, (questions, answers) in splits.items()
    }
    write_collection(output, name=Path(output).name, source="parallel lines", splits=read)
    return Collection(output)


def _pairs(questions: str, answers: str, candidates: int) -> Iterator[Pair]:
    """Pairs of a question with its answer, then with the answers of the next lines."""
    question_lines = Path(questions).read_text(encoding="utf-8").splitlines()
    answer_lines = Path(answers).read_text(encoding="utf-8").splitlines()
    if len(answer_lines) != len(question_lines):
        raise InputError(
            answers,
            problem=f"{len(answer_lines)} lines",
            expected=f"{len(question_lines)}, as in {questions}",
        )
    for line, text in enumerate(question_lines):
        check_text(questions, f"line {line + 1}", "question", text)
        for step in range(min(candidates, len(answer_lines))):
            index = (line + step) % len(answer_lines)
            check_text(answers, f"line {index + 1}", "answer", answer_lines[index])
            relevance = int(step == 0)
            yield Pair(f"line {line + 1}", f"Q{line}", text, f"A{index}", answer_lines[index], relevance)
