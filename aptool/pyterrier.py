"""Models and runs as transformers of PyTerrier.

    import pyterrier as pt
    from aptool.pyterrier import transformer

    pipeline = bm25 >> pt.text.get_text(index, "text") >> transformer("models/wikiqa")
    pt.Experiment([bm25, pipeline], topics, qrels, ["map", "recip_rank"])

These transformers do not need Java.
"""

from typing import Any

import numpy as np
import pandas as pd
import pyterrier

from aptool.errors import InputError
from aptool.library.arguments import PathLike, check_text
from aptool.library.model import Model
from aptool.library.run import Run


def transformer(source: Model | Run | PathLike, *, text_field: str = "text") -> pyterrier.Transformer:
    """Make a transformer of PyTerrier.

    Args:
        source: a model or its folder, to re-rank documents with texts (R to R); or a run, to retrieve its
            rankings (Q to R) or to score documents (R to R).
        text_field: column of the document texts, for a model.

    Returns:
        The transformer.
    """
    check_text("text_field", text_field)
    if isinstance(source, Run):
        return RunTransformer(source)
    return ModelTransformer(source if isinstance(source, Model) else Model(source), text_field)


class ModelTransformer(pyterrier.Transformer):
    """Re-ranks the documents of each query with a model."""

    def __init__(self, model: Model, text_field: str = "text") -> None:
        super().__init__()
        self.model = model
        self.text_field = text_field

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Score and rank documents.

        Args:
            inp: qid, query, docno and the column of the texts; other columns are kept.

        Returns:
            The rows with ``score`` and ``rank`` (from 0), per query in trec_eval's order.
        """
        _check_columns(inp, ["qid", "query", "docno", self.text_field])
        if inp.empty:
            return inp.assign(score=np.zeros(0), rank=np.zeros(0, dtype=np.int64))
        pairs = list(zip(inp["query"].tolist(), inp[self.text_field].tolist(), strict=True))
        return _ranked(inp, self.model.score(pairs).astype(np.float64))

    def __repr__(self) -> str:
        return f"aptool({str(self.model.folder)!r})"


class RunTransformer(pyterrier.Transformer):
    """Retrieves the rankings of a run."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Look up queries in the run.

        Args:
            inp: qid; with docno, only these documents are ranked. Rows that the run lacks are dropped.

        Returns:
            The rows with ``docno``, ``score`` and ``rank`` (from 0), in trec_eval's order.
        """
        _check_columns(inp, ["qid"])
        named = self.run.frame.rename({"question_id": "qid", "answer_id": "docno"})
        scores = pd.DataFrame(named.select("qid", "docno", "score").to_dict(as_series=False))
        keys = ["qid", "docno"] if "docno" in inp.columns else ["qid"]
        rows = inp.drop(columns=["score", "rank"], errors="ignore").merge(scores, on=keys)
        return _ranked(rows, rows["score"].to_numpy(dtype=np.float64))

    def __repr__(self) -> str:
        return f"aptool({self.run!r})"


def _ranked(frame: pd.DataFrame, scores: np.ndarray) -> pd.DataFrame:
    """The rows with scores and ranks; queries in the order of their first rows."""
    result = frame.assign(score=scores)
    order = {qid: number for number, qid in enumerate(dict.fromkeys(result["qid"]))}
    result = result.assign(_order=result["qid"].map(order))
    result = result.sort_values(["_order", "score", "docno"], ascending=[True, False, False])
    result = result.drop(columns="_order").reset_index(drop=True)
    return result.assign(rank=result.groupby("qid", sort=False).cumcount())


def _check_columns(frame: Any, columns: list[str]) -> None:
    for column in columns:
        if column not in frame.columns:
            names = ", ".join(map(str, frame.columns)) or "none"
            raise InputError("transformer", column=column, expected=f"this column; the frame has {names}")
