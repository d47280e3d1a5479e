// gzip in memory, with a bound on what a small file may expand to.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace weft::io {

/// A gzip stream with no time or name in it: the same input gives the same bytes. level 1 (fast) to 9 (small).
std::string gzip_compress(std::string_view bytes, int level = 6);

/// Inflates a gzip stream; throws DataLoss on damage or leftover bytes, ResourceExhausted beyond `max_bytes`. `what`
/// names the data in the message.
std::string gzip_decompress(std::string_view bytes, int64_t max_bytes, std::string_view what);

}  // namespace weft::io
