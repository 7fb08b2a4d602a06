"""aptool: train, score and evaluate answer-selection rankers, on one machine or a cluster."""

__version__ = "0.1.0"
