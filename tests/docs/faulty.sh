# Faulty inputs of docs/troubleshooting.md.
sed 's/,1$/,Good/; s/,0$/,Bad/' faq.csv > words.csv
printf 'question,answer,label\nWer ist Jörg?,Er,1\nWo?,\366,1\n' > latin.csv
printf 'question,answer,label\nwho?,me,1\nwho?,me,0\n' > conflict.csv
cp -r data/wikiqa edited
echo "Qdev0 0 Ddev0-0 1" >> edited/dev.qrels
aptool data import table train=faq.csv --output data/one-split
head -c 900 GoogleNews-vectors-negative300.bin > cut.bin
echo notes > notes.txt
head -c 3000 data/wikiqa/dev.pools.parquet > broken.pools.parquet
cat qa-cnn.run qa-cnn.run > twice.run
sed '1s/ [^ ]* qa-cnn$/ nan qa-cnn/' qa-cnn.run > nan.run
head -n 20 qa-cnn.run > part.run
