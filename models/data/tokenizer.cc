#include "models/data/tokenizer.h"

#include <algorithm>

#include "framework/base/error.h"

namespace weft::data {

std::vector<int32_t> Tokenizer::encode(std::span<const Segment> parts, bool) const {
  std::string joined;
  for (const Segment& p : parts) joined += p.text;
  return encode(joined);
}

std::vector<int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids(text.size());
  for (size_t i = 0; i < text.size(); ++i) ids[i] = static_cast<unsigned char>(text[i]);
  return ids;
}

void ByteTokenizer::encode_parts(std::string_view text, size_t part_bytes, const IdSink& sink) const {
  for (size_t n; !text.empty(); text.remove_prefix(n)) {
    n = std::min(text.size(), std::max<size_t>(part_bytes, 1));
    sink(encode(text.substr(0, n)));
  }
}

std::string ByteTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text(ids.size(), '\0');
  for (size_t i = 0; i < ids.size(); ++i) {
    WEFT_CHECK_AS(kOutOfRange, ids[i] >= 0 && ids[i] < 256, "decode: got token ", ids[i], "; need 0 to 255");
    text[i] = static_cast<char>(ids[i]);
  }
  return text;
}

std::shared_ptr<const Tokenizer> make_tokenizer(const std::string& name) {
  WEFT_CHECK_AS(kNotFound, name == "bytes", "tokenizer: got '", name, "'; need bytes");
  return std::make_shared<ByteTokenizer>();
}

}  // namespace weft::data
