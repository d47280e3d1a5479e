// FileTokenizer: the byte-pair tokenizers of Hugging Face and GGUF, with the ids of the library `tokenizers`. Any bytes
// are encoded: bytes that are not UTF-8 are pieces of their own.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/data/tokenizer.h"

namespace weft::text {

struct Description;
struct Parts;

using data::Segment;

/// Immutable and thread-safe.
class FileTokenizer final : public data::Tokenizer {
 public:
  /// A tokenizer.json, a folder that contains one, or a GGUF file. `pre` names the pattern of a GGUF file that does not
  /// name one that is known. Throws Error "PATH: ..." for anything that would change ids and is not known.
  static std::shared_ptr<const FileTokenizer> open(const std::string& path, const std::string& pre = "");
  explicit FileTokenizer(Description description);
  ~FileTokenizer() override;

  /// "PATTERN-HASH": the name of the pattern, and a hash of the file.
  std::string name() const override;
  /// The largest id and one; ids between may be unused.
  int64_t vocab_size() const override;
  /// Plain text: no special token is parsed, none is added.
  std::vector<int32_t> encode(std::string_view text) const override;
  /// The joined text of `parts`. `add_special`: with the tokens that the file's template puts around a text.
  std::vector<int32_t> encode(std::span<const Segment> parts, bool add_special) const override;
  void encode_parts(std::string_view text, size_t part_bytes, const data::IdSink& sink) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  std::string decode_continued(std::span<const int32_t> ids) const override;
  /// The same without special tokens.
  std::string decode_plain(std::span<const int32_t> ids) const override;
  int32_t end_of_text() const override;

  /// The id of a token, as the file writes it.
  std::optional<int32_t> id_of(std::string_view token) const;
  /// The token of an id, as the file writes it; empty for an unused id. Throws OutOfRange outside the vocabulary.
  std::string token(int32_t id) const;
  bool is_special(int32_t id) const;
  /// The ids that the file's template puts before and after a text.
  std::span<const int32_t> before() const override;
  std::span<const int32_t> after() const;
  /// Lines of "field value", for people.
  std::string describe() const;

  /// A place up to `most` where the text can be cut: encode() of both parts is encode() of the whole, if the second
  /// part is encoded as a continuation. 0 if no place is known.
  size_t cut(std::string_view text, size_t most) const;
  /// encode() of a text whose beginning was cut off by cut().
  std::vector<int32_t> encode_continued(std::string_view text) const;

 private:
  std::unique_ptr<const Parts> parts_;
};

/// The public name, as in text::Tokenizer::open(path).
using Tokenizer = FileTokenizer;

/// The tokenizer of a program's flag: FileTokenizer::open(), or bytes for an empty path.
std::shared_ptr<const data::Tokenizer> open_or_bytes(const std::string& path, const std::string& pre = "");

}  // namespace weft::text
