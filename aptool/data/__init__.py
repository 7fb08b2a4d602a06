"""The data sets and the files of aptool: pools, collections, qrels and runs; importers and folds."""
