// Tokenizer: converts text to token ids and back. A new tokenizer is a subclass and a name in make_tokenizer.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::data {

/// Gets the ids of a text in parts.
using IdSink = std::function<void(std::span<const int32_t>)>;

/// A part of a prompt. `special`: names of special tokens in it are those tokens (the template's own text); else they
/// are plain text (the user's).
struct Segment {
  std::string text;
  bool special = false;
};

/// Immutable and thread-safe.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// Identifies the exact mapping (for a trained tokenizer, with a hash of its tables). Prepared tokens are stored
  /// under this name.
  virtual std::string name() const = 0;
  /// Ids are 0 to vocab_size() - 1.
  virtual int64_t vocab_size() const = 0;
  /// Accepts any bytes.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  /// The joined text of `parts`. `add_special`: with before() and other tokens that belong around a text.
  virtual std::vector<int32_t> encode(std::span<const Segment> parts, bool add_special) const;
  /// Passes encode() of a text of any length to `sink`, in parts of about `part_bytes` bytes of text.
  virtual void encode_parts(std::string_view text, size_t part_bytes, const IdSink& sink) const = 0;
  /// The bytes of the ids. Throws OutOfRange for an id outside the vocabulary. A prefix of ids may end inside a UTF-8
  /// character.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  /// The bytes of ids that follow others: of a text that is decoded in parts.
  virtual std::string decode_continued(std::span<const int32_t> ids) const { return decode(ids); }
  /// decode() without special tokens.
  virtual std::string decode_plain(std::span<const int32_t> ids) const { return decode(ids); }
  /// The ids that belong before a text.
  virtual std::span<const int32_t> before() const { return {}; }
  /// The id that ends each document, or -1 if there is none.
  virtual int32_t end_of_text() const { return -1; }
};

/// The ids are the bytes of the text. Decoding restores any text exactly.
class ByteTokenizer final : public Tokenizer {
 public:
  using Tokenizer::encode;
  std::string name() const override { return "bytes"; }
  int64_t vocab_size() const override { return 256; }
  std::vector<int32_t> encode(std::string_view text) const override;
  void encode_parts(std::string_view text, size_t part_bytes, const IdSink& sink) const override;
  std::string decode(std::span<const int32_t> ids) const override;
};

/// The tokenizer of this name: "bytes". Throws NotFound, listing the names, for any other name.
std::shared_ptr<const Tokenizer> make_tokenizer(const std::string& name);

}  // namespace weft::data
