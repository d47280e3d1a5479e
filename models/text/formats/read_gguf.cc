// Reads the tokenizer of a GGUF file: "gpt2" (merges, with the pattern that a name stands for) and "llama"
// (SentencePiece: merges by score).
#include <algorithm>
#include <unordered_map>

#include "framework/base/error.h"
#include "framework/io/checksum.h"
#include "framework/io/gguf.h"
#include "framework/io/utf8.h"
#include "models/text/formats/gguf_parts.h"
#include "models/text/patterns/patterns.h"

namespace weft::text {
namespace {

/// The names of `tokenizer.ggml.pre`, as llama.cpp knows them.
struct Pre {
  const char* names;    // "|a|b|"
  const char* pattern;  // name in the table of patterns
  bool digits;          // digits are split, one by one, before
  bool llama3;          // whole pieces are found in the vocabulary; BOS is added unless the file says no
};
constexpr Pre kPres[] = {
    {"|gpt-2|phi-2|jina-es|jina-de|jina-v2-es|jina-v2-de|gigachat|a.x-4.0|mellum|exaone4|mpt|olmo|jais|", "gpt2", false,
     false},
    {"|llama-bpe|llama3|llama-v3|falcon3|falcon-h1|pixtral|midm-2.0|lfm2|", "llama3", false, true},
    {"|smaug-bpe|dbrx|chatglm-bpe|", "llama3", false, false},
    {"|qwen2|deepseek-r1-qwen|kormo|megrez|stablelm2|", "qwen2", false, false},
    {"|qwen35|", "qwen35", false, false},
    {"|smollm|starcoder|refact|command-r|codeshell|exaone|minerva-7b|", "gpt2", true, false},
    {"|tekken|", "tekken", false, true},
};

// deepseek-llm; digits follow.
constexpr const char* kDeepseekPatterns[] = {
    "[\r\n]",
    "\\s?[A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}\\x{295}-"
    "\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-"
    "\\x{3a1}\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-"
    "\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}"
    "\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-"
    "\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}"
    "\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}\\x{1ff2}-"
    "\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}"
    "\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}"
    "\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}"
    "\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-"
    "\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}"
    "\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}"
    "\\x{1e900}-\\x{1e943}]+",
    "\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}]+",
    "\\s+$",
    "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+",
};

}  // namespace

bool set_pre(const std::string& pre, Description* d, bool* llama3) {
  using Kind = SplitStep::Kind;
  const std::string key = "|" + pre + "|";
  d->byte_level = true;
  if (pre == "deepseek-llm") {
    for (const char* p : kDeepseekPatterns) d->split.push_back({.kind = Kind::kPattern, .pattern = p});
    d->split.push_back({.kind = Kind::kDigits, .behavior = Behavior::kContiguous});
    d->style = "deepseek";
  } else {
    const Pre* found = nullptr;
    for (const Pre& p : kPres)
      if (pre.find('|') == pre.npos && std::string_view(p.names).find(key) != std::string_view::npos) found = &p;
    if (!found) return false;
    if (found->digits) d->split.push_back({.kind = Kind::kDigits, .behavior = Behavior::kIsolated});
    for (const Pattern& p : patterns())
      if (found->pattern == std::string_view(p.name)) {
        d->split.push_back({.kind = Kind::kPattern, .pattern = p.expression});
        break;
      }
    d->style = found->pattern;
    *llama3 = found->llama3;
  }
  d->split.push_back({.kind = Kind::kByteLevel, .use_regex = false});
  d->decode = {{DecodeStep::Kind::kByteLevel, {}, {}}};
  return true;
}

std::vector<std::string> pre_names() {
  std::vector<std::string> names;
  for (const Pre& p : kPres) {
    const std::string_view first = std::string_view(p.names).substr(1);
    names.emplace_back(first.substr(0, first.find('|')));
  }
  names.push_back("deepseek-llm");
  return names;
}

std::string known_pres() {
  const std::vector<std::string> names = pre_names();
  std::string out;
  for (size_t i = 0; i < names.size(); ++i) out += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  return out;
}

void set_spm(bool prefix, Description* d) {
  if (prefix) d->normal.push_back({NormalStep::Kind::kPrepend, "", "▁"});
  d->normal.push_back({NormalStep::Kind::kReplace, " ", "▁"});
  d->decode = {{DecodeStep::Kind::kReplace, "▁", " "},
               {DecodeStep::Kind::kByteFallback, {}, {}},
               {DecodeStep::Kind::kFuse, {}, {}}};
  if (prefix) d->decode.push_back({DecodeStep::Kind::kStrip, " ", {}, 1, 0});
  d->byte_fallback = d->fuse_unk = true;
  d->style = "spm";
}

namespace {

using Ids = std::unordered_map<std::string_view, int32_t>;

void read_merges(const io::GgufFile& f, const Ids& ids, Description* d) {
  const std::vector<std::string_view> merges = f.texts("tokenizer.ggml.merges");
  std::string made;
  for (size_t i = 0; i < merges.size(); ++i) {
    // A token may contain spaces; its neighbour does not begin or end with one.
    const size_t space = merges[i].find(' ', 1);
    WEFT_CHECK(space != merges[i].npos && space + 1 < merges[i].size(), d->where, ": tokenizer.ggml.merges[", i,
               "] has no two tokens");
    const auto id = [&](std::string_view token) {
      const auto at = ids.find(token);
      WEFT_CHECK(at != ids.end(), d->where, ": tokenizer.ggml.merges[", i,
                 "] has a token that is not in the vocabulary");
      return at->second;
    };
    const std::string_view left = merges[i].substr(0, space), right = merges[i].substr(space + 1);
    made.assign(left).append(right);
    d->merges.push_back({id(left), id(right), id(made), static_cast<uint32_t>(i)});
  }
}

constexpr size_t kLongestToken = 1024;  // bytes

/// Each token that two others make, tokens of bytes too. Equal scores are equal ranks, so that the left one goes first.
void merge_by_score(const std::vector<double>& scores, const std::vector<int64_t>& types, const Ids& ids,
                    const std::string& path, Description* d) {
  std::vector<double> order(scores);
  std::sort(order.begin(), order.end(), std::greater<>());
  order.erase(std::unique(order.begin(), order.end()), order.end());
  for (size_t i = 0; i < d->tokens.size(); ++i) {
    if (types[i] != kNormal && types[i] != kByte) continue;
    const std::string_view token = d->tokens[i];
    WEFT_CHECK(token.size() <= kLongestToken, path, ": token ", i, " has ", token.size(), " bytes; need at most ",
               kLongestToken);
    const auto rank = std::lower_bound(order.begin(), order.end(), scores[i], std::greater<>()) - order.begin();
    for (size_t cut = 1; cut < token.size(); ++cut) {
      if ((static_cast<unsigned char>(token[cut]) & 0xC0) == 0x80) continue;
      const auto left = ids.find(token.substr(0, cut)), right = ids.find(token.substr(cut));
      if (left == ids.end() || right == ids.end()) continue;
      d->merges.push_back({left->second, right->second, static_cast<int32_t>(i), static_cast<uint32_t>(rank)});
    }
  }
}

}  // namespace

Description read_gguf_tokenizer(const std::string& path, const std::string& pre_given) {
  const io::GgufFile f(path);
  Description d;
  d.where = path;
  const std::string model(f.text("tokenizer.ggml.model").value_or(""));
  WEFT_CHECK_AS(kNotFound, !model.empty(), path, ": has no tokenizer (tokenizer.ggml.model); need token ids: --tokens");
  WEFT_CHECK_AS(kUnimplemented, model == "gpt2" || model == "llama", path, ": tokenizer.ggml.model is '",
                model.substr(0, 60), "'; need gpt2 or llama");
  const std::vector<std::string_view> tokens = f.texts("tokenizer.ggml.tokens");
  std::vector<int64_t> types = f.integers("tokenizer.ggml.token_type");
  const std::vector<double> scores = f.numbers("tokenizer.ggml.scores");
  WEFT_CHECK(!tokens.empty(), path, ": tokenizer.ggml.tokens is missing");
  WEFT_CHECK(types.empty() || types.size() == tokens.size(), path, ": tokenizer.ggml.token_type has ", types.size(),
             " values for ", tokens.size(), " tokens");
  WEFT_CHECK(model != "llama" || scores.size() == tokens.size(), path, ": tokenizer.ggml.scores has ", scores.size(),
             " values for ", tokens.size(), " tokens");
  types.resize(tokens.size(), kNormal);
  Ids ids;
  d.tokens.resize(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    const std::string_view t = tokens[i];
    WEFT_CHECK(io::is_utf8(t), path, ": tokenizer.ggml.tokens[", i, "] is not UTF-8");
    const auto id = static_cast<int32_t>(i);
    if (types[i] == kControl || types[i] == kUserDefined) {
      WEFT_CHECK(d.added.size() < kMostAdded, path, ": has more than ", kMostAdded, " added tokens; need fewer");
      if (!t.empty()) d.added.push_back({std::string(t), id, types[i] == kControl, false, false, false, false});
      // Text makes an added token only as a whole.
      if (model == "gpt2" && types[i] == kUserDefined) d.tokens[i] = t;
      continue;
    }
    if (types[i] == kUnused) continue;
    // llama.cpp finds it in texts, too.
    if (types[i] == kUnknown) d.unk = id;
    if (types[i] == kUnknown && !t.empty()) d.added.push_back({std::string(t), id, true, false, false, false, false});
    d.tokens[i] = t;
    if (types[i] != kUnknown) ids.emplace(d.tokens[i], id);
  }
  bool llama3 = false;
  if (model == "gpt2") {
    const std::string in_file(f.text("tokenizer.ggml.pre").value_or(""));
    const std::string pre = pre_given.empty() ? in_file : pre_given;
    WEFT_CHECK_AS(kUnimplemented, set_pre(pre, &d, &llama3), path, ": tokenizer.ggml.pre is '", pre.substr(0, 60),
                  "', which stands for no known pattern; need --pre ", known_pres());
    d.ignore_merges = llama3;
    for (size_t i = 0; i < d.tokens.size(); ++i)
      if (!d.tokens[i].empty()) ids.emplace(d.tokens[i], static_cast<int32_t>(i));
    read_merges(f, ids, &d);
  } else {
    WEFT_CHECK(pre_given.empty(), path, ": --pre names a pattern, and tokenizer.ggml.model llama has none; drop it");
    set_spm(f.boolean("tokenizer.ggml.add_space_prefix").value_or(true), &d);
    merge_by_score(scores, types, ids, path, &d);
  }
  const auto token_id = [&](const char* key) {
    const int64_t id = f.integer(key).value_or(-1);
    WEFT_CHECK(id >= -1 && id < static_cast<int64_t>(tokens.size()), path, ": ", key, " is ", id, "; need 0 to ",
               tokens.size() - 1);
    return static_cast<int32_t>(id);
  };
  d.end_of_text = token_id("tokenizer.ggml.eos_token_id");
  const int32_t bos = token_id("tokenizer.ggml.bos_token_id");
  if (f.boolean("tokenizer.ggml.add_bos_token").value_or(llama3 || model == "llama") && bos >= 0) d.before = {bos};
  if (f.boolean("tokenizer.ggml.add_eos_token").value_or(false) && d.end_of_text >= 0) d.after = {d.end_of_text};
  io::Checksum hash;
  for (size_t i = 0; i < tokens.size(); ++i) hash.update(str_cat(types[i], " ", tokens[i], "\n"));
  for (const Merge& m : d.merges) hash.update(str_cat(m.left, " ", m.right, " ", m.rank, "\n"));
  hash.update(str_cat(model, " ", d.split.size(), " ", d.normal.size(), " ", d.ignore_merges));
  d.hash = hash.value();
  return d;
}

}  // namespace weft::text
