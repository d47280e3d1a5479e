// gzip in memory, with a limit on the expanded size.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace weft::io {

/// A gzip stream without time or name: the same input gives the same bytes. level 1 (fast) to 9 (small).
std::string gzip_compress(std::string_view bytes, int level = 6);

/// Inflates a gzip stream. Throws DataLoss on damage or extra bytes, ResourceExhausted above `max_bytes`. `what` names
/// the data in messages.
std::string gzip_decompress(std::string_view bytes, int64_t max_bytes, std::string_view what);

}  // namespace weft::io
