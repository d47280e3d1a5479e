// The 64-bit checksum of files and tensors: XXH3, the same value on every machine. It detects damage, not forgery.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace weft::io {

/// XXH3-64 of the bytes.
uint64_t checksum(std::span<const std::byte> bytes);
inline uint64_t checksum(std::string_view text) { return checksum(std::as_bytes(std::span(text.data(), text.size()))); }

/// The checksum of bytes that arrive in pieces.
class Checksum {
 public:
  Checksum();
  Checksum(Checksum&&) noexcept;
  Checksum& operator=(Checksum&&) noexcept;
  ~Checksum();
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text.data(), text.size()))); }
  /// Checksum of all bytes so far.
  uint64_t value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// 16 hexadecimal digits.
std::string hex64(uint64_t value);

}  // namespace weft::io
