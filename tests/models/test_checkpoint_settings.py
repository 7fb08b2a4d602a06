"""Settings of checkpoints: the scores are those of sentence-transformers, or the checkpoint is refused."""

import json
import shutil

import pytest
import torch
from networks import IDS, REASON, SENTENCE_TRANSFORMERS, colbert, cross_encoder, write_with_tokenizer
from test_checkpoints import (
    ANSWERS,
    PAIRS,
    PROMPTS,
    QUESTIONS,
    change,
    dense,
    normalize,
    pooling,
    scored,
    sentence_encoder,
    static_tokenizer,
    with_mask_token,
)

from aptool.errors import InputError
from aptool.models.checkpoints import load_any

transformers = pytest.importorskip("transformers", reason=REASON)
library = pytest.importorskip("sentence_transformers", reason=SENTENCE_TRANSFORMERS)

OPTIONS, SETTINGS = "sentence_bert_config.json", "config_sentence_transformers.json"


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A sentence encoder of two layers, with prompts."""
    folder = tmp_path_factory.mktemp("encoder")
    network = with_mask_token(folder / "bert")
    sentence_encoder(network, folder / "st", pooling("mean"), prompts=PROMPTS)
    return folder / "st"


@pytest.fixture(scope="module")
def reranker(tmp_path_factory):
    """A cross-encoder with one label."""
    folder = tmp_path_factory.mktemp("reranker")
    cross_encoder(with_mask_token(folder / "bert"), folder / "ce", 1)
    return folder / "ce"


@pytest.fixture(scope="module")
def static(tmp_path_factory):
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    folder = tmp_path_factory.mktemp("static") / "static"
    torch.manual_seed(6)
    first = StaticEmbedding(static_tokenizer(), embedding_dim=6)
    layers = [dense(8)(6), normalize(8)]
    library.SentenceTransformer(modules=[first, *layers], device="cpu").save(str(folder))
    return folder


def changed(folder, target, file=OPTIONS, **entries):
    """Copy a checkpoint, and change entries of one of its files."""
    shutil.copytree(folder, target)
    path = target / file
    document = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps({**document, **entries}))
    return target


def assert_equal_to_encoder(folder):
    """The scores are those of the library, without padding."""
    model = library.SentenceTransformer(str(folder), device="cpu")
    questions = model.encode_query(list(QUESTIONS), batch_size=1)
    answers = model.encode_document(list(ANSWERS), batch_size=1)
    expected = model.similarity(questions, answers)
    torch.testing.assert_close(scored(folder), expected.float(), atol=1e-5, rtol=1e-5)


TRUNCATION = {"max_length": 3, "direction": "Left", "strategy": "LongestFirst", "stride": 0}


def assert_equal_to_reranker(folder):
    model = library.CrossEncoder(str(folder), device="cpu")
    texts = [(QUESTIONS[q], ANSWERS[a]) for q, a in PAIRS]
    expected = model.predict(texts, batch_size=1, convert_to_tensor=True)
    if expected.dim() == 2:
        expected = expected[:, 1] - expected[:, 0]
    torch.testing.assert_close(scored(folder).flatten(), expected, atol=1e-5, rtol=1e-5)


LAYERS = {"text": {"method": "forward", "method_output_name": ["hidden_states", -2]}}


@pytest.mark.parametrize(
    ("file", "entries"),
    [
        (SETTINGS, {"truncate_dim": 5}),
        (SETTINGS, {"truncate_dim": 99, "similarity_fn_name": "dot"}),
        ("tokenizer_config.json", {"truncation_side": "left", "model_max_length": 9}),
        (OPTIONS, {"tokenizer_args": {"truncation_side": "left", "model_max_length": 9}}),
        (OPTIONS, {"processor_kwargs": {"model_max_length": 9}, "max_seq_length": 30}),
        (OPTIONS, {"processing_kwargs": {"text": {"max_length": 9}}}),
        (OPTIONS, {"processing_kwargs": {"text": {"max_length": 9}, "common": {"max_length": 11}}}),
        (OPTIONS, {"processing_kwargs": {"text": {"add_special_tokens": False}}}),
        (OPTIONS, {"processing_kwargs": {"common": {"truncation": "only_first"}}, "max_seq_length": 8}),
        (OPTIONS, {"config_args": {"num_hidden_layers": 1, "hidden_act": "relu"}}),
        (OPTIONS, {"query_length": 4, "document_length": 10}),
        (OPTIONS, {"query_length": 4, "processing_kwargs": {"text": {"max_length": 9}}}),
        (OPTIONS, {"modality_config": LAYERS, "module_output_name": "token_embeddings"}),
        (OPTIONS, {"do_lower_case": True, "unpad_inputs": False}),
        # Of published networks: TinyBERT, ALBERT, DeBERTa and ModernBERT, and of text generation.
        ("config.json", {"cell": {}, "emb_size": 312, "structure": [], "pre_trained": "", "training": ""}),
        ("config.json", {"down_scale_factor": 1, "gap_size": 0, "net_structure_type": 0}),
        ("config.json", {"padding_idx": 0, "classifiers_size": [3], "position_embedding_type": "sans_pos"}),
        ("config.json", {"num_beams": 1, "top_k": 50, "bad_words_ids": None, "xla_device": True}),
    ],
)
def test_settings_of_a_sentence_encoder_are_those_of_the_library(encoder, tmp_path, file, entries):
    assert_equal_to_encoder(changed(encoder, tmp_path / "st", file, **entries))


def test_a_length_above_the_tokenizers_is_that_of_the_options(encoder, tmp_path):
    folder = changed(encoder, tmp_path / "st", max_seq_length=30)
    change(folder / "tokenizer_config.json", model_max_length=9)

    assert load_any(folder).recipe.text.max_answer_tokens == 30
    assert_equal_to_encoder(folder)


@pytest.mark.parametrize(
    ("file", "entries"),
    [
        ("tokenizer_config.json", {"truncation_side": "left", "model_max_length": 13}),
        (OPTIONS, {"processing_kwargs": {"text": {"max_length": 13}}}),
        (OPTIONS, {"processing_kwargs": {"text": {"max_length": 13, "truncation": "only_second"}}}),
        (OPTIONS, {"tokenizer_args": {"model_max_length": 13}, "query_length": 3}),
        (OPTIONS, {"config_kwargs": {"num_hidden_layers": 1}}),
        (OPTIONS, {"do_lower_case": True}),
    ],
)
def test_settings_of_a_cross_encoder_are_those_of_the_library(reranker, tmp_path, file, entries):
    assert_equal_to_reranker(changed(reranker, tmp_path / "ce", file, **entries))


@pytest.mark.parametrize(
    ("file", "entries"),
    [
        (SETTINGS, {"similarity_fn_name": "dot", "truncate_dim": 3}),
        (SETTINGS, {"similarity_fn_name": "euclidean", "prompts": PROMPTS}),
        ("tokenizer.json", {"truncation": TRUNCATION}),
    ],
)  # fmt: skip
def test_settings_of_a_static_model_are_those_of_the_library(static, tmp_path, file, entries):
    assert_equal_to_encoder(changed(static, tmp_path / "static", file, **entries))


@pytest.mark.parametrize(
    "entries",
    [
        {"processing_kwargs": {"text": {"max_length": 6}}},
        {"query_expansion": {"strategy": "min", "length": 5}, "query_length": 6, "document_length": 7},
        {"do_lower_case": True},
    ],
)
def test_settings_of_a_colbert_are_those_of_the_library(tmp_path, entries):
    colbert(with_mask_token(tmp_path / "bert"), tmp_path / "colbert", skip=["?"], prompts=PROMPTS)
    folder = changed(tmp_path / "colbert", tmp_path / "changed", **entries)
    change(folder / "tokenizer_config.json", truncation_side="left")
    model = library.MultiVectorEncoder(str(folder), device="cpu")

    questions = model.encode_query(list(QUESTIONS), batch_size=1)
    expected = model.similarity(questions, model.encode_document(list(ANSWERS), batch_size=1))

    torch.testing.assert_close(scored(folder), expected.float(), atol=2e-5, rtol=1e-5)


def test_a_limit_that_would_cut_the_added_tokens_of_a_question_is_refused(tmp_path):
    # The library sets the length of the expansion, and lets the common limit overrule it.
    colbert(with_mask_token(tmp_path / "bert"), tmp_path / "colbert", skip=["?"], prompts=PROMPTS)
    expansion = {"strategy": "fixed", "length": 12}
    limit = {"common": {"max_length": 6}}
    folder = changed(tmp_path / "colbert", tmp_path / "m", query_expansion=expansion, processing_kwargs=limit)

    with pytest.raises(InputError, match="common/max_length: 6: expected none with query_expansion"):
        load_any(folder)


def test_lower_case_is_that_of_the_library_beyond_ascii(tmp_path):
    # str.lower gives a final sigma, and would break up special tokens.
    from tokenizers import Tokenizer, normalizers, pre_tokenizers, processors
    from tokenizers.models import WordLevel

    from aptool.models.checkpoints.network import add_lowercase

    words = ["[UNK]", "[SEP]", "οδοσ", "οδος", "a"]
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.NFC(), pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A [SEP]", special_tokens=[("[SEP]", 1)])
    tokenizer.add_special_tokens(["[SEP]"])

    add_lowercase(tokenizer)

    assert tokenizer.encode("ΟΔΟΣ [SEP] A").ids == [2, 1, 4, 1]


@pytest.mark.parametrize(
    ("names", "relevant"),
    [
        (("LABEL_0", "LABEL_1"), 1),
        (("entailment", "not_entailment"), 0),
        (("not_duplicate", "duplicate"), 1),
        (("Yes", "No"), 0),
        (("irrelevant", "relevant"), 1),
        (("1", "0"), 0),
        (("good", "bad"), None),
        (("yes", "true"), None),
    ],
)
def test_the_names_of_two_labels_decide_which_one_is_relevant(tmp_path, names, relevant):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(IDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=64, initializer_range=0.3, id2label=dict(enumerate(names)),
        label2id={name: number for number, name in enumerate(names)},
    )  # fmt: skip
    folder = write_with_tokenizer(tmp_path / "ce", transformers.BertForSequenceClassification(config))
    if relevant is None:
        with pytest.raises(
            InputError, match=rf"config\.json: id2label: .*{names[0]}.*: expected one of relevant"
        ):
            load_any(folder)
        return
    model = library.CrossEncoder(str(folder), device="cpu")
    logits = model.predict([(QUESTIONS[q], ANSWERS[a]) for q, a in PAIRS], convert_to_tensor=True)

    expected = logits[:, relevant] - logits[:, 1 - relevant]

    torch.testing.assert_close(scored(folder).flatten(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("text", ["", "\u200b", "\x00\x01"])
def test_a_text_without_tokens_has_no_similarity_to_others(static, tmp_path, text):
    folder = changed(static, tmp_path / "static", SETTINGS)
    modules = json.loads((folder / "modules.json").read_text())[:1]
    (folder / "modules.json").write_text(json.dumps(modules))
    document = json.loads((folder / "tokenizer.json").read_text())
    document["normalizer"] = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                              "strip_accents": None, "lowercase": True}  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(document))
    model = load_any(folder)

    tokens = model.tokenizer.encode([text])
    states = model.ranker.encode(_ragged(tokens))

    assert model.ranker.pooling.represent(states).abs().sum() == 0


def _ragged(tokens):
    from aptool.models.ragged import Ragged

    return Ragged.of(tokens)


def head_of(tmp_path, name, **sizes):
    torch.manual_seed(0)
    network = getattr(transformers, name)
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = network.config_class(vocab_size=len(IDS), **(sizes or small))
    return write_with_tokenizer(tmp_path / "model", network(config))


QWEN = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
QWEN |= {"num_key_value_heads": 1, "head_dim": 8}
T5 = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 2}


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("BertForMaskedLM", {}),
        ("BertForNextSentencePrediction", {}),
        ("BertForQuestionAnswering", {}),
        ("BertForTokenClassification", {}),
        ("BertForPreTraining", {}),
        ("T5ForConditionalGeneration", T5),
        ("Qwen3ForCausalLM", QWEN),
    ],
)
def test_a_network_with_another_head_is_a_sentence_encoder_only_on_request(tmp_path, name, sizes):
    folder = head_of(tmp_path, name, **sizes)

    with pytest.raises(InputError, match=rf"config\.json: architectures: '{name}': .*--kind") as error:
        load_any(folder)
    assert ("causal-lm" in str(error.value)) == name.endswith("CausalLM")

    model = library.SentenceTransformer(str(folder), device="cpu")
    expected = model.similarity(
        model.encode_query(list(QUESTIONS), batch_size=1), model.encode_document(list(ANSWERS), batch_size=1)
    )
    actual = scored(folder, kind="sentence-transformers")
    torch.testing.assert_close(actual, expected.float(), atol=1e-5, rtol=1e-5)


def test_a_head_does_not_matter_where_modules_say_what_is_pooled(tmp_path):
    folder = head_of(tmp_path, "DistilBertForMaskedLM", dim=16, hidden_dim=32, n_heads=2, n_layers=1)
    sentence_encoder(folder, tmp_path / "st", pooling("cls"))
    shutil.copy(folder / "model.safetensors", tmp_path / "st" / "model.safetensors")
    change(tmp_path / "st" / "config.json", architectures=["DistilBertForMaskedLM"])

    assert_equal_to_encoder(tmp_path / "st")


MESSAGE = {"method": "forward", "method_output_name": "last_hidden_state", "format": "flat"}


@pytest.mark.parametrize(
    ("file", "entries", "expected"),
    [
        (SETTINGS, {"truncate_dim": -3}, r"truncate_dim: -3: expected a positive integer"),
        (SETTINGS, {"new_option": 1}, r"new_option: 1: expected one of __version__, model_type"),
        (SETTINGS, {"prompts": {"passage": "the "}}, r"prompts/passage: 'the ': expected the name document"),
        (SETTINGS, {"default_prompt_name": "other"}, "default_prompt_name: 'other': expected one of"),
        (OPTIONS, {"new_option": 1}, r"new_option: 1: expected a key that aptool knows"),
        (OPTIONS, {"modality_config": {"message": MESSAGE}}, r"modality_config/message: .*no chat template"),
        (OPTIONS, {"query_expansion": {"strategy": "fixed", "length": 9}}, r"query_expansion: .*null"),
        (OPTIONS, {"processing_kwargs": {"text": {"stride": 2}}}, r"processing_kwargs/text/stride: 2"),
        (OPTIONS, {"processing_kwargs": {"text": {"truncation": False}}}, "truncation: False: expected"),
        (OPTIONS, {"tokenizer_args": {"add_prefix_space": True}}, r"tokenizer_args/add_prefix_space: True"),
        (OPTIONS, {"model_args": {"dtype": "auto", "new": 1}}, r"model_args/new: 1"),
        (OPTIONS, {"config_args": {"revision": "main"}}, r"config_args/revision: 'main': expected an entry"),
        (OPTIONS, {"modality_config": {"text": {"method": "forward", "method_output_name": "pooler_output"}}},
         r"modality_config/text: .*expected last_hidden_state of forward"),
        ("1_Pooling/config.json", {"new_option": 1}, r"new_option: 1: expected one of embedding_dimension"),
        ("config.json", {"position_embedding_type": "relative_key"}, r"'relative_key': expected absolute"),
        ("config.json", {"new_option": 1}, r"config\.json: new_option: 1: expected a key that aptool knows"),
        ("adapter_config.json", {"peft_type": "LORA"}, "an adapter; expected merged weights"),
    ],
)  # fmt: skip
def test_other_settings_are_refused_in_one_line(encoder, tmp_path, file, entries, expected):
    folder = changed(encoder, tmp_path / "st", file, **entries)

    with pytest.raises(InputError, match=expected) as error:
        load_any(folder)

    assert "\n" not in str(error.value)


def test_kwargs_of_a_module_are_refused(encoder, tmp_path):
    folder = changed(encoder, tmp_path / "st")
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([{**modules[0], "kwargs": ["task"]}, *modules[1:]]))

    with pytest.raises(
        InputError, match=r"modules\.json: module 0: kwargs: \['task'\]: expected null or \[\]"
    ):
        load_any(folder)


def test_dense_of_another_feature_is_refused(network, tmp_path):
    sentence_encoder(network, tmp_path / "st", pooling("mean"), dense(8))
    change(tmp_path / "st" / "2_Dense" / "config.json", module_input_name="token_embeddings")

    with pytest.raises(
        InputError, match="module_input_name: 'token_embeddings': expected sentence_embedding"
    ):
        load_any(tmp_path / "st")


def test_an_encoder_decoder_whose_decoder_the_library_pools_is_refused(tmp_path):
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
    sizes |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    folder = head_of(tmp_path, "BartModel", max_position_embeddings=64, **sizes)

    with pytest.raises(InputError, match="model_type: 'bart': expected an encoder, or one of t5"):
        load_any(folder)


@pytest.mark.parametrize("file", [OPTIONS, SETTINGS])
def test_settings_that_the_library_would_not_read_are_refused(network, tmp_path, file):
    folder = changed(network, tmp_path / "bert", file, max_seq_length=9)

    with pytest.raises(InputError, match=r"modules\.json: file not found; expected modules\.json, without"):
        load_any(folder)
