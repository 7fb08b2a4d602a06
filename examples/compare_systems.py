"""Two systems and BM25 on one collection, with paired tests: ``python compare_systems.py data/wikiqa``.

The systems are trained on train and compared on dev, on the same questions. The p-values are corrected
for the number of comparisons. With ``data/faq`` of docs/start.md, whose 201 training questions are too few
for networks without pretraining::

    bm25     MAP 0.3272 MRR 0.3272 P@1 0.2051
    qa-cnn   MAP 0.1364 MRR 0.1364 P@1 0.0427
    ap-cnn   MAP 0.1781 MRR 0.1781 P@1 0.0940
    fused    MAP 0.2624 MRR 0.2624 P@1 0.1538
    qa-cnn   MAP -0.1908 over bm25, p = 0.0000
    ap-cnn   MAP -0.1491 over bm25, p = 0.0007
    fused    MAP -0.0648 over bm25, p = 0.0458
"""

import sys

import aptool

PRESETS = ("qa-cnn", "ap-cnn")
MEASURES = ["MAP", "MRR", "P@1"]


def main(folder: str) -> None:
    """Print the means, and the p-value of each system against BM25."""
    data = aptool.Collection(folder)
    pools, qrels = data.pools("dev"), data.qrels("dev")

    runs = {"bm25": aptool.bm25_run(pools)}
    for preset in PRESETS:
        runs[preset] = aptool.train(data, preset=preset, seed=0).run(pools)
    runs["fused"] = aptool.fuse([runs["bm25"], runs[PRESETS[-1]]])

    for name, run in runs.items():
        means = aptool.evaluate(qrels, run, MEASURES).means
        print(f"{name:8}", *(f"{measure} {value:.4f}" for measure, value in means.items()))
    baseline, *systems = runs.values()
    for name, result in zip(list(runs)[1:], aptool.compare(baseline, systems, qrels, ["MAP"]), strict=True):
        print(f"{name:8} MAP {result.difference:+.4f} over bm25, p = {result.p_holm:.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
