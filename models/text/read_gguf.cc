// Reads the tokenizer of a GGUF file: "gpt2" (merges, with the pattern that a name stands for) and "llama"
// (SentencePiece: merges by score).
#include <algorithm>
#include <unordered_map>

#include "framework/base/error.h"
#include "framework/io/checksum.h"
#include "framework/io/gguf.h"
#include "models/text/bytes_as_text.h"
#include "models/text/description.h"
#include "models/text/patterns.h"

namespace weft::text {
namespace {

enum TokenType : int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

/// The names of `tokenizer.ggml.pre`.
struct Pre {
  const char* names;    // "|a|b|"
  const char* pattern;  // of the table of patterns
  bool digits;          // digits are split, one by one, before
  bool llama3;          // whole pieces are found in the vocabulary; BOS is added unless the file says no
};
constexpr Pre kPres[] = {
    {"|gpt-2|gpt2|phi-2|jina-es|jina-de|gigachat|jina-v2-es|jina-v2-de|a.x-4.0|mellum|modern-bert|roberta-bpe|", "gpt2",
     false, false},
    {"|llama-bpe|llama3|llama-v3|smaug-bpe|falcon3|", "llama3", false, true},
    {"|qwen2|deepseek-r1-qwen|kormo|stablelm2|hunyuan|", "qwen2", false, false},
    {"|qwen35|", "qwen35", false, false},
    {"|smollm|starcoder|refact|command-r|codeshell|exaone|minerva-7b|", "gpt2", true, false},
    {"|tekken|", "tekken", false, true},
};
constexpr const char* kDeepseek = "|deepseek-llm|";

// The three expressions of deepseek-llm, as llama.cpp has them.
constexpr const char* kDeepseekPatterns[] = {
    "[\r\n]",
    "\\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-"
    "ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼι"
    "ῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-"
    "𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+",
    "\\s?[!-/:-~！-／：-～‘-‟　-。]+",
    "\\s+$",
    "[一-龥ࠀ-一가-퟿]+",
};

void add_step(Description* d, const std::string& expression) {
  SplitStep s{};
  s.kind = SplitStep::Kind::kPattern;
  s.pattern = expression;
  d->split.push_back(std::move(s));
}

void add_digits(Description* d, Behavior behavior) {
  SplitStep s{};
  s.kind = SplitStep::Kind::kDigits;
  s.behavior = behavior;
  d->split.push_back(std::move(s));
}

/// Steps of the pre-tokenizer for a name; false for an unknown one. Sets whether llama.cpp treats it as Llama 3.
bool set_pre(const std::string& pre, Description* d, bool* llama3) {
  const std::string key = "|" + pre + "|";
  d->byte_level = true;
  if (kDeepseek == key) {
    for (const char* p : kDeepseekPatterns) add_step(d, p);
    add_digits(d, Behavior::kContiguous);
    d->style = "deepseek";
  } else {
    const Pre* found = nullptr;
    for (const Pre& p : kPres)
      if (pre.find('|') == pre.npos && std::string_view(p.names).find(key) != std::string_view::npos) found = &p;
    if (!found) return false;
    if (found->digits) add_digits(d, Behavior::kIsolated);
    for (const Pattern& p : patterns())
      if (found->pattern == std::string_view(p.name)) {
        add_step(d, p.expression);
        break;
      }
    d->style = found->pattern;
    *llama3 = found->llama3;
  }
  SplitStep s{};
  s.kind = SplitStep::Kind::kByteLevel;
  s.use_regex = false;
  d->split.push_back(std::move(s));
  return true;
}

std::string known_pres() {
  std::string out;
  for (const Pre& p : kPres) {
    const std::string_view first = std::string_view(p.names).substr(1);
    out += str_cat(out.empty() ? "" : ", ", std::string(first.substr(0, first.find('|'))));
  }
  return out + ", smollm, deepseek-llm";
}

using Ids = std::unordered_map<std::string_view, int32_t>;

void read_merges(const io::GgufFile& f, const Ids& ids, Description* d) {
  const std::vector<std::string_view> merges = f.texts("tokenizer.ggml.merges");
  WEFT_CHECK(!merges.empty(), d->where, ": tokenizer.ggml.merges is missing");
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

/// Each token that two others make. Equal scores are equal ranks, so that the left one goes first.
void merge_by_score(const std::vector<double>& scores, const std::vector<int64_t>& types, const Ids& ids,
                    Description* d) {
  std::vector<double> order(scores);
  std::sort(order.begin(), order.end(), std::greater<>());
  order.erase(std::unique(order.begin(), order.end()), order.end());
  for (size_t i = 0; i < d->tokens.size(); ++i) {
    if (types[i] != kNormal) continue;
    const std::string_view token = d->tokens[i];
    const auto rank = std::lower_bound(order.begin(), order.end(), scores[i], std::greater<>()) - order.begin();
    for (size_t cut = 1; cut < token.size(); ++cut) {
      if ((static_cast<unsigned char>(token[cut]) & 0xC0) == 0x80) continue;
      const auto left = ids.find(token.substr(0, cut)), right = ids.find(token.substr(cut));
      if (left == ids.end() || right == ids.end()) continue;
      d->merges.push_back({left->second, right->second, static_cast<int32_t>(i), static_cast<uint32_t>(rank)});
    }
  }
}

void set_spm(const io::GgufFile& f, Description* d) {
  const bool prefix = f.boolean("tokenizer.ggml.add_space_prefix").value_or(true);
  if (prefix) d->normal.push_back({NormalStep::Kind::kPrepend, "", "▁"});
  d->normal.push_back({NormalStep::Kind::kReplace, " ", "▁"});
  d->decode = {{DecodeStep::Kind::kReplace, "▁", " "},
               {DecodeStep::Kind::kByteFallback, {}, {}},
               {DecodeStep::Kind::kFuse, {}, {}}};
  if (prefix) d->decode.push_back({DecodeStep::Kind::kStrip, " ", {}, 1, 0});
  d->byte_fallback = d->fuse_unk = true;
  d->style = "spm";
}

}  // namespace

Description read_gguf_tokenizer(const std::string& path, const std::string& pre_given) {
  const io::GgufFile f(path);
  Description d;
  d.where = path;
  const std::string model(f.text("tokenizer.ggml.model").value_or(""));
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
    WEFT_CHECK(valid_length(t) == t.size(), path, ": tokenizer.ggml.tokens[", i, "] is not UTF-8");
    const auto id = static_cast<int32_t>(i);
    if (types[i] == kControl || types[i] == kUserDefined) {
      if (!t.empty()) d.added.push_back({std::string(t), id, types[i] == kControl, false, false, false, false});
      // Text makes an added token only as a whole.
      if (model == "gpt2" && types[i] == kUserDefined) d.tokens[i] = t;
      continue;
    }
    if (types[i] == kUnused) continue;
    if (types[i] == kUnknown) d.unk = id;
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
    d.decode = {{DecodeStep::Kind::kByteLevel, {}, {}}};
    for (size_t i = 0; i < d.tokens.size(); ++i)
      if (!d.tokens[i].empty()) ids.emplace(d.tokens[i], static_cast<int32_t>(i));
    read_merges(f, ids, &d);
  } else {
    WEFT_CHECK(pre_given.empty(), path, ": --pre names a pattern, and tokenizer.ggml.model llama has none; drop it");
    set_spm(f, &d);
    merge_by_score(scores, types, ids, &d);
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
