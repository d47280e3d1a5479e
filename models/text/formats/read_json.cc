// Reads a tokenizer.json. All that would change ids or text and is not known is refused by its name.
#include <algorithm>
#include <set>
#include <unordered_map>

#include "framework/base/error.h"
#include "framework/io/checksum.h"
#include "framework/io/json.h"
#include "framework/io/utf8.h"
#include "models/text/formats/description.h"
#include "models/text/formats/json_names.h"
#include "models/text/patterns/patterns.h"

namespace weft::text {
namespace {

using io::Json;

constexpr size_t kMostSteps = 16;          // published files have up to 5 steps in a list
constexpr size_t kLongestText = 64 << 10;  // bytes

/// An object whose fields are read by name; finish() refuses the fields that nobody read.
class Object {
 public:
  Object(const Json& json, std::string file, std::string path)
      : json_(json), file_(std::move(file)), path_(std::move(path)) {
    WEFT_CHECK(json.is_object(), where(), " is ", shown(json), "; need an object");
  }
  std::string field(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }
  const std::string& file() const { return file_; }
  std::string where() const { return str_cat(file_, ": ", path_.empty() ? "the text" : path_); }

  /// Null if the field is absent or null.
  const Json* find(const std::string& key) {
    seen_.insert(key);
    const auto i = json_.find(key);
    return i == json_.end() || i->is_null() ? nullptr : &*i;
  }
  const Json& need(const std::string& key) {
    const Json* j = find(key);
    WEFT_CHECK(j, file_, ": ", field(key), " is missing");
    return *j;
  }
  Object object(const std::string& key) { return {need(key), file_, field(key)}; }
  std::string text(const std::string& key, const char* absent = nullptr) {
    const Json* j = absent ? find(key) : &need(key);
    if (!j) return absent;
    WEFT_CHECK(j->is_string(), file_, ": ", field(key), " is ", shown(*j), "; need a text");
    const std::string& text = j->get_ref<const std::string&>();
    WEFT_CHECK(text.size() <= kLongestText, file_, ": ", field(key), " has ", text.size(), " bytes; need at most ",
               kLongestText);
    return text;
  }
  bool flag(const std::string& key, bool absent) {
    const Json* j = find(key);
    WEFT_CHECK(!j || j->is_boolean(), file_, ": ", field(key), " is ", shown(*j), "; need true or false");
    return j ? j->get<bool>() : absent;
  }
  int64_t whole(const std::string& key, int64_t most) {
    const Json& j = need(key);
    WEFT_CHECK(j.is_number_integer() && j.get<int64_t>() >= 0 && j.get<int64_t>() <= most, file_, ": ", field(key),
               " is ", shown(j), "; need 0 to ", most);
    return j.get<int64_t>();
  }
  /// One of `names`, as its index.
  template <size_t N>
  size_t choice(const std::string& key, const char* const (&names)[N], const char* absent = nullptr) {
    const std::string value = text(key, absent);
    std::string need;
    for (size_t i = 0; i < N; ++i) {
      if (value == names[i]) return i;
      need += str_cat(i == 0 ? "" : i + 1 == N ? " or " : ", ", names[i]);
    }
    WEFT_CHECK_AS(kUnimplemented, false, file_, ": ", field(key), " is '", value.substr(0, 60), "'; not known; need ",
                  need);
    return N;
  }
  /// Marks fields that change nothing here.
  void inert(std::initializer_list<const char*> keys) {
    for (const char* k : keys) seen_.insert(k);
  }
  void finish() const {
    for (const auto& [key, value] : json_.items())
      WEFT_CHECK_AS(kUnimplemented, seen_.count(key) || value.is_null(), file_, ": ", field(key.substr(0, 60)), " is ",
                    shown(value), "; not known");
  }

 private:
  static std::string shown(const Json& j) {
    std::string s = io::write_json(j);
    if (s.size() > 60)
      s = str_cat(j.is_object() ? "an object" : j.is_array() ? "a list" : "a text", " of ", s.size(), " bytes");
    return s;
  }
  const Json& json_;
  std::string file_, path_;
  std::set<std::string> seen_;
};

/// Calls read(object) for a step: the value itself, or the members of a Sequence, whose list is `list`.
template <class Read>
void each_step(const Json& json, const std::string& file, const std::string& path, const char* list, Read&& read,
               int depth = 0) {
  Object o(json, file, path);
  if (o.text("type") != "Sequence") return read(o);
  WEFT_CHECK(depth < 2, o.where(), " is nested deeper than 2");
  const Json& steps = o.need(list);
  WEFT_CHECK(steps.is_array() && steps.size() <= kMostSteps, file, ": ", o.field(list),
             " is no list of steps; need one of at most ", kMostSteps);
  for (size_t i = 0; i < steps.size(); ++i)
    each_step(steps[i], file, str_cat(path, "[", i, "]"), list, read, depth + 1);
  o.finish();
}
template <class Read>
void each_step(Object& root, const char* key, const char* list, Read&& read) {
  if (const Json* j = root.find(key)) each_step(*j, root.file(), key, list, read);
}

/// {"String": ...} or {"Regex": ...}; the second sets `regex`.
std::string pattern_of(Object& o, const char* key, bool* regex) {
  Object p = o.object(key);
  *regex = p.find("Regex") != nullptr;
  std::string out = p.text(*regex ? "Regex" : "String");
  p.finish();
  return out;
}

/// Replace of a normaliser and of a decoder: a text, and the text that replaces it.
template <class Step>
void read_replace(Object& o, Step* s) {
  bool regex = false;
  s->from = pattern_of(o, "pattern", &regex);
  s->to = o.text("content");
  WEFT_CHECK_AS(kUnimplemented, !regex && !s->from.empty(), o.file(), ": ", o.field("pattern"),
                regex ? " is a regular expression" : " is empty", "; need a text");
}

std::string one_character(Object& o, const char* key, const char* absent = nullptr) {
  std::string c = o.text(key, absent);
  WEFT_CHECK(!c.empty() && io::code_point(c).size == c.size(), o.file(), ": ", o.field(key), " is '", c.substr(0, 60),
             "'; need one character");
  return c;
}

Prepend prepend_of(Object& o) {
  const bool prefix = o.flag("add_prefix_space", true);  // old files have this member
  return static_cast<Prepend>(o.choice("prepend_scheme", kPrepends, prefix ? "always" : "never"));
}

void read_normalizer(Object& root, Description* d) {
  each_step(root, "normalizer", "normalizers", [&](Object& o) {
    NormalStep s{static_cast<NormalStep::Kind>(o.choice("type", kNormalTypes)), {}, {}};
    if (s.kind == NormalStep::Kind::kPrepend) s.to = o.text("prepend");
    if (s.kind == NormalStep::Kind::kReplace) read_replace(o, &s);
    if (s.kind == NormalStep::Kind::kStrip) s.left = o.flag("strip_left", true), s.right = o.flag("strip_right", true);
    o.finish();
    d->normal.push_back(std::move(s));
  });
}

void read_pre_tokenizer(Object& root, Description* d) {
  each_step(root, "pre_tokenizer", "pretokenizers", [&](Object& o) {
    constexpr const char* kTypes[] = {"Split", "Digits", "ByteLevel", "Metaspace"};
    WEFT_CHECK_AS(kUnimplemented, !d->byte_level, o.where(), " follows ByteLevel; need ByteLevel last");
    SplitStep s{};
    switch (o.choice("type", kTypes)) {
      case 0: {
        bool regex = false;
        s.pattern = pattern_of(o, "pattern", &regex);
        s.kind = regex ? SplitStep::Kind::kPattern : SplitStep::Kind::kLiteral;
        WEFT_CHECK(!s.pattern.empty(), o.file(), ": ", o.field("pattern"), " is empty; need a text");
        s.behavior = static_cast<Behavior>(o.choice("behavior", kBehaviors));
        s.invert = o.flag("invert", false);
        break;
      }
      case 1:
        s.kind = SplitStep::Kind::kDigits;
        s.behavior = o.flag("individual_digits", false) ? Behavior::kIsolated : Behavior::kContiguous;
        break;
      case 2:
        s.kind = SplitStep::Kind::kByteLevel;
        s.prefix_space = o.flag("add_prefix_space", true);
        s.use_regex = o.flag("use_regex", true);
        o.inert({"trim_offsets"});
        d->byte_level = true;
        break;
      default:
        s.kind = SplitStep::Kind::kMetaspace;
        s.pattern = one_character(o, "replacement", "▁");
        s.prepend = prepend_of(o);
        s.split = o.flag("split", true);
        o.inert({"str_rep"});
    }
    o.finish();
    d->split.push_back(std::move(s));
  });
}

void read_decoder(Object& root, Description* d) {
  root.need("decoder");
  each_step(root, "decoder", "decoders", [&](Object& o) {
    DecodeStep s{static_cast<DecodeStep::Kind>(o.choice("type", kDecodeTypes)), {}, {}};
    switch (s.kind) {
      case DecodeStep::Kind::kByteLevel:
        o.inert({"add_prefix_space", "trim_offsets", "use_regex"});
        break;
      case DecodeStep::Kind::kByteFallback:
      case DecodeStep::Kind::kFuse:
        break;
      case DecodeStep::Kind::kStrip:
        s.from = one_character(o, "content");
        s.start = o.whole("start", 1 << 20);
        s.stop = o.whole("stop", 1 << 20);
        break;
      case DecodeStep::Kind::kReplace:
        read_replace(o, &s);
        break;
      case DecodeStep::Kind::kMetaspace:
        s.from = one_character(o, "replacement", "▁");
        s.drop_first = prepend_of(o) != Prepend::kNever;
        o.inert({"str_rep", "split"});
        break;
    }
    o.finish();
    d->decode.push_back(std::move(s));
  });
}

using Ids = std::unordered_map<std::string_view, int32_t>;

/// Both forms of a merge: "a b", and ["a", "b"] for tokens with spaces.
void read_merges(Object& model, const Ids& ids, Description* d) {
  const Json& merges = model.need("merges");
  WEFT_CHECK(merges.is_array(), d->where, ": model.merges is no list; need a list");
  d->merges.reserve(merges.size());
  std::string made;
  for (size_t i = 0; i < merges.size(); ++i) {
    std::string_view left, right;
    const Json& m = merges[i];
    if (m.is_string()) {
      const std::string_view both = m.get_ref<const std::string&>();
      const size_t space = both.find(' ');
      if (space != both.npos && both.find(' ', space + 1) == both.npos)
        left = both.substr(0, space), right = both.substr(space + 1);
    } else if (m.is_array() && m.size() == 2 && m[0].is_string() && m[1].is_string()) {
      left = m[0].get_ref<const std::string&>(), right = m[1].get_ref<const std::string&>();
    }
    WEFT_CHECK(!left.empty() && !right.empty(), d->where, ": model.merges[", i, "] is ",
               io::write_json(m).substr(0, 60), "; need two tokens");
    made.assign(left).append(right);
    const auto id = [&](std::string_view token) {
      const auto at = ids.find(token);
      WEFT_CHECK(at != ids.end(), d->where, ": model.merges[", i, "] has the token '", std::string(token.substr(0, 60)),
                 "', which model.vocab does not have");
      return at->second;
    };
    d->merges.push_back({id(left), id(right), id(made), static_cast<uint32_t>(i)});
  }
}

void read_model(Object& root, size_t added, Description* d, Ids* ids) {
  Object o = root.object("model");
  constexpr const char* kTypes[] = {"BPE"};
  o.choice("type", kTypes, "BPE");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    WEFT_CHECK_AS(kUnimplemented, o.text(key, "").empty(), d->where, ": model.", key, " is '", o.text(key, ""),
                  "'; need none");
  const Json* dropout = o.find("dropout");
  WEFT_CHECK_AS(kUnimplemented, !dropout || (dropout->is_number() && dropout->get<double>() == 0), d->where,
                ": model.dropout is ", dropout ? io::write_json(*dropout).substr(0, 60) : "", "; need null");
  d->fuse_unk = o.flag("fuse_unk", false);
  d->byte_fallback = o.flag("byte_fallback", false);
  d->ignore_merges = o.flag("ignore_merges", false);
  const Json& vocab = o.need("vocab");
  WEFT_CHECK(vocab.is_object(), d->where, ": model.vocab is no object; need {token: id}");
  const int64_t most = static_cast<int64_t>(vocab.size() + added) * 2 + 1024;
  ids->reserve(vocab.size());
  for (const auto& [token, id] : vocab.items()) {
    WEFT_CHECK(id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() < most, d->where,
               ": model.vocab['", token.substr(0, 60), "'] is ", io::write_json(id).substr(0, 60), "; need 0 to ",
               most - 1, " with ", vocab.size(), " tokens");
    const auto i = static_cast<size_t>(id.get<int64_t>());
    if (i >= d->tokens.size()) d->tokens.resize(std::max(i + 1, vocab.size()));
    WEFT_CHECK(d->tokens[i].empty() && !token.empty(), d->where, ": model.vocab has two tokens of id ", i, ": '",
               d->tokens[i].substr(0, 60), "' and '", token.substr(0, 60), "'; need different ids");
    d->tokens[i] = token;
  }
  for (size_t i = 0; i < d->tokens.size(); ++i)
    if (!d->tokens[i].empty()) ids->emplace(d->tokens[i], static_cast<int32_t>(i));
  if (const std::string unk = o.text("unk_token", ""); !unk.empty()) {
    const auto at = ids->find(unk);
    WEFT_CHECK(at != ids->end(), d->where, ": model.unk_token is '", unk.substr(0, 60),
               "', which model.vocab does not have");
    d->unk = at->second;
  }
  read_merges(o, *ids, d);
  o.finish();
}

void read_added(Object& root, Description* d) {
  const Json* added = root.find("added_tokens");
  WEFT_CHECK(!added || added->is_array(), d->where, ": added_tokens is no list; need a list");
  WEFT_CHECK(!added || added->size() <= kMostAdded, d->where, ": has ", added->size(), " added tokens; need at most ",
             kMostAdded);
  for (size_t i = 0; added && i < added->size(); ++i) {
    Object o((*added)[i], d->where, str_cat("added_tokens[", i, "]"));
    AddedToken t;
    t.content = o.text("content");
    t.id = static_cast<int32_t>(o.whole("id", (1 << 30)));
    t.special = o.flag("special", false);
    t.normalized = o.flag("normalized", !t.special);
    t.lstrip = o.flag("lstrip", false);
    t.rstrip = o.flag("rstrip", false);
    t.single_word = o.flag("single_word", false);
    o.finish();
    d->added.push_back(std::move(t));
  }
}

/// The ids of added tokens agree with the vocabulary, are within reach of it, and are different.
void check_added(const Description& d, const Ids& ids) {
  const auto most = static_cast<int64_t>(d.tokens.size() + d.added.size()) * 2 + 1024;
  std::unordered_map<int32_t, const std::string*> seen;
  for (const AddedToken& t : d.added) {
    const auto in_vocab = ids.find(t.content);
    WEFT_CHECK(in_vocab == ids.end() || in_vocab->second == t.id, d.where, ": the added token '",
               t.content.substr(0, 60), "' has id ", t.id, "; model.vocab gives it ",
               in_vocab == ids.end() ? 0 : in_vocab->second);
    const auto i = static_cast<size_t>(t.id);
    WEFT_CHECK(t.id < most, d.where, ": the added token '", t.content.substr(0, 60), "' has id ", t.id,
               "; need less than ", most);
    const bool free = i >= d.tokens.size() || d.tokens[i].empty() || d.tokens[i] == t.content;
    const auto [at, is_new] = seen.emplace(t.id, &t.content);
    WEFT_CHECK(free && is_new, d.where, ": id ", t.id, " belongs to '",
               (free ? *at->second : d.tokens[i]).substr(0, 60), "' and to the added token '", t.content.substr(0, 60),
               "'; need different ids");
  }
}

/// TemplateProcessing's `single`: ids before and after the text.
void read_post_processor(Object& root, Description* d) {
  each_step(root, "post_processor", "processors", [&](Object& o) {
    constexpr const char* kTypes[] = {"TemplateProcessing", "ByteLevel"};
    if (o.choice("type", kTypes) == 1) {
      o.inert({"add_prefix_space", "trim_offsets", "use_regex"});
      return o.finish();
    }
    o.inert({"pair"});
    std::unordered_map<std::string, std::vector<int32_t>> tokens;
    o.object("special_tokens");
    for (const auto& [name, value] : o.need("special_tokens").items()) {
      Object token(value, d->where, str_cat(o.field("special_tokens"), ".", name.substr(0, 60)));
      token.inert({"id", "tokens"});
      const Json& ids = token.need("ids");
      WEFT_CHECK(ids.is_array() && ids.size() <= 64, d->where, ": ", token.field("ids"),
                 " is no list of at most 64 ids");
      for (const Json& id : ids) {
        WEFT_CHECK(id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() < (1 << 30), d->where, ": ",
                   token.field("ids"), " has ", io::write_json(id).substr(0, 60), "; need an id");
        tokens[name].push_back(static_cast<int32_t>(id.get<int64_t>()));
      }
      token.finish();
    }
    const Json& single = o.need("single");
    WEFT_CHECK(single.is_array() && single.size() <= 64, d->where, ": ", o.field("single"),
               " is no list of at most 64 parts");
    int texts = 0;
    for (size_t i = 0; i < single.size(); ++i) {
      Object part(single[i], d->where, str_cat(o.field("single"), "[", i, "]"));
      if (part.find("Sequence")) {
        ++texts;
      } else {
        Object token = part.object("SpecialToken");
        const auto at = tokens.find(token.text("id"));
        WEFT_CHECK(at != tokens.end(), token.where(), ".id is '", token.text("id").substr(0, 60),
                   "', which special_tokens does not have");
        std::vector<int32_t>& side = texts ? d->after : d->before;
        side.insert(side.end(), at->second.begin(), at->second.end());
        token.inert({"type_id"});
        token.finish();
      }
      part.finish();
    }
    WEFT_CHECK(texts == 1, d->where, ": ", o.field("single"), " has ", texts, " texts; need one");
    o.finish();
  });
}

/// The name of the pattern, for FileTokenizer::name().
std::string style_of(const Description& d) {
  for (const SplitStep& s : d.split) {
    if (s.kind == SplitStep::Kind::kPattern)
      if (const Pattern* p = find_pattern(s.pattern)) return p->name;
    if (s.kind == SplitStep::Kind::kByteLevel && s.use_regex) return gpt2_pattern().name;
  }
  return d.byte_level ? "bpe" : "spm";
}

}  // namespace

Description read_tokenizer_json(std::string_view text, const std::string& where) {
  // Before the text becomes objects of a hundred times the size.
  constexpr std::string_view kAdded = "\"content\"";
  size_t added = 0;
  for (size_t at = 0; (at = text.find(kAdded, at)) != text.npos; at += kAdded.size()) ++added;
  WEFT_CHECK(added <= kMostAdded, where, ": has ", added, " added tokens; need at most ", kMostAdded);
  const Json json = io::parse_json(text, where);
  Object root(json, where, "");
  Description d;
  d.where = where;
  const std::string version = root.text("version", "1.0");
  WEFT_CHECK_AS(kUnimplemented, version == "1.0", where, ": version is '", version.substr(0, 60), "'; need 1.0");
  root.inert({"truncation", "padding"});  // members for batches
  read_added(root, &d);
  read_normalizer(root, &d);
  read_pre_tokenizer(root, &d);
  Ids ids;
  read_model(root, d.added.size(), &d, &ids);
  check_added(d, ids);
  read_post_processor(root, &d);
  read_decoder(root, &d);
  root.finish();
  d.style = style_of(d);
  d.hash = io::checksum(text);
  return d;
}

}  // namespace weft::text
