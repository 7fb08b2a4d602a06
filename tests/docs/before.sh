# Create the collections, models and runs that pages use from earlier pages.
aptool data import wikiqa train=WikiQA-train.tsv dev=WikiQA-dev.tsv --output data/wikiqa
aptool data import wikiqa train=functions-train.tsv dev=functions-dev.tsv test=functions-test.tsv --output data/functions
aptool data import trecqa train=train-all dev=clean-dev --output data/trecqa
aptool data import table train=examples/faq/train.csv dev=examples/faq/dev.csv \
    --add-candidates all --output data/faq

small="--set vectors.dim=16 --set encoder.features=16 --set training.epochs=2 --set training.minibatch=8"
for system in ap-cnn qa-cnn; do
    aptool train data/wikiqa --preset $system --output models/$system $small
    aptool score data/wikiqa/dev.pools.parquet --model models/$system --output $system.run
done
aptool score data/wikiqa/dev.pools.parquet --model bm25 --output bm25.run
mkdir -p runs/eval/functions/ap-cnn/seed0
cp -r models/ap-cnn runs/eval/functions/ap-cnn/seed0/model
