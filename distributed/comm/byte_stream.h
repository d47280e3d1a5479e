// Numbers and texts as bytes, for messages between processes of one job.
#pragma once
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "framework/base/error.h"

namespace weft::dist::internal {

/// Appends to `bytes`, a container of char.
template <class Bytes>
class ByteWriter {
 public:
  template <class T>
  void put(T x) {
    static_assert(std::is_trivially_copyable_v<T>);
    append({reinterpret_cast<const char*>(&x), sizeof x});
  }
  /// A text with its length.
  void put_text(std::string_view text) {
    put(static_cast<uint64_t>(text.size()));
    append(text);
  }
  void append(std::string_view text) { bytes.insert(bytes.end(), text.begin(), text.end()); }

  Bytes bytes;
};

/// Reads the bytes of a ByteWriter. Throws kDataLoss, "`source` is malformed", if there are too few bytes.
class ByteReader {
 public:
  ByteReader(std::string_view bytes, const char* source) : bytes_(bytes), source_(source) {}

  template <class T>
  T get() {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_same_v<T, bool>);
    T x;
    std::memcpy(&x, take(sizeof x).data(), sizeof x);
    return x;
  }
  template <class T>
  T get_below(T limit) {
    const T x = get<T>();
    check(x < limit);
    return x;
  }
  std::string text() { return std::string(take(get<uint64_t>())); }
  /// The next `n` bytes.
  std::string_view take(uint64_t n) {
    check(n <= bytes_.size());
    const std::string_view taken = bytes_.substr(0, n);
    bytes_.remove_prefix(n);
    return taken;
  }
  size_t left() const { return bytes_.size(); }
  void check(bool right) const { WEFT_CHECK_AS(kDataLoss, right, source_, " is malformed"); }

 private:
  std::string_view bytes_;
  const char* source_;
};

}  // namespace weft::dist::internal
