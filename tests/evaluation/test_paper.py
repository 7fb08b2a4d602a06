"""The paper's figures, as printed in its tables 3 to 5."""

from aptool.evaluation.paper import TABLES, paper_figures, paper_names


def test_figures_of_the_paper_are_given_for_its_collections_and_splits_only():
    assert paper_figures("insuranceqa-v1", "test2").systems["ap-bilstm"] == (0.664,)
    assert paper_figures("insuranceqa-v1", "dev").systems["qa-cnn"] == (0.616,)
    assert paper_figures("trecqa-clean", "test").systems["ap-cnn"] == (0.7530, 0.8511)
    assert paper_figures("trecqa-clean", "test").questions == 68
    assert paper_figures("trecqa-raw", "test") is None
    assert paper_figures("wikiqa", "dev") is None
    assert paper_figures("functions", "test") is None


def test_all_eleven_systems_have_their_figures():
    # Tables 3 to 5 of the paper: six, seven and six rows, of eleven systems in all.
    assert [len(table.systems) for table in TABLES] == [6, 7, 6]
    assert len({system for table in TABLES for system in table.systems}) == 11
    assert paper_figures("trecqa-clean", "test").of_system("severyn-2015") == {
        "MAP": 0.746,
        "MRR": 0.808,
    }
    assert paper_figures("wikiqa", "test").of_system(None) == {}


def test_systems_stand_for_those_of_the_paper_by_their_presets_or_as_fusions_by_their_names():
    trained = [("ap-cnn", "mine"), ("ap-cnn-paper", "letter"), ("own.toml", "qa-cnn"), (None, "bm25")]
    assert paper_names(trained) == {"mine": "ap-cnn", "letter": "ap-cnn"}

    network = ("wang-nyberg-2015", "network")
    assert paper_names([network]) == {"network": "wang-nyberg-2015"}
    # Fused with BM25 it is the paper's system, of which it is a part.
    fused = [network, (None, "bm25"), (None, "wang-nyberg-2015")]
    assert paper_names(fused) == {"wang-nyberg-2015": "wang-nyberg-2015"}
