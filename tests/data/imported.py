"""The contents of imported collections, for tests of several importers."""

import os

import pytest

import aptool
from aptool.data.trec import read_qrels

DATA = os.environ.get("APTOOL_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="APTOOL_DATA is not set")


def pools_of(collection, split="train"):
    """(question id, question, [(answer id, text), ...]) of each pool, in the order of the file."""
    pools = aptool.Collection(collection.path).pools(split).to_dict()
    return [(name, question, list(candidates.items())) for name, (question, candidates) in pools.items()]


def candidates_of(collection, split="test"):
    """Question id -> answer id -> text."""
    return {name: dict(candidates) for name, _, candidates in pools_of(collection, split)}


def counts_of(collection):
    """Split -> its numbers of questions, candidates and relevant answers."""
    return {split: tuple(counts.values()) for split, counts in collection.manifest["splits"].items()}


def labels_of(folder, split):
    """Question -> text of a candidate -> label."""
    collection = aptool.Collection(folder)
    qrels = read_qrels(collection.qrels_file(split))
    labels = {(question_id, answer_id): label for question_id, answer_id, label in qrels.rows()}
    return {
        question: {text: labels.get((name, answer_id)) for answer_id, text in candidates}
        for name, question, candidates in pools_of(collection, split)
    }
