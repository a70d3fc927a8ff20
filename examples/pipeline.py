"""The whole method in one page: rationale -> steps -> codes -> traces -> loss -> generation -> evaluation.

``python examples/pipeline.py`` trains a random model of two layers in less than a minute. With an argument such as
``bundled:smollm2-135m-instruct`` it fine-tunes a pretrained one, which takes far longer on a CPU.
"""

import sys

import torch
from sklearn.feature_extraction.text import HashingVectorizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import cirf
from cirf.tasks.benchmarks.made import MADE_COIN_FLIP
from cirf.tasks.loading import generated


def coin_flips(split, count):
    """Questions such as "A coin is heads up. Noah flips the coin. Is the coin still heads up?" with worked solutions."""
    options = generated.settle(MADE_COIN_FLIP, {"min_people": 1, "max_people": 2})
    return generated.draw(MADE_COIN_FLIP, "made_coin_flip", split, seed=1, count=count, options=options)


def tiny_model(texts):
    """A Llama of two layers with random weights, and a byte-level tokenizer trained on the texts."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer, core.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    settings = {"vocab_size": 600, "special_tokens": ["<|end|>"], "initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}
    core.train_from_iterator(texts, trainers.BpeTrainer(**settings, show_progress=False))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|end|>", pad_token="<|end|>")
    layers = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), tie_word_embeddings=True, **layers)), tokenizer


def word_counts(texts):
    """Vectors of texts without a pretrained model [n x 64]."""
    return HashingVectorizer(n_features=64, alternate_sign=False).transform(texts).toarray()


def main(name="tiny"):
    rows, test_rows = coin_flips("train", 48), coin_flips("test", 32)
    if name == "tiny":
        model, tokenizer = tiny_model([row.question for row in rows])
        embedder, training = word_counts, {"epochs": 60, "batch_size": 48, "learning_rate": 8e-3, "warmup_steps": 5}
    else:
        model, tokenizer = cirf.load(name, dtype="float32")
        embedder, training = "bundled:all-minilm-l6-v2", {"learning_rate": 1e-4}

    # rationale -> steps
    steps = cirf.cut_rationales(rows)
    print(rows[0].question, *steps[0], sep="\n  ")

    # steps -> vectors -> codes: vectors without their rationale's mean, quantised by a balanced VQ-VAE
    vectors = cirf.embed_steps(steps, embedder)
    width = model.get_input_embeddings().embedding_dim
    codebook, codes = cirf.fit_codebook(vectors, width, size=4, hidden=64, batch_size=32, learning_rate=1e-2)
    print("\ncodes  ", cirf.label_codes(steps, codes))

    # codes, and what each step produced -> traces
    traces = cirf.write_traces(rows, steps, codes)
    print("trace  ", traces[0]["completion"])

    # traces -> loss: one new token a code, then next-token cross-entropy on the traces
    cirf.extend_model(model, tokenizer, codebook, traces)
    model, history = cirf.train(model, tokenizer, traces, adaptation="full", **training)
    print(f"loss    {history.losses[0]['loss']:.2f} -> {history.losses[-1]['loss']:.2f} in {history.updates} updates")

    # generation
    [answer] = cirf.generate(model, tokenizer, test_rows[:1])
    print(f"\n{test_rows[0].question}\n  {answer.steps} -> {answer.answer}")
    # evaluation
    score = cirf.evaluate(model, tokenizer, test_rows)
    low, high = (f"{bound:.0%}" for bound in score.interval)
    print(f"\n{score.accuracy:.0%} of {score.n} new questions (95 % interval {low} to {high}), {score.tokens:.1f} tokens each")


if __name__ == "__main__":
    main(*sys.argv[1:])
