"""Serve a model over HTTP: the answers are encoded once, and each request ranks them.

MODEL=models/ap-cnn ANSWERS=answers.txt uvicorn serve:app

ANSWERS is a text file with one answer per line.
"""

import os
from pathlib import Path

from fastapi import FastAPI
from pydantic import BaseModel, Field

import aptool

model = aptool.load(os.environ["MODEL"])
answers = Path(os.environ["ANSWERS"]).read_text(encoding="utf-8").splitlines()
encoded = model.encode(answers)
app = FastAPI()


class Ranked(BaseModel):
    """An answer and its score."""

    answer: str
    score: float


class Pool(BaseModel):
    """A question with its candidates."""

    question: str
    answers: list[str]
    top_k: int = Field(10, ge=1)


@app.get("/rank")
def rank(question: str, top_k: int = 10) -> list[Ranked]:
    """The best encoded answers."""
    ranking = model.rank(question, encoded, top_k=max(top_k, 1))
    return [Ranked(answer=answers[row], score=score) for row, score in ranking]


@app.post("/rank")
def rank_pool(pool: Pool) -> list[Ranked]:
    """The best answers of the request."""
    ranking = model.rank(pool.question, pool.answers, top_k=pool.top_k)
    return [Ranked(answer=pool.answers[row], score=score) for row, score in ranking]
