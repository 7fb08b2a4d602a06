"""The files aptool reads and writes: collections, pools, qrels and runs."""
