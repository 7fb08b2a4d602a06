"""Systems with pair features on a cluster: the same model and run files as in one process."""

from published import SMALL
from tiny import OPTIONS

FILES = ("model.safetensors", "config.json", "tokenizer.json")


def test_cluster_trains_and_scores_as_one_process(run, address, collection_folder, tmp_path):
    def aptool(*arguments):
        finished = run("-m", "aptool", *arguments)
        assert finished.code == 0, finished.err

    pools = collection_folder / "test.pools.parquet"
    settings = [part for option in (*OPTIONS, *SMALL["yin-2015"]) for part in ("--set", option)]
    train = ("train", collection_folder, "--preset", "yin-2015", *settings)

    aptool(*train, "--output", tmp_path / "alone")
    aptool(*train, "--output", tmp_path / "there", "--cluster", address, "--workers", "1")
    for folder, more in (("alone", ()), ("there", ("--cluster", address))):
        aptool("score", pools, "--model", tmp_path / "alone", "--output", tmp_path / f"{folder}.run", *more)

    for file in FILES:
        assert (tmp_path / "alone" / file).read_bytes() == (tmp_path / "there" / file).read_bytes()
    assert (tmp_path / "alone.run").read_bytes() == (tmp_path / "there.run").read_bytes()
