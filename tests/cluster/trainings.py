"""A small training on a cluster, for several test files."""

from dataclasses import replace

from recorded import recorded
from tiny import recipe

from aptool.cluster.connection import Resources
from aptool.data.collection import Collection

# Negatives are sampled, mined and the other answers of the minibatch; word vectors are trained.
OPTIONS = ("training.in_batch=true", "training.loss=softmax", "vectors.source=learned")
# Five minibatches per epoch, four epochs.
SEED = 3


def trained(cluster, collection, output, *overrides, rate=None, on_epoch=lambda number: None, **more):
    from aptool.cluster.train import fit_on_cluster  # imports Ray, which reads the environment

    settings = recipe("ap-cnn", *OPTIONS, *overrides)
    if rate is not None:  # a learning rate that a recipe file cannot have
        settings = replace(settings, training=replace(settings.training, learning_rate=rate))
    with recorded(on_epoch) as records:
        result = fit_on_cluster(
            Collection(collection),
            settings,
            output,
            cluster=cluster,
            each=Resources(),
            seed=SEED,
            **more,
        )
    return result, records
