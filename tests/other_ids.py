"""Shared by tests that draw qrels and runs: which of them evaluation refuses."""


def have_other_ids(qrels, run):
    """Whether the two have no question or no answer in common, which is refused."""
    answers = (set().union(*questions.values()) for questions in (qrels, run))
    return qrels.keys().isdisjoint(run) or next(answers).isdisjoint(next(answers))
