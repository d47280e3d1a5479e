// Tokenizer: text to token ids and back. Bytes are the first; a subword tokenizer is another subclass and a name in
// make_tokenizer.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::data {

/// Immutable; safe to use from several threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// Names the exact mapping (a trained one includes a hash of its tables): prepared tokens are kept under it.
  virtual std::string name() const = 0;
  /// Ids are 0 to vocab_size() - 1.
  virtual int64_t vocab_size() const = 0;
  /// Any bytes are accepted. Long texts arrive in pieces cut after a line end.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  /// The bytes of the ids; throws OutOfRange on an id outside the vocabulary. A prefix of ids may end inside a UTF-8
  /// character.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  /// The id put after each document, or -1 for none.
  virtual int32_t end_of_text() const { return -1; }
};

/// Id = byte; any text round-trips.
class ByteTokenizer final : public Tokenizer {
 public:
  std::string name() const override { return "bytes"; }
  int64_t vocab_size() const override { return 256; }
  std::vector<int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int32_t> ids) const override;
};

/// "bytes"; throws NotFound, listing the names, on anything else.
std::shared_ptr<const Tokenizer> make_tokenizer(const std::string& name);

}  // namespace weft::data
