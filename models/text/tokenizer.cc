#include "models/text/tokenizer.h"

#include <algorithm>

#include "framework/base/error.h"
#include "framework/io/checksum.h"
#include "framework/io/file.h"
#include "framework/io/gguf.h"
#include "framework/io/json.h"
#include "models/text/formats/json_names.h"
#include "models/text/formats/parts.h"

namespace weft::text {
namespace {

/// The end token of the usual names, for a tokenizer.json alone.
constexpr const char* kEnds[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"};

int32_t end_id(const Description& d, const std::string& path) {
  const auto special = [&](const std::string& content) {
    for (const AddedToken& t : d.added)
      if (t.content == content) return t.id;
    return -1;
  };
  if (const std::string named = read_settings(path).tokens["eos_token"]; !named.empty()) return special(named);
  for (const char* name : kEnds)
    if (const int32_t id = special(name); id >= 0) return id;
  return -1;
}

}  // namespace

std::vector<std::string> named_ids(std::vector<std::string> tokens, const std::vector<AddedToken>& added) {
  for (const AddedToken& t : added) {
    const auto i = static_cast<size_t>(t.id);
    if (i >= tokens.size()) tokens.resize(i + 1);
    tokens[i] = t.content;
  }
  return tokens;
}

Description read_tokenizer(const std::string& path, const std::string& pre) {
  WEFT_CHECK_AS(kNotFound, io::exists(path), path, ": no such file; need tokenizer.json or a .gguf file");
  const std::string file = io::is_folder(path) ? path + "/tokenizer.json" : path;
  WEFT_CHECK_AS(kNotFound, io::exists(file), path, ": there is no tokenizer.json; need one, or a .gguf file");
  if (io::is_gguf(file)) return read_gguf_tokenizer(file, pre);
  WEFT_CHECK(pre.empty(), file, ": --pre names the pattern of a GGUF file; drop it");
  Description d = read_tokenizer_json(io::read_file(file, kMostJson), file);
  d.end_of_text = end_id(d, file);
  return d;
}

std::shared_ptr<const FileTokenizer> FileTokenizer::open(const std::string& path, const std::string& pre) {
  return std::make_shared<FileTokenizer>(read_tokenizer(path, pre));
}

FileTokenizer::FileTokenizer(Description description) : parts_(std::make_unique<Parts>(std::move(description))) {}
FileTokenizer::~FileTokenizer() = default;

std::string FileTokenizer::name() const {
  // The end token is part of a prepared text.
  const Description& d = parts_->d;
  return str_cat(d.style, "-", io::hex64(io::checksum(str_cat(io::hex64(d.hash), " ", d.end_of_text))));
}

int64_t FileTokenizer::vocab_size() const { return parts_->vocab; }
int32_t FileTokenizer::end_of_text() const { return parts_->d.end_of_text; }
std::span<const int32_t> FileTokenizer::before() const { return parts_->d.before; }
std::span<const int32_t> FileTokenizer::after() const { return parts_->d.after; }

std::vector<int32_t> FileTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> out;
  text::encode(*parts_, text, {}, false, out);
  return out;
}

std::vector<int32_t> FileTokenizer::encode_continued(std::string_view text) const {
  std::vector<int32_t> out;
  text::encode(*parts_, text, {}, true, out);
  return out;
}

std::vector<int32_t> FileTokenizer::encode(std::span<const Segment> segments, bool add_special) const {
  std::string text;
  Ranges specials;
  for (const Segment& s : segments) {
    if (s.special && !s.text.empty()) {
      if (!specials.empty() && specials.back().second == text.size())
        specials.back().second += s.text.size();
      else
        specials.emplace_back(text.size(), text.size() + s.text.size());
    }
    text += s.text;
  }
  std::vector<int32_t> out;
  if (add_special) out = parts_->d.before;
  text::encode(*parts_, text, specials, false, out);
  if (add_special) out.insert(out.end(), parts_->d.after.begin(), parts_->d.after.end());
  return out;
}

size_t FileTokenizer::cut(std::string_view text, size_t most) const { return text::cut(*parts_, text, most); }

void FileTokenizer::encode_parts(std::string_view text, size_t part_bytes, const data::IdSink& sink) const {
  std::vector<int32_t> ids;
  for (bool continued = false; !text.empty(); continued = true) {
    size_t n = text.size();
    // Without a place to cut, the part grows.
    for (size_t most = std::max<size_t>(part_bytes, 16); most < text.size(); most *= 2)
      if ((n = cut(text, most)) != 0) break;
    if (n == 0) n = text.size();
    ids.clear();
    text::encode(*parts_, text.substr(0, n), {}, continued, ids);
    sink(ids);
    text.remove_prefix(n);
  }
}

namespace {

std::string decoded(const Parts& p, std::span<const int32_t> ids, bool specials, bool continued) {
  std::string out;
  bool first = p.drop_first && !continued;
  for (int32_t id : ids) {
    WEFT_CHECK_AS(kOutOfRange, id >= 0 && id < p.vocab, "decode: got token ", id, "; need 0 to ", p.vocab - 1);
    const auto i = static_cast<size_t>(id);
    if (!specials && p.special[i]) continue;
    const std::string& bytes = p.bytes[i];
    if (first)
      std::copy_if(bytes.begin(), bytes.end(), std::back_inserter(out), [](char c) { return c != ' '; });
    else
      out += bytes;
    first = false;
  }
  for (const DecodeStep& s : p.joined)
    if (!continued || s.kind != DecodeStep::Kind::kStrip) decode_step(s, out);
  return out;
}

}  // namespace

std::string FileTokenizer::decode(std::span<const int32_t> ids) const { return decoded(*parts_, ids, true, false); }
std::string FileTokenizer::decode_plain(std::span<const int32_t> ids) const {
  return decoded(*parts_, ids, false, false);
}
std::string FileTokenizer::decode_continued(std::span<const int32_t> ids) const {
  return decoded(*parts_, ids, true, true);
}

std::optional<int32_t> FileTokenizer::id_of(std::string_view token) const {
  const auto at = parts_->ids.find(std::string(token));
  return at == parts_->ids.end() ? std::nullopt : std::optional(at->second);
}

std::string FileTokenizer::token(int32_t id) const {
  WEFT_CHECK_AS(kOutOfRange, id >= 0 && id < parts_->vocab, "token: got id ", id, "; need 0 to ", parts_->vocab - 1);
  return parts_->names[static_cast<size_t>(id)];
}

bool FileTokenizer::is_special(int32_t id) const {
  return id >= 0 && id < parts_->vocab && parts_->special[static_cast<size_t>(id)];
}

namespace {

std::string quoted(const std::string& text) { return io::write_json(io::Json(text)); }

/// Ids with their tokens.
std::string listed(const Parts& p, std::span<const int32_t> ids) {
  constexpr size_t kMost = 24;
  std::string out;
  for (int32_t id : ids.first(std::min(ids.size(), kMost)))
    out += str_cat(out.empty() ? "" : ", ", id, " ", quoted(p.names[static_cast<size_t>(id)]));
  if (ids.size() > kMost) out += str_cat(", and ", ids.size() - kMost, " more");
  return ids.empty() ? "nothing" : out;
}

/// The units that are merged, and the treatment of characters without a token.
std::string model_of(const Parts& p) {
  const int missing = p.bpe.missing_bytes();
  if (p.d.byte_level)
    return missing == 0 ? "bytes" : str_cat("bytes; ", missing, " of 256 have no token and disappear");
  const std::string lost = p.d.unk < 0 ? "disappear" : "become " + quoted(p.names[static_cast<size_t>(p.d.unk)]);
  if (!p.d.byte_fallback) return "characters; those without a token " + lost;
  const std::string bytes = "characters; those without a token are bytes";
  return missing == 0 ? bytes
                      : str_cat(bytes, "; if one of the ", missing, " bytes without a token is in them, they ", lost);
}

/// A step of the pre-tokenizer; nothing if it only turns characters into bytes.
std::string step_of(const CompiledStep& c) {
  using Kind = SplitStep::Kind;
  const SplitStep& s = c.step;
  if (c.regex)
    return str_cat(c.known ? str_cat("pattern ", c.known->name, c.known->scan ? ", scanned" : "") : "pattern, by PCRE2",
                   ": ", c.regex->pattern());
  if (s.kind == Kind::kDigits) return s.behavior == Behavior::kContiguous ? "runs of digits" : "digits, one by one";
  if (s.kind == Kind::kLiteral) return "text " + quoted(s.pattern);
  if (s.kind != Kind::kMetaspace) return {};
  return str_cat("spaces, written ", quoted(s.pattern), s.split ? "" : ", without a split",
                 "; one is put before a text: ", kPrepends[static_cast<int>(s.prepend)]);
}

}  // namespace

std::string FileTokenizer::describe() const {
  const Parts& p = *parts_;
  constexpr const char* kCuts[] = {"nowhere", "at line ends", "before spaces", "before spaces"};
  std::vector<int32_t> special, other, end;
  for (const AddedToken& t : p.d.added) (t.special ? special : other).push_back(t.id);
  if (p.d.end_of_text >= 0) end.push_back(p.d.end_of_text);
  const auto counted = [&](std::span<const int32_t> some) {
    return some.empty() ? std::string("0") : str_cat(some.size(), ": ", listed(p, some));
  };
  std::string out = str_cat("ids ", p.vocab, "\nmerges of ", model_of(p), "\nspecial tokens ", counted(special),
                            "\nother added tokens ", counted(other), "\nend of text ", listed(p, end),
                            "\nbefore a text ", listed(p, p.d.before), "\nafter a text ", listed(p, p.d.after), "\n");
  for (const NormalStep& n : p.d.normal) {
    out += str_cat("normalised by ", kNormalTypes[static_cast<int>(n.kind)]);
    if (n.kind == NormalStep::Kind::kReplace) out += " of " + quoted(n.from);
    if (!n.to.empty()) out += str_cat(n.from.empty() ? " " : " by ", quoted(n.to));
    out += "\n";
  }
  for (const CompiledStep& c : p.steps) {
    if (c.step.kind == SplitStep::Kind::kByteLevel && c.step.prefix_space) out += "a space is put before a text\n";
    if (const std::string step = step_of(c); !step.empty()) out += str_cat("split by ", step, "\n");
  }
  return str_cat(out, "large texts are cut ", kCuts[static_cast<int>(p.cut)], "\nprepared texts are named ", name(),
                 "\n");
}

std::shared_ptr<const data::Tokenizer> open_or_bytes(const std::string& path, const std::string& pre) {
  if (!path.empty()) return FileTokenizer::open(path, pre);
  WEFT_CHECK(pre.empty(), "--pre: got '", pre, "', the pattern of a GGUF file; need the tokenizer of one");
  return data::make_tokenizer("bytes");
}

}  // namespace weft::text
