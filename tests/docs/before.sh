# Create the collections, models and runs that pages use from earlier pages.
for name in WikiQA functions; do
    aptool data import wikiqa train=$name-train.tsv dev=$name-dev.tsv test=$name-test.tsv --output data/${name,,}
done
aptool data import trecqa train=train-all dev=clean-dev --output data/trecqa

small="--set vectors.dim=16 --set encoder.features=16 --set training.epochs=2 --set training.minibatch=8"
for system in ap-cnn qa-cnn; do
    aptool train data/wikiqa --preset $system --output models/$system $small
    for split in dev test; do
        aptool score data/wikiqa/$split.pools.parquet --model models/$system --output data/wikiqa/$split.$system.run
    done
    cp data/wikiqa/dev.$system.run $system.run
done
for split in dev test; do cp data/wikiqa/$split.qa-cnn.run data/wikiqa/$split.bm25.run; done
cp -r models/ap-cnn models/wikiqa
ln -s data/wikiqa wikiqa
mkdir -p runs/eval/functions/ap-cnn/seed0
cp -r models/ap-cnn runs/eval/functions/ap-cnn/seed0/model
