// Writes a tokenizer.json.
#include <algorithm>
#include <unordered_set>

#include "framework/base/error.h"
#include "framework/base/one_line.h"
#include "framework/io/json.h"
#include "models/text/formats/description.h"
#include "models/text/formats/json_names.h"

namespace weft::text {
namespace {

using Json = io::OrderedJson;

template <size_t N, class Enum>
const char* name_of(const char* const (&names)[N], Enum value) {
  return names[static_cast<size_t>(value)];
}

/// No step, one, or a Sequence whose list is `list`.
template <class Step>
Json steps_of(const std::vector<Step>& steps, const char* list, Json (*write)(const Step&)) {
  Json all = Json::array();
  for (const Step& s : steps) all.push_back(write(s));
  if (all.size() == 1) return all[0];
  return all.empty() ? Json() : Json{{"type", "Sequence"}, {list, all}};
}

Json normal_step(const NormalStep& s) {
  Json j{{"type", name_of(kNormalTypes, s.kind)}};
  if (s.kind == NormalStep::Kind::kPrepend) j["prepend"] = s.to;
  if (s.kind == NormalStep::Kind::kReplace) j["pattern"] = {{"String", s.from}}, j["content"] = s.to;
  if (s.kind == NormalStep::Kind::kStrip) j["strip_left"] = s.left, j["strip_right"] = s.right;
  return j;
}

Json byte_level(bool prefix_space, bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", prefix_space}, {"trim_offsets", false}, {"use_regex", use_regex}};
}

Json split_step(const SplitStep& s) {
  switch (s.kind) {
    case SplitStep::Kind::kPattern:
    case SplitStep::Kind::kLiteral:
      return {{"type", "Split"},
              {"pattern", {{s.kind == SplitStep::Kind::kPattern ? "Regex" : "String", s.pattern}}},
              {"behavior", name_of(kBehaviors, s.behavior)},
              {"invert", s.invert}};
    case SplitStep::Kind::kDigits:
      return {{"type", "Digits"}, {"individual_digits", s.behavior == Behavior::kIsolated}};
    case SplitStep::Kind::kByteLevel:
      return byte_level(s.prefix_space, s.use_regex);
    case SplitStep::Kind::kMetaspace:
      return {{"type", "Metaspace"},
              {"replacement", s.pattern},
              {"prepend_scheme", name_of(kPrepends, s.prepend)},
              {"split", s.split}};
  }
  return {};
}

Json decode_step_json(const DecodeStep& s) {
  if (s.kind == DecodeStep::Kind::kByteLevel) return byte_level(false, false);
  Json j{{"type", name_of(kDecodeTypes, s.kind)}};
  if (s.kind == DecodeStep::Kind::kStrip) j["content"] = s.from, j["start"] = s.start, j["stop"] = s.stop;
  if (s.kind == DecodeStep::Kind::kReplace) j["pattern"] = {{"String", s.from}}, j["content"] = s.to;
  if (s.kind == DecodeStep::Kind::kMetaspace) {
    j["replacement"] = s.from;
    j["prepend_scheme"] = name_of(kPrepends, s.drop_first ? Prepend::kAlways : Prepend::kNever);
    j["split"] = true;
  }
  return j;
}

/// TemplateProcessing of the ids around a text.
Json template_of(const Description& d, const std::vector<std::string>& names) {
  if (d.before.empty() && d.after.empty()) return {};
  Json special = Json::object();
  const auto sequence = [&](const char* text, int type) {
    Json parts = Json::array();
    for (const std::vector<int32_t>* side : {&d.before, &d.after}) {
      if (side == &d.after) parts.push_back({{"Sequence", {{"id", text}, {"type_id", type}}}});
      for (const int32_t id : *side) {
        const std::string name = static_cast<size_t>(id) < names.size() ? names[static_cast<size_t>(id)] : "";
        WEFT_CHECK_AS(kUnimplemented, !name.empty(), d.where, ": the token ", id,
                      ", which is put around a text, has no name; a tokenizer.json needs one");
        parts.push_back({{"SpecialToken", {{"id", name}, {"type_id", type}}}});
        special[name] = {{"id", name}, {"ids", {id}}, {"tokens", {name}}};
      }
    }
    return parts;
  };
  const Json single = sequence("A", 0);
  Json pair = single;
  for (Json& part : sequence("B", 1)) pair.push_back(std::move(part));
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special}};
}

/// Strings "a b", which all versions of `tokenizers` read; pairs if a token has a space.
Json merges_of(const Description& d, const std::vector<std::string>& names) {
  std::vector<Merge> merges = d.merges;  // merges of equal rank that make one token are together
  std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    return std::tie(a.rank, a.made, a.left, a.right) < std::tie(b.rank, b.made, b.left, b.right);
  });
  const auto token = [&](int32_t id) -> const std::string& { return names[static_cast<size_t>(id)]; };
  const bool pairs = std::any_of(merges.begin(), merges.end(), [&](const Merge& m) {
    return token(m.left).find(' ') != std::string::npos || token(m.right).find(' ') != std::string::npos;
  });
  Json all = Json::array();
  for (const Merge& m : merges)
    all.push_back(pairs ? Json::array({token(m.left), token(m.right)}) : Json(token(m.left) + " " + token(m.right)));
  return all;
}

}  // namespace

std::string write_tokenizer_json(const Description& d) {
  const std::vector<std::string> names = named_ids(d.tokens, d.added);
  Json added = Json::array();
  for (const AddedToken& t : d.added)
    added.push_back({{"id", t.id},
                     {"content", t.content},
                     {"single_word", t.single_word},
                     {"lstrip", t.lstrip},
                     {"rstrip", t.rstrip},
                     {"normalized", t.normalized},
                     {"special", t.special}});
  Json vocab = Json::object();
  std::unordered_set<std::string_view> seen;
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i].empty()) continue;
    WEFT_CHECK_AS(kUnimplemented, seen.insert(names[i]).second, d.where, ": two tokens are '", one_line(names[i], 60),
                  "', one of them with id ", i, "; a tokenizer.json needs different tokens");
    // operator[] would look through all tokens.
    vocab.get_ref<Json::object_t&>().emplace_back(names[i], i);
  }
  const Json unk = d.unk < 0 ? Json() : Json(names[static_cast<size_t>(d.unk)]);
  const Json json{{"version", "1.0"},
                  {"truncation", nullptr},
                  {"padding", nullptr},
                  {"added_tokens", added},
                  {"normalizer", steps_of(d.normal, "normalizers", normal_step)},
                  {"pre_tokenizer", steps_of(d.split, "pretokenizers", split_step)},
                  {"post_processor", template_of(d, names)},
                  {"decoder", steps_of(d.decode, "decoders", decode_step_json)},
                  {"model",
                   {{"type", "BPE"},
                    {"dropout", nullptr},
                    {"unk_token", unk},
                    {"continuing_subword_prefix", nullptr},
                    {"end_of_word_suffix", nullptr},
                    {"fuse_unk", d.fuse_unk},
                    {"byte_fallback", d.byte_fallback},
                    {"ignore_merges", d.ignore_merges},
                    {"vocab", vocab},
                    {"merges", merges_of(d, names)}}}};
  return io::write_json(json, 2) + "\n";
}

}  // namespace weft::text
