#include "framework/io/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace weft::io {

struct Checksum::State {
  XXH3_state_t state;
};

uint64_t checksum(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

Checksum::Checksum() : state_(new State) { XXH3_64bits_reset(&state_->state); }
Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;
Checksum::~Checksum() = default;
void Checksum::update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(&state_->state, bytes.data(), bytes.size());
}
uint64_t Checksum::value() const { return XXH3_64bits_digest(&state_->state); }

std::string hex64(uint64_t value) {
  std::string out(16, '0');
  for (int i = 15; i >= 0; --i, value >>= 4) out[i] = "0123456789abcdef"[value & 15];
  return out;
}

}  // namespace weft::io
