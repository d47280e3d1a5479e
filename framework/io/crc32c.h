// CRC-32C, whose parts join: several writers of one block have its checksum without one of them reading all of it.
//
// A CRC is linear in its bytes. The *share* of some bytes of a block is the CRC, without the constants at begin and
// end, of the block with zeros for all other bytes. The constants depend on the size of the block alone, so that
//     crc32c(block) = crc32c_of_zeros(size of the block) ^ the shares of all its bytes, in any order.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace weft::io {

/// CRC-32C of the bytes, as iSCSI and ext4 have it: e3069283 for "123456789".
uint32_t crc32c(std::span<const std::byte> bytes);
inline uint32_t crc32c(std::string_view text) { return crc32c(std::as_bytes(std::span(text.data(), text.size()))); }

/// crc32c of A followed by B: `a` and `b` are the CRCs of A and B, `bytes_b` is the size of B.
uint32_t crc32c_combine(uint32_t a, uint32_t b, int64_t bytes_b);

/// crc32c of n zero bytes.
uint32_t crc32c_of_zeros(int64_t n);

/// The share of bytes in the checksum of a block, in which `following` bytes come after them.
uint32_t crc32c_share(std::span<const std::byte> bytes, int64_t following);

}  // namespace weft::io
