// Text whose bytes are marked: they come from the template or from the user.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/error.h"

namespace weft::text::jinja {

/// Bytes with a mark for each byte. All results of a template are built by append(), so marks follow their bytes.
class MarkedText {
 public:
  static constexpr size_t kMostBytes = 16 << 20, kMostParts = 1 << 18;

  MarkedText() = default;
  explicit MarkedText(std::string_view bytes, bool from_user = false) { append(bytes, from_user); }

  void append(std::string_view bytes, bool from_user) {
    if (bytes.empty()) return;
    WEFT_CHECK_AS(kResourceExhausted, bytes.size() <= kMostBytes - bytes_.size(), "got a text of more than ",
                  kMostBytes >> 20, " MiB; need a shorter text");
    if (from_user != static_cast<bool>(flips_.size() % 2)) {
      WEFT_CHECK_AS(kResourceExhausted, flips_.size() < kMostParts, "got a text of more than ", kMostParts,
                    " parts, which are the template's and the user's in turn; need fewer");
      flips_.push_back(static_cast<uint32_t>(bytes_.size()));
    }
    bytes_.append(bytes);
  }
  /// Appends bytes [begin, end) of another text with their marks.
  void append(const MarkedText& from, size_t begin, size_t end) {
    from.for_each_part([&](std::string_view part, bool from_user) { append(part, from_user); }, begin, end);
  }
  void append(const MarkedText& from) { append(from, 0, from.size()); }
  /// Bytes [begin, end) with their marks.
  MarkedText part(size_t begin, size_t end) const {
    MarkedText out;
    out.append(*this, begin, end);
    return out;
  }

  /// Calls part(bytes, from_user) for the longest stretches with one mark in bytes [begin, end).
  template <class Part>
  void for_each_part(const Part& part, size_t begin = 0, size_t end = kMostBytes) const {
    end = std::min(end, bytes_.size());
    for (auto flip = std::upper_bound(flips_.begin(), flips_.end(), begin); begin < end;) {
      const size_t stop = flip == flips_.end() ? end : std::min<size_t>(end, *flip);
      part(std::string_view(bytes_).substr(begin, stop - begin), (flip - flips_.begin()) % 2 == 1);
      begin = stop;
      if (flip != flips_.end()) ++flip;
    }
  }

  /// The text of the filter `safe`, to which `+` joins other texts with their &, <, >, ' and " as HTML entities.
  void set_html(bool html) { html_ = html; }
  bool html() const { return html_; }

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool from_user(size_t i) const { return (std::upper_bound(flips_.begin(), flips_.end(), i) - flips_.begin()) % 2; }
  /// The bytes of memory that the text takes, about.
  int64_t cost() const { return static_cast<int64_t>(112 + bytes_.size() + 4 * flips_.size()); }

 private:
  std::string bytes_;
  bool html_ = false;
  std::vector<uint32_t> flips_;  // where the mark changes; the bytes before the first place are the template's
};

}  // namespace weft::text::jinja
