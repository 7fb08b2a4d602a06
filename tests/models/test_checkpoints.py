"""Checkpoints of other libraries have the same scores in these libraries and in aptool."""

import json
import shutil

import numpy as np
import pytest
import torch
from networks import (
    IDS,
    REASON,
    SENTENCE_TRANSFORMERS,
    colbert,
    cross_encoder,
    piece_tokenizer,
    write_network,
    write_with_tokenizer,
)
from tiny import THINGS

from aptool.errors import AptoolError, InputError
from aptool.models.checkpoints import load_any
from aptool.scoring.encoded import TokenizedPools
from aptool.scoring.model_system import ModelSystem

transformers = pytest.importorskip("transformers", reason=REASON)
library = pytest.importorskip("sentence_transformers", reason=SENTENCE_TRANSFORMERS)

QUESTIONS = ("where is the market", "river bridge?", "is the teacher near the window ?", "violin")
ANSWERS = (
    "the river is near the bridge ?",
    "market",
    "the silver hammer with the violin is the forest near the mountain",
    "unheard of ?",
    "",
    " ".join([*THINGS, *THINGS]),
)
PAIRS = [(q, a) for q in range(len(QUESTIONS)) for a in range(len(ANSWERS))]


def scored(folder, kind="auto", **options):
    """(questions, answers) float32 scores of aptool."""
    model = load_any(folder, kind=kind)
    text = model.recipe.text
    rows = np.array(PAIRS)
    pools = TokenizedPools(
        questions=model.tokenizer.encode(QUESTIONS, text.max_question_tokens, "question"),
        answers=model.tokenizer.encode(ANSWERS, text.max_answer_tokens),
        pair_question=rows[:, 0],
        pair_answer=rows[:, 1],
        cache_keys=np.arange(len(ANSWERS)),
    )
    actual = ModelSystem(str(folder), model=model, **options).open().score(pools)
    return torch.from_numpy(actual).view(len(QUESTIONS), len(ANSWERS))


def sentence_encoder(network, folder, *modules, **options):
    from sentence_transformers.base.modules import Transformer

    torch.manual_seed(2)
    first = Transformer(str(network), **options.pop("transformer", {}))
    made = [module(first.get_embedding_dimension()) for module in modules]
    model = library.SentenceTransformer(modules=[first, *made], device="cpu", **options)
    model.save(str(folder), create_model_card=False)
    return model


def embedded_scores(model):
    questions, answers = model.encode_query(list(QUESTIONS)), model.encode_document(list(ANSWERS))
    return model.similarity(questions, answers)


def pooling(mode, **options):
    from sentence_transformers.sentence_transformer.modules import Pooling

    return lambda size: Pooling(size, mode, **options)


def dense(outputs, **options):
    from sentence_transformers.base.modules import Dense

    return lambda size: Dense(size, outputs, **options)


def normalize(size):
    from sentence_transformers.base.modules import Normalize

    return Normalize()


PROMPTS = {"query": "where is the ", "document": "near "}


@pytest.mark.parametrize("mode", ["mean", "cls", "max", "lasttoken", "weightedmean", ("cls", "mean")])
@pytest.mark.parametrize("similarity", ["cosine", "dot", "euclidean", "manhattan"])
def test_sentence_encoder_with_every_pooling_and_similarity(network, tmp_path, mode, similarity):
    model = sentence_encoder(network, tmp_path / "st", pooling(mode), similarity_fn_name=similarity)

    torch.testing.assert_close(scored(tmp_path / "st"), embedded_scores(model).float(), atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("modules", "options"),
    [
        ((pooling("mean"), dense(8), normalize), {}),
        ((pooling("mean"), dense(8, activation_function=torch.nn.GELU(), bias=False)), {}),
        ((pooling("mean"), dense(16, use_residual=True)), {}),
        ((pooling("mean"), normalize), {"prompts": PROMPTS, "similarity_fn_name": "dot"}),
        ((pooling("mean", include_prompt=False),), {"prompts": PROMPTS}),
        ((pooling("mean"),), {"transformer": {"max_seq_length": 7}}),
        ((pooling("mean"),), {"prompts": {"query": "where ", "passage": "the "}}),
    ],
)
def test_dense_layers_prompts_and_lengths_of_sentence_encoders(network, tmp_path, modules, options):
    model = sentence_encoder(network, tmp_path / "st", *modules, **dict(options))

    torch.testing.assert_close(scored(tmp_path / "st"), embedded_scores(model), atol=1e-5, rtol=1e-5)


def test_network_without_modules_has_mean_pooling(network, tmp_path):
    model = sentence_encoder(network, tmp_path / "st", pooling("mean"))

    torch.testing.assert_close(scored(network), embedded_scores(model), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("options", [{}, {"activation_fn": torch.nn.Identity()}, {"max_length": 12}])
def test_cross_encoders_with_one_label(network, tmp_path, options):
    model = cross_encoder(network, tmp_path / "ce", 1, **options)

    expected = model.predict([(QUESTIONS[q], ANSWERS[a]) for q, a in PAIRS], convert_to_tensor=True)

    assert expected.std() > 1e-3
    torch.testing.assert_close(scored(tmp_path / "ce").flatten(), expected, atol=1e-5, rtol=1e-5)


def test_cross_encoders_with_two_labels_give_the_log_odds_of_the_second(network, tmp_path):
    model = cross_encoder(network, tmp_path / "ce", 2)
    texts = [(QUESTIONS[q], ANSWERS[a]) for q, a in PAIRS]

    chances = model.predict(texts, apply_softmax=True, convert_to_tensor=True)[:, 1]

    torch.testing.assert_close(scored(tmp_path / "ce").flatten().sigmoid(), chances, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["roberta", "distilbert", "electra", "gpt2", "modernbert"])
def test_cross_encoders_over_other_networks(tmp_path, kind):
    from test_network_kinds import KINDS, MODERN

    torch.manual_seed(0)
    sizes = KINDS.get(kind, MODERN)
    config = transformers.AutoConfig.for_model(kind, **{"pad_token_id": 0, **sizes}, vocab_size=len(IDS))
    config.num_labels = 1
    whole = transformers.AutoModelForSequenceClassification.from_config(config)
    write_with_tokenizer(tmp_path / "ce", whole)
    model = library.CrossEncoder(str(tmp_path / "ce"), device="cpu")

    expected = model.predict([(QUESTIONS[q], ANSWERS[a]) for q, a in PAIRS[:12]], convert_to_tensor=True)

    torch.testing.assert_close(scored(tmp_path / "ce").flatten()[:12], expected.float(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"skip": ["?", "the"], "prompts": PROMPTS},
        {"similarity_fn_name": "meanmaxsim", "transformer": {"document_length": 9, "query_length": 6}},
        {"transformer": {"query_expansion": {"strategy": "fixed", "attend": False, "length": 14}}},
        {"transformer": {"query_expansion": {"strategy": "fixed", "attend": True, "length": 14}}},
        {"transformer": {"query_expansion": {"strategy": "min", "attend": False, "length": 5}}},
    ],
)
def test_colbert_with_and_without_expansion(tmp_path, options):
    network = with_mask_token(tmp_path / "bert")
    model = colbert(network, tmp_path / "colbert", **json.loads(json.dumps(options)))

    actual = scored(tmp_path / "colbert")

    questions, answers = model.encode_query(list(QUESTIONS)), model.encode_document(list(ANSWERS))
    expected = model.similarity(questions, answers)
    torch.testing.assert_close(actual, expected.float(), atol=2e-5, rtol=1e-5)


def with_mask_token(folder):
    write_network(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "mask_token": "[MASK]"}))
    return folder


def static_tokenizer():
    tokenizer = piece_tokenizer()
    tokenizer.post_processor = None
    return tokenizer


@pytest.mark.parametrize("shared", [False, True])
def test_model2vec_with_its_weights_and_shared_vectors(tmp_path, shared):
    model2vec = pytest.importorskip("model2vec", reason="needs the extra distill")
    generator = np.random.default_rng(5)
    more = {}
    if shared:
        more = {"token_mapping": generator.integers(0, 9, len(IDS)), "weights": generator.random(len(IDS))}
    vectors = generator.normal(size=(9 if shared else len(IDS), 6)).astype(np.float32)
    model = model2vec.StaticModel(vectors, static_tokenizer(), **more)
    model.save_pretrained(tmp_path / "static")

    questions, answers = (torch.from_numpy(model.encode(list(t))).float() for t in (QUESTIONS, ANSWERS))
    expected = torch.nn.functional.cosine_similarity(questions[:, None], answers[None], dim=-1)

    torch.testing.assert_close(scored(tmp_path / "static"), expected, atol=1e-5, rtol=1e-5)


def test_static_embeddings_of_sentence_transformers(tmp_path):
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    torch.manual_seed(6)
    first = StaticEmbedding(static_tokenizer(), embedding_dim=6)
    model = library.SentenceTransformer(modules=[first], device="cpu")
    model.save(str(tmp_path / "static"), create_model_card=False)

    actual, expected = scored(tmp_path / "static"), embedded_scores(model)

    named = [answer for answer, text in enumerate(ANSWERS) if text]  # an empty text has no mean there
    torch.testing.assert_close(actual[:, named], expected[:, named], atol=1e-5, rtol=1e-5)


def change(path, **entries):
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


def test_score_command_reads_a_checkpoint(network, tmp_path, aptool, collection_folder):
    sentence_encoder(network, tmp_path / "tiny-st", pooling("mean"))
    pools, run = collection_folder / "dev.pools.parquet", tmp_path / "dev.run"

    finished = aptool("score", pools, "--model", tmp_path / "tiny-st", "--output", run)

    assert finished.code == 0, finished.err
    assert run.read_text().split()[5] == "tiny-st"
    refused = aptool(
        "score", pools, "--model", tmp_path / "tiny-st", "--kind", "cross-encoder", "--output", run
    )
    assert refused.code == 1
    assert refused.err == [
        f"aptool: {tmp_path / 'tiny-st'}: sentence-transformers here; expected a model of kind cross-encoder"
    ]


def broken(tmp_path, network, fault):
    """An invalid folder, and the expected error."""
    folder = tmp_path / "st"
    if fault == "no head":
        return network, "a network without head here; expected a model of kind cross-encoder"
    sentence_encoder(network, folder, pooling("mean"), dense(8))
    modules = json.loads((folder / "modules.json").read_text())
    if fault == "code":
        (folder / "custom.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
        modules[1]["type"] = "custom.Pooling"
        expected = "modules.json: module 1: type: 'custom.Pooling': expected one of Transformer, Pooling"
    elif fault == "elsewhere":
        modules[1]["path"] = "../../etc"
        expected = "module 1: path: '../../etc': expected a folder within it"
    elif fault == "two networks":
        modules.append(modules[0])
        expected = "modules.json: 2 networks; expected one network"
    elif fault == "two models":
        change(folder / "config.json", architectures=["BertForSequenceClassification"])
        (folder / "config_sentence_transformers.json").unlink()
        expected = "two models here: sentence-transformers and cross-encoder; expected one, or --kind"
    elif fault == "auto_map":
        change(folder / "config.json", auto_map={"AutoModel": "custom.Model"}, model_type="custom")
        expected = "custom"
    elif fault == "sparse":
        change(folder / "config_sentence_transformers.json", model_type="SparseEncoder")
        expected = "model_type: 'SparseEncoder'"
    elif fault == "kinds":
        change(folder / "config_sentence_transformers.json", model_type=["ColBERT"])
        expected = "model_type: ['ColBERT']: expected a model of kind"
    elif fault == "architectures":
        change(folder / "config.json", architectures={"a": "BertModel"})
        expected = "config.json: architectures: {'a': 'BertModel'}: expected a list of names"
    elif fault == "pickle":
        (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
        expected = "expected weights in safetensors files; pickled ones are not read"
    elif fault == "activation":
        change(folder / "2_Dense" / "config.json", activation_function="custom.Evil")
        expected = "activation_function: 'custom.Evil': expected torch's class for one of identity"
    elif fault == "dense":
        change(folder / "2_Dense" / "config.json", out_features=1 << 20)
        expected = "linear.weight: [8, 16]: expected shape [1048576, 16]"
    elif fault == "prefix":
        settings = {"model_type": "ColBERT", "query_prefix": "[Q] ", "similarity_fn_name": "MaxSim"}
        change(folder / "config_sentence_transformers.json", **settings)
        change(
            folder / "2_Dense" / "config.json", module_input_name="token_embeddings", module_output_name=None
        )
        del modules[1]
        expected = "query_prefix: '[Q] ': expected a token of tokenizer.json"
    elif fault == "similarity":
        change(folder / "config_sentence_transformers.json", similarity_fn_name="evil")
        expected = "similarity_fn_name: 'evil': expected one of cosine, dot, euclidean, manhattan"
    elif fault == "empty":
        folder = tmp_path
        expected = "1 models here: st; expected the folder of one model"
    (tmp_path / "st" / "modules.json").write_text(json.dumps(modules))
    return folder, expected


@pytest.mark.parametrize(
    "fault",
    [
        *("no head", "code", "elsewhere", "two networks", "two models", "auto_map", "sparse", "pickle"),
        *("activation", "dense", "prefix", "similarity", "empty", "kinds", "architectures"),
    ],
)
def test_invalid_checkpoint_is_refused_with_one_line(network, tmp_path, fault, capfd):
    folder, expected = broken(tmp_path, network, fault)
    capfd.readouterr()

    with pytest.raises(AptoolError) as error:
        load_any(folder, kind="cross-encoder" if fault == "no head" else "auto")

    assert expected in str(error.value)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "ran").exists()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("length", ["64", -64, 2, True, float("nan")])
def test_maximum_length_without_room_for_a_text_is_refused(network, tmp_path, length):
    # With two special tokens alone, all texts would have equal scores.
    shutil.copytree(network, tmp_path / "bert")
    change(tmp_path / "bert" / "tokenizer_config.json", model_max_length=length)
    with pytest.raises(InputError, match=r"model_max_length: .*: expected a number of tokens from 3"):
        load_any(tmp_path / "bert")


def test_similarity_of_another_type_is_refused(network, tmp_path):
    sentence_encoder(network, tmp_path / "st", pooling("mean"))
    change(tmp_path / "st" / "config_sentence_transformers.json", similarity_fn_name=[[]])
    with pytest.raises(InputError, match=r"similarity_fn_name: .*expected one of cosine"):
        load_any(tmp_path / "st")


def raise_token_type(document):
    document["post_processor"]["pair"][-1]["SpecialToken"]["type_id"] = 2


def raise_special_token(document):
    for special in document["post_processor"]["special_tokens"].values():
        special["ids"] = [10_000]


def raise_word(document):
    document["model"]["vocab"][next(reversed(document["model"]["vocab"]))] = 10_000


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        (raise_token_type, "token type 2; expected types below 2"),
        (raise_special_token, "token id 10000; expected ids below"),
        (raise_word, "token id 10000; expected ids below"),
    ],
)
def test_token_without_embedding_is_refused(network, tmp_path, damage, expected):
    shutil.copytree(network, tmp_path / "bert")
    path = tmp_path / "bert" / "tokenizer.json"
    document = json.loads(path.read_text())
    damage(document)
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=rf"tokenizer\.json: {expected}"):
        load_any(tmp_path / "bert")


def test_maximum_length_of_special_tokens_alone_is_refused(network, tmp_path):
    sentence_encoder(network, tmp_path / "st", pooling("mean"))
    change(tmp_path / "st" / "sentence_bert_config.json", max_seq_length=2)
    with pytest.raises(InputError, match="max_seq_length: 2: expected a number of tokens from 3, special"):
        load_any(tmp_path / "st")


def test_weightedmean_without_the_prompt_is_refused(network, tmp_path):
    mode = pooling("weightedmean", include_prompt=False)
    sentence_encoder(network, tmp_path / "st", mode, prompts=PROMPTS)
    with pytest.raises(InputError, match="weightedmean of texts without their prompts; expected another"):
        load_any(tmp_path / "st")

    plain = sentence_encoder(network, tmp_path / "plain", mode)
    torch.testing.assert_close(scored(tmp_path / "plain"), embedded_scores(plain), atol=1e-5, rtol=1e-5)


def test_three_labels_are_refused(network, tmp_path):
    cross_encoder(network, tmp_path / "nli", 3)

    with pytest.raises(InputError, match="num_labels: 3: expected 1 or 2"):
        load_any(tmp_path / "nli")


def test_missing_folder_is_not_looked_up_on_the_hub(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    for name in ("mine/none", "models/none", "none", "./a/b"):
        with pytest.raises(AptoolError, match="folder not found; expected a model"):
            load_any(name)
    with pytest.raises(InputError, match="expected a model on the hub"):
        load_any("nobody-here/none")


def test_a_pair_is_truncated_longest_first():
    from tokenizers import Tokenizer, models, pre_tokenizers

    from aptool.models.transformer import longest_first

    tokenizer = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    lengths = np.array([(q, a) for q in range(1, 12) for a in range(1, 12)])
    for room in range(2, 14):
        tokenizer.enable_truncation(room, strategy="longest_first")
        encoded = [tokenizer.encode("a " * q, "a " * a).sequence_ids for q, a in lengths]
        expected = [(ids.count(0), ids.count(1)) for ids in encoded]
        actual = np.stack(longest_first(lengths[:, 0], lengths[:, 1], room), 1)
        assert actual.tolist() == [list(lengths) for lengths in expected]
