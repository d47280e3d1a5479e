// Raw deflate streams and CRC-32, as in zip archives.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace weft::io {

/// Inflates a raw deflate stream of exactly `size` bytes. Throws DataLoss on damage or another size; `what` names the
/// data in messages. A size that no stream of this length can have is refused before memory is allocated.
std::string inflate_raw(std::string_view bytes, int64_t size, std::string_view what);

/// The CRC-32 of zip and PNG.
uint32_t crc32_of(std::string_view bytes);

}  // namespace weft::io
