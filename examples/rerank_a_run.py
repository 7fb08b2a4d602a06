"""Rerank a first-stage run: ``python rerank_a_run.py data/scifact test models/ap-cnn``.

The collection is from `aptool data import retrieval`; its pools are the first-stage candidates. The
script also prints the measures of a perfect re-ranking, the upper bound of any reranker.
With ``data/faq dev sentence-transformers/all-MiniLM-L6-v2`` of docs/start.md::

    bm25       nDCG@10 0.3635 MRR@10 0.3061
    model      nDCG@10 0.7948 MRR@10 0.7375
    best order nDCG@10 1.0000 MRR@10 1.0000
"""

import sys

import aptool


def main(folder: str, split: str, model: str) -> None:
    """Print nDCG@10 and MRR@10 of BM25, of the model, and of the best order of the candidates."""
    data = aptool.Collection(folder)
    pools, qrels = data.pools(split), data.qrels(split)
    relevance = qrels.to_dict()
    runs = {
        "bm25": aptool.bm25_run(pools),
        "model": aptool.load(model).run(pools),
        "best order": aptool.Run(
            {
                question: {candidate: float(relevance[question].get(candidate, 0)) for candidate in texts}
                for question, (_, texts) in pools.to_dict().items()
            }
        ),
    }
    for name, run in runs.items():
        means = aptool.evaluate(qrels, run, ["nDCG@10", "MRR@10"]).means
        print(f"{name:10}", *(f"{measure} {value:.4f}" for measure, value in means.items()))
    runs["model"].save("reranked.run")


if __name__ == "__main__":
    main(*sys.argv[1:])
