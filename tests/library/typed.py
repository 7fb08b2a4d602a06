"""What type checkers know of the library; `make lint` checks this file, and that ignored lines are wrong."""

from typing import assert_type

import aptool


def right() -> None:
    """Lines without a type error."""
    data = aptool.Collection("data/wikiqa")
    model = aptool.train(data, preset="ap-cnn", seed=0, set={"training.epochs": 1})
    assert_type(model, aptool.Model)
    assert_type(model.rank("who?", ["she", "he"])[0], tuple[int, float])
    run, qrels = model.run(data.pools("dev")), data.qrels("dev")
    assert_type((run, qrels), tuple[aptool.Run, aptool.Qrels])
    means: dict[str, float] = dict(aptool.evaluate(qrels, run, ["AP"]).means)
    assert means
    assert_type(aptool.compare(aptool.bm25_run(data.pools("dev")), run, qrels, "AP")[0].p, float)
    aptool.fuse([run, aptool.Run({"q": {"a": 1.0}})]).save("fused.run", tag="fused")
    assert_type(aptool.score("dev.pools.parquet", model=model, output="dev.run").pairs, int)


def wrong() -> None:
    """Each line has a type error."""
    aptool.load(7)  # type: ignore[arg-type]
    aptool.train(aptool.Collection("x"), seed="0")  # type: ignore[arg-type]
    aptool.load("x").rank(["who?"], "she")  # type: ignore[arg-type]
    aptool.Run({}, 7)  # type: ignore[arg-type]
    aptool.Qrels("x.qrels", "mine")  # type: ignore[call-arg]
    _ = aptool.evaluate({}, {}, ["AP"]).measn  # type: ignore[attr-defined]
    _ = aptool.compare({}, {}, {}, "AP")[0].pvalue  # type: ignore[attr-defined]
