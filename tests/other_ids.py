"""For tests that draw qrels and runs: the pairs that evaluation refuses."""


def have_other_ids(qrels, run):
    """Whether qrels and run have no question or no answer in common."""
    answers = (set().union(*questions.values()) for questions in (qrels, run))
    return qrels.keys().isdisjoint(run) or next(answers).isdisjoint(next(answers))
