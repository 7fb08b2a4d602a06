"""The paper's figures, as printed in its tables 3 to 5."""

from aptool.evaluation.paper import paper_figures


def test_figures_of_the_paper_are_given_for_its_collections_and_splits_only():
    assert paper_figures("insuranceqa-v1", "test2").systems["ap-bilstm"] == (0.664,)
    assert paper_figures("insuranceqa-v1", "dev").systems["qa-cnn"] == (0.616,)
    assert paper_figures("trecqa-clean", "test").systems["ap-cnn"] == (0.7530, 0.8511)
    assert paper_figures("trecqa-clean", "test").questions == 68
    assert paper_figures("trecqa-raw", "test") is None
    assert paper_figures("wikiqa", "dev") is None
    assert paper_figures("functions", "test") is None
