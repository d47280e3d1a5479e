#!/usr/bin/env python3
"""Writes fixtures/tokenizers: one tokenizer.json of each style, trained with `tokenizers`, and hashes of its ids.

    pip install tokenizers xxhash; python models/testing/hf/make_tokenizers.py

tokenizers_test makes the same texts from texts.json and the seed. A block of 100 texts has one XXH3 of all ids (each
text: their count, then the ids, as i32) and one of the decoded texts.
"""
import gzip
import json
import pathlib
import struct

import tokenizers
import xxhash
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parents[3]
OUT = pathlib.Path(__file__).resolve().parent / "fixtures" / "tokenizers"
SEED, TEXTS, BLOCK, ENTRIES = 1, 100_000, 100, 2000

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = CONTRACTIONS + ("|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+"
                         "|\\s+(?!\\S)|\\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")

# Texts are joined from these; "U+A-B" is a random character of the range.
FRAGMENTS = [
    " ", " ", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\r", "\t", " \t ", "\v", "\f", "\x1c", "\x00", "\x7f",
    "\u00a0", "\u3000", "\u200b", "\u2028", "\u0085", "\u180e", "\u1680", "\ufeff",
    "'s", "'S", "'t", "'re", "'RE", "'ve", "'ll", "'Ll", "'d", "'m", "'\u017f", "'l", "'", "''", "n't", "\u2019s",
    "a", "I", "x", "the", "The", "THE", "king", "love", "thou", "lord", "good", "Hamlet", "sweet", "words", "iPhone",
    "0", "1", "12", "123", "1234", "31415926535", "3.14", "1,000", "\u0663", "\u00bd", "\u2167", "\u0967\u0968",
    ".", ",", "!", "?!", "...", "--", "\u2014", "(", ")", "[]", "{}", "<", ">", "<>", "#", "@", "/", "\\", "_", "__",
    "=", "==", "+", "*", "&&", "||", "$", "%", "^", "~", "`", "\"", ":", ";", "://", "</s", "<|", "|>", "<0x0A>",
    "caf\u00e9", "cafe\u0301", "\u00e9", "e\u0301", "a\u0323\u0302", "\u1ead", "\u0301", "\u1e69", "s\u0323\u0307",
    "\ud55c\uae00", "\u1112\u1161\u11ab", "\uac00", "\u3042\u308a\u304c\u3068\u3046", "\u6f22\u5b57", "\uff21",
    "\ufb01", "\u212b", "\u00c5", "A\u030a", "\u2581", "\u2581\u2581", "\u00df", "\u0130", "\u01c5", "na\u00efve",
    "\u0440\u0443\u0441\u0441\u043a\u0438\u0439", "\u03b5\u03bb\u03bb", "\u05e9\u05dc\u05d5\u05dd",
    "\u0645\u0631\u062d\u0628\u0627", "\u0939\u093f\u0928\u094d\u0926\u0940", "\u0e44\u0e17\u0e22",
    "\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f44d\U0001f3fd", "\u2764\ufe0f", "\U0001d54f",
    "U+20-7E", "U+20-7E", "U+20-7E", "U+61-7A", "U+61-7A", "U+A0-24F", "U+300-36F", "U+391-3C9", "U+410-44F",
    "U+5D0-5EA", "U+905-939", "U+1E00-1EF9", "U+2010-2027", "U+2200-22FF", "U+3041-3096", "U+4E00-9FA5",
    "U+AC00-D7A3", "U+1F600-1F64F", "U+1-1F",
]


class Random:
    """SplitMix64."""

    def __init__(self, seed):
        self.state = seed

    def __call__(self, below):
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        z = self.state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        return (z ^ z >> 31) % below


def text_of(random):
    out = ""
    for _ in range(1 + random(16)):
        fragment = FRAGMENTS[random(len(FRAGMENTS))]
        if fragment.startswith("U+"):
            low, high = (int(x, 16) for x in fragment[2:].split("-"))
            fragment = chr(low + random(high - low + 1))
        out += fragment
    return out


def byte_level(pattern=None, **model):
    t = Tokenizer(models.BPE(**model))
    if pattern:
        t.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        ])
    else:
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    return t


def train(t, corpus, special, **options):
    t.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=ENTRIES, special_tokens=special, show_progress=False,
                                                      **options))
    return t


def bos(t, token):
    t.post_processor = processors.TemplateProcessing(
        single=f"{token} $A", pair=f"{token} $A {token} $B", special_tokens=[(token, t.token_to_id(token))])


def gpt2(corpus):
    return train(byte_level(), corpus, ["<|endoftext|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def llama3(corpus):
    """A tokenizer with tokens that merges do not make; ignore_merges finds them."""
    t = train(byte_level(LLAMA3), corpus, [], initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    j = json.loads(t.to_str())
    for i, token in enumerate(["Ġdefinitely", "unmergeable", "\u010a\u010a\u010a", "12"]):
        j["model"]["vocab"].setdefault(token, len(j["model"]["vocab"]))
    j["model"]["ignore_merges"] = True
    t = Tokenizer.from_str(json.dumps(j))
    t.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"])
    bos(t, "<|begin_of_text|>")
    return t


def qwen(corpus):
    t = byte_level(QWEN2)
    t.normalizer = normalizers.NFC()
    train(t, corpus, [], initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    t.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    t.add_tokens([tokenizers.AddedToken("<think>", normalized=False), tokenizers.AddedToken("\u1ead", normalized=True),
                  tokenizers.AddedToken("king", single_word=True, normalized=False),
                  tokenizers.AddedToken("<>", lstrip=True, normalized=False),
                  tokenizers.AddedToken("sweet", rstrip=True, normalized=False)])
    return t


def spm(corpus):
    byte_tokens = [f"<0x{b:02X}>" for b in range(256)]
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    # Words are the units of training; without a pre-tokenizer a text is one piece, which merges do not leave.
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    t.train_from_iterator(corpus.splitlines(), trainers.BpeTrainer(
        vocab_size=ENTRIES, special_tokens=["<unk>", "<s>", "</s>"] + byte_tokens, show_progress=False,
        limit_alphabet=120))
    j = json.loads(t.to_str())
    j["pre_tokenizer"] = None
    j["added_tokens"] = [a for a in j["added_tokens"] if a["content"] not in byte_tokens]
    # Llama 2 has runs of spaces.
    for token, pair in (("▁▁", ["▁", "▁"]), ("▁▁▁▁", ["▁▁", "▁▁"])):
        if token not in j["model"]["vocab"]:
            j["model"]["vocab"][token] = len(j["model"]["vocab"])
            j["model"]["merges"].append(pair)
    t = Tokenizer.from_str(json.dumps(j))
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    bos(t, "<s>")
    return t


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    corpus = gzip.decompress((ROOT / "models/data/corpus/shakespeare.txt.gz").read_bytes()).decode()[:1_500_000]
    random = Random(SEED)
    texts = [text_of(random) for _ in range(TEXTS)]
    # Texts of other scripts are trained too; odd characters stay rare.
    more = corpus + "\n".join(texts[:3000])
    (OUT / "texts.json").write_text(json.dumps({"seed": SEED, "texts": TEXTS, "block": BLOCK, "fragments": FRAGMENTS},
                                               ensure_ascii=True) + "\n")
    for make in (gpt2, llama3, qwen, spm):
        source = make(more if make is spm else [more[i:i + 10000] for i in range(0, len(more), 10000)])
        text = json.dumps(json.loads(source.to_str()), ensure_ascii=False, separators=(",", ":"))
        (OUT / f"{make.__name__}.json").write_text(text)
        t = Tokenizer.from_str(text)
        plain = Tokenizer.from_str(text)
        plain.encode_special_tokens = True  # plain text has no special tokens
        hashes = b""
        for i in range(0, TEXTS, BLOCK):
            ids, decoded = xxhash.xxh3_64(), xxhash.xxh3_64()
            for e in plain.encode_batch(texts[i:i + BLOCK], add_special_tokens=False):
                ids.update(struct.pack(f"<{len(e.ids) + 1}i", len(e.ids), *e.ids))
                decoded.update(t.decode(e.ids, skip_special_tokens=False).encode())
            hashes += struct.pack("<QQ", ids.intdigest(), decoded.intdigest())
        (OUT / f"{make.__name__}.hashes").write_bytes(hashes)
        print(make.__name__, t.get_vocab_size(), len(text))


if __name__ == "__main__":
    main()
