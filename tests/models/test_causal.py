"""Causal language models as rerankers: the scores of sentence-transformers, and one line per mistake."""

import json

import numpy as np
import pytest
import torch
from networks import REASON

import aptool
from aptool.errors import AptoolError, InputError, UsageError
from aptool.models.causal import CausalPooling
from aptool.models.checkpoints import ScoreTokens, load_any
from aptool.scoring.ranker_scorer import RankerScorer

transformers = pytest.importorskip("transformers", reason=REASON)

QUESTIONS = ("how are glacier caves formed ?", "who wrote it", "?")
ANSWERS = (
    "water carves them below the ice .",
    "it is a book of 1946 .",
    "it is a book of 1946 . " * 80,
    "",
    " a space\n",
    "\nand a line",
    "é <|im_end|> {{ document }}",
)
PAIRS = [(question, answer) for question in QUESTIONS for answer in ANSWERS]
HEAD = (
    "{%- set q = messages | selectattr('role', 'equalto', 'query') | map(attribute='content') | first -%}"
    "{%- set d = messages | selectattr('role', 'equalto', 'document') | map(attribute='content') | first -%}"
    "{%- set s = messages | selectattr('role', 'equalto', 'system') | map(attribute='content') | first"
    " | default('Judge whether the Document meets the Query') -%}"
)
TEMPLATE = (
    HEAD + "<|im_start|>system\n{{ s }}<|im_end|>\n<|im_start|>user\n"
    "<Query>: {{ q }}\n<Document>: {{ d }}<|im_end|>\n<|im_start|>assistant\n"
)
TEMPLATES = {
    "words between": TEMPLATE,
    "a line between": HEAD + "<|im_start|>{{ s }}\n{{ q }}\n{{ d }}<|im_end|>\n<|im_start|>assistant\n",
    "trimmed": HEAD + "{{ s }} query: {{ q | trim }}\ndocument: {{ d | trim }} ->",
    "document first": HEAD + "{{ s }}<|im_end|>{{ d }}<|im_end|>{{ q }}<|im_end|>yes no ?",
}
NETWORKS = ("qwen3", "llama", "gemma", "qwen2", "mistral", "gemma3_text", "phi3")


def tokenizer(template=TEMPLATE):
    """A byte-level BPE tokenizer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    library.train_from_iterator([*QUESTIONS, *ANSWERS, TEMPLATE, "yes", "no"] * 20, trainer)
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=library, pad_token=special[0], eos_token=special[2], model_max_length=128
    )
    fast.chat_template = template
    return fast


def write(folder, kind="qwen3", head="CausalLM", template=TEMPLATE, **options):
    """Write a tiny random network with a tokenizer; return the tokenizer."""
    names = {"gemma3_text": "Gemma3Text", "phi3": "Phi3"}
    name = names.get(kind, kind.capitalize())
    fast = tokenizer(template)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"num_key_value_heads": 2, "max_position_embeddings": 128, "vocab_size": len(fast)}
    sizes |= {"pad_token_id": 0} | ({} if kind in ("qwen2", "phi3") else {"head_dim": 8})
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**{**sizes, "initializer_range": 0.2, **options})
    prefix = name.removesuffix("Text") if head == "CausalLM" else name
    network = getattr(transformers, f"{prefix}For{head}")(config).eval()
    network.save_pretrained(folder)
    fast.save_pretrained(folder)
    return fast


def reranker(
    folder, kind="qwen3", template=TEMPLATE, *, false=True, transformer=None, network=None, **options
):
    """Write a folder of sentence-transformers with a module LogitScore; return its model."""
    library = pytest.importorskip("sentence_transformers", reason="compares with sentence-transformers")
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.cross_encoder.modules import LogitScore

    base = folder.with_name(f"{folder.name}-network")
    fast = write(base, kind, template=template, **network or {})
    yes, no = (fast.encode(word, add_special_tokens=False)[0] for word in ("yes", "no"))
    first = Transformer(str(base), transformer_task="text-generation", **transformer or {})
    modules = [first, LogitScore(yes, no if false else None)]
    library.CrossEncoder(modules=modules, device="cpu", **options).save_pretrained(str(folder))
    return library.CrossEncoder(str(folder), device="cpu")


def scores(model, pairs=PAIRS):
    """The scores of a list of pairs, one question per pair."""
    questions, answers = (list(texts) for texts in zip(*pairs, strict=True))
    return model.score(list(zip(questions, answers, strict=True)))


def expected(model, activation=None):
    activation = activation or torch.nn.Identity()
    return model.predict(PAIRS, batch_size=1, activation_fn=activation, show_progress_bar=False)


@pytest.mark.parametrize("kind", NETWORKS)
def test_the_scores_are_those_of_sentence_transformers(tmp_path, kind):
    model = reranker(tmp_path / "model", kind)

    actual = aptool.load(tmp_path / "model", device="cpu")

    assert actual.config["model_type"] == "causal-lm"
    np.testing.assert_allclose(scores(actual), expected(model), atol=1e-5)


@pytest.mark.parametrize("name", ["words between", "a line between", "trimmed"])
@pytest.mark.parametrize("false", [True, False])
def test_templates_and_one_token(tmp_path, name, false):
    model = reranker(tmp_path / "model", template=TEMPLATES[name], false=false)

    np.testing.assert_allclose(scores(aptool.load(tmp_path / "model")), expected(model), atol=1e-5)


def test_document_before_the_question(tmp_path):
    model = reranker(tmp_path / "model", template=TEMPLATES["document first"])

    actual = scores(aptool.load(tmp_path / "model"))

    # sentence-transformers truncates the end of the text, which is the question.
    complete = np.array([len(answer) < 100 for _, answer in PAIRS])
    np.testing.assert_allclose(actual[complete], expected(model)[complete], atol=1e-5)
    long = actual[~complete]
    assert len(np.unique(long)) == len(long)  # the question is read


def test_attention_windows(tmp_path):
    window = {"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]}
    model = reranker(tmp_path / "model", "gemma3_text", network=window)

    np.testing.assert_allclose(scores(aptool.load(tmp_path / "model")), expected(model), atol=1e-5)


def test_prompts_variables_and_lengths(tmp_path):
    template = TEMPLATE.replace("{{ s }}", "{{ s }} {{ task }}")
    transformer = {"processing_kwargs": {"chat_template": {"task": "no book"}, "text": {"max_length": 90}}}
    options = {"prompts": {"web": "yes or no ?"}, "default_prompt_name": "web"}
    model = reranker(tmp_path / "model", template=template, transformer=transformer, **options)

    loaded = aptool.load(tmp_path / "model")

    np.testing.assert_allclose(scores(loaded), expected(model), atol=1e-5)
    assert loaded._loaded.ranker.pooling.max_tokens == 90


@pytest.mark.parametrize("kind", ["qwen3", "llama", "gemma"])
@pytest.mark.parametrize("template", [TEMPLATE, None])
def test_conversions_to_a_classifier(tmp_path, kind, template):
    library = pytest.importorskip("sentence_transformers", reason="compares with sentence-transformers")
    write(tmp_path / "model", kind, "SequenceClassification", template, num_labels=1)
    model = library.CrossEncoder(str(tmp_path / "model"), device="cpu")

    actual = scores(aptool.load(tmp_path / "model"))

    # A text without tokens is an unknown token in aptool.
    rows = [index for index, (_, answer) in enumerate(PAIRS) if answer or template]
    np.testing.assert_allclose(actual[rows], expected(model, torch.nn.Sigmoid())[rows], atol=1e-5)


def test_a_plain_language_model_has_the_tokens_of_the_options(tmp_path):
    model = reranker(tmp_path / "model")

    plain = aptool.load(tmp_path / "model-network", kind="causal-lm", true_token="yes", false_token="no")
    one = aptool.load(tmp_path / "model-network", kind="causal-lm", true_token="yes")

    np.testing.assert_allclose(scores(plain), expected(model), atol=1e-5)
    assert not np.allclose(scores(one), scores(plain), atol=1e-3)
    assert plain._loaded.fingerprint != one._loaded.fingerprint


def test_a_score_does_not_depend_on_the_other_pairs(tmp_path):
    write(tmp_path / "model")
    model = load_any(tmp_path / "model", "cpu", "causal-lm", ScoreTokens("yes", "no"))
    questions = model.tokenizer.encode(QUESTIONS, role="question")
    answers = model.tokenizer.encode(ANSWERS, model.recipe.text.max_answer_tokens)
    scorer = RankerScorer(model.ranker)
    q, a = np.divmod(np.arange(len(PAIRS)), len(ANSWERS))

    together = scorer.score(questions, answers, q, a)
    alone = [scorer.score(questions, answers, q[i : i + 1], a[i : i + 1])[0] for i in range(len(PAIRS))]
    separate = scorer.score(questions.take(q), answers, np.arange(len(q)), a)

    np.testing.assert_allclose(together, alone, atol=1e-5)
    np.testing.assert_allclose(together, separate, atol=1e-5)


def test_a_shared_question_changes_no_score(tmp_path):
    write(tmp_path / "model")
    model = load_any(tmp_path / "model", "cpu", "causal-lm", ScoreTokens("yes", "no"))
    pooling = model.ranker.pooling
    assert isinstance(pooling, CausalPooling)
    from aptool.models.ragged import Ragged

    questions = Ragged.of(model.tokenizer.encode(QUESTIONS, role="question"))
    answers = Ragged.of(model.tokenizer.encode(ANSWERS, model.recipe.text.max_answer_tokens))
    q, a = np.divmod(np.arange(len(PAIRS)), len(ANSWERS))

    with torch.inference_mode():
        plain = pooling.score_pairs(questions.select(q), answers.select(a))
        shared = pooling.score_shared(questions, answers.select(a), q)

    torch.testing.assert_close(shared, plain, atol=5e-6, rtol=0)


def test_truncation_keeps_the_end_of_the_template(tmp_path):
    fast = write(tmp_path / "model")
    model = load_any(tmp_path / "model", "cpu", "causal-lm", ScoreTokens("yes"))
    limits = model.recipe.text

    answer = model.tokenizer.encode([ANSWERS[2]], limits.max_answer_tokens)
    question = model.tokenizer.encode(["why " * 500], limits.max_question_tokens, "question")

    assert fast.decode(answer.ids).endswith("<|im_end|>\n<|im_start|>assistant")
    assert fast.decode(question.ids).endswith("\n<Document>:")
    assert len(answer.ids) == limits.max_answer_tokens
    assert len(question.ids) == limits.max_question_tokens


def test_a_model_can_be_copied_and_pickled(tmp_path):
    import pickle

    reranker(tmp_path / "model")
    model = aptool.load(tmp_path / "model")

    assert np.array_equal(scores(pickle.loads(pickle.dumps(model))), scores(model))


def load_plain(folder, **options):
    return aptool.load(folder, kind="causal-lm", **{"true_token": "yes", **options})


@pytest.mark.parametrize(
    ("template", "message"),
    [
        (None, "chat_template.jinja: file not found"),
        ("", "chat_template.jinja: file not found"),
        (TEMPLATE + "{{ tone }}", "unknown variable 'tone'"),
        (TEMPLATE + "{% if %}", "a template of jinja2"),
        ("{{ messages[0].content }}", "the message of the role document is rendered 0 times"),
        (TEMPLATE + "{{ q }}", "the message of the role query is rendered 2 times"),
        (TEMPLATE + "{% if d | length > 3 %} long{% endif %}", "does not depend on"),
        ("{{ messages[0].content }}{{ messages[1].content }}", "that no token joins"),
        (TEMPLATE + "so " * 200, "the maximum length of the model"),
        (TEMPLATE + "{{ messages.__class__.__mro__ }}", "unsafe"),
        (TEMPLATE + "{{ messages.append(1) }}", "unsafe"),
        (TEMPLATE + "{{ raise_exception('no pairs') }}", "no pairs"),
        ("a" * 70_000, "a template of 70,000 characters"),
    ],
)
def test_a_wrong_template_is_one_line(tmp_path, template, message):
    write(tmp_path / "model", template=template)

    with pytest.raises(InputError) as caught:
        scores(load_plain(tmp_path / "model"))

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"true_token": "yes no"}, "'yes no' is 3 tokens"),
        ({"false_token": "yes"}, "the same as --true-token"),
        ({"true_token": None}, "expected --true-token"),
        ({"true_token": None, "false_token": "no"}, "requires a true token"),
        ({"kind": "auto"}, "requires the kind causal-lm, not auto"),
        ({"kind": "cross-encoder"}, "requires the kind causal-lm, not cross-encoder"),
    ],
)
def test_wrong_tokens_are_one_line(tmp_path, options, message):
    write(tmp_path / "model")

    with pytest.raises(AptoolError, match=message) as caught:
        aptool.load(tmp_path / "model", **{"kind": "causal-lm", "true_token": "yes", **options})

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (
            "1_LogitScore/config.json",
            {"true_token_id": 5000},
            "true_token_id: 5000: expected a token id below",
        ),
        ("1_LogitScore/config.json", {"true_token_id": None}, "true_token_id"),
        ("1_LogitScore/config.json", {"false_token_id": -1}, "false_token_id: -1"),
        ("1_LogitScore/config.json", {"module_input_name": "x"}, "module_input_name"),
        ("config_sentence_transformers.json", {"default_prompt_name": "web"}, "default_prompt_name"),
        (
            "sentence_bert_config.json",
            {"processing_kwargs": {"text": {"split": 1}}},
            "processing_kwargs/text/split",
        ),
        ("sentence_bert_config.json", {"transformer_task": "retrieval"}, "transformer_task"),
    ],
)
def test_a_wrong_folder_is_one_line(tmp_path, file, change, message):
    reranker(tmp_path / "model")
    path = tmp_path / "model" / file
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))

    with pytest.raises(InputError) as caught:
        aptool.load(tmp_path / "model")

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_tokens_for_a_folder_that_names_its_own(tmp_path):
    reranker(tmp_path / "model")

    with pytest.raises(InputError, match="the folder names its tokens"):
        load_plain(tmp_path / "model")
    with pytest.raises(UsageError, match="requires the kind causal-lm"):
        aptool.load(tmp_path / "model", true_token="yes")


def test_no_code_of_a_folder_runs(tmp_path):
    reranker(tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    map_ = {"AutoModelForCausalLM": "stolen.Network"}
    config.write_text(json.dumps({**json.loads(config.read_text()), "auto_map": map_}))
    stolen = f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Network: pass\n"
    (tmp_path / "model" / "stolen.py").write_text(stolen)

    aptool.load(tmp_path / "model")

    assert not (tmp_path / "ran").exists()


def test_a_language_model_without_a_kind_is_refused(tmp_path):
    write(tmp_path / "model")

    with pytest.raises(InputError, match=r"architectures: 'Qwen3ForCausalLM': .*--kind: causal-lm reads"):
        load_any(tmp_path / "model")
    with pytest.raises(InputError, match="a chat template; expected modules"):
        load_any(tmp_path / "model", kind="sentence-transformers")
