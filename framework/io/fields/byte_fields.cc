#include "framework/io/fields/byte_fields.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace weft::io {
namespace {

enum WireType { kInteger, kDouble, kBytes, kFourBytes = 5 };

void append(std::string& out, uint64_t v) {
  for (; v >= 0x80; v >>= 7) out += static_cast<char>(v | 0x80);
  out += static_cast<char>(v);
}

std::string& begin(BytePieces& pieces, int number, int type) {
  pieces.begins.emplace_back(number, pieces.bytes.size());
  append(pieces.bytes, static_cast<uint64_t>(number << 3 | type));
  return pieces.bytes;
}

std::string_view take(std::string_view& bytes, uint64_t size, const BytePlace& place) {
  if (size > bytes.size()) place.refuse_all();
  const std::string_view taken = bytes.substr(0, size);
  bytes.remove_prefix(size);
  return taken;
}

uint64_t take_integer(std::string_view& bytes, const BytePlace& place) {
  uint64_t v = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(take(bytes, 1, place)[0]);
    v |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return v;
  }
  place.refuse_all();
}

int64_t checked(uint64_t value, int64_t least, const BytePlace& place) {
  const auto v = static_cast<int64_t>(value);
  if (v < least || (least < 0 && v > INT32_MAX)) place.refuse(str_cat(v), str_cat(least, " or more"));
  return v;
}

}  // namespace

void put(BytePieces& pieces, int number, int64_t v) {
  append(begin(pieces, number, kInteger), static_cast<uint64_t>(v));
}
void put(BytePieces& pieces, int number, double v) {
  std::string& out = begin(pieces, number, kDouble);
  for (int i = 0; i < 64; i += 8) out += static_cast<char>(std::bit_cast<uint64_t>(v) >> i);
}
void put(BytePieces& pieces, int number, std::string_view bytes) {
  std::string& out = begin(pieces, number, kBytes);
  append(out, bytes.size());
  out += bytes;
}
void put(BytePieces& pieces, int number, const std::vector<int64_t>& values) {
  std::string all;
  for (int64_t v : values) append(all, static_cast<uint64_t>(v));
  put(pieces, number, std::string_view(all));
}

std::string joined(const BytePieces& pieces) {
  std::vector<std::pair<int, std::string_view>> parts;
  parts.reserve(pieces.begins.size());
  for (size_t i = 0; i < pieces.begins.size(); ++i) {
    const auto [number, begin] = pieces.begins[i];
    const size_t end = i + 1 < pieces.begins.size() ? pieces.begins[i + 1].second : pieces.bytes.size();
    parts.emplace_back(number, std::string_view(pieces.bytes).substr(begin, end - begin));
  }
  std::ranges::stable_sort(parts, {}, &std::pair<int, std::string_view>::first);
  std::string out;
  out.reserve(pieces.bytes.size());
  for (const auto& [number, part] : parts) out += part;
  return out;
}

void BytePlace::refuse(std::string_view got, std::string_view need) const {
  weft::internal::fail(Code::kInvalidArgument, str_cat(text_, "got ", got, "; need ", need));
}
void BytePlace::refuse_all() const {
  weft::internal::fail(Code::kInvalidArgument,
                       str_cat(text_.substr(0, text_.find(':')), ": got ", size_,
                               " bytes that are no complete record; need all bytes that were written"));
}

int64_t ByteField::integer(int64_t least, const BytePlace& place) const {
  if (type != kInteger) place.refuse_all();
  return checked(value, least, place);
}
std::vector<int64_t> ByteField::integers(int64_t least, const BytePlace& place) const {
  if (type == kInteger) return {integer(least, place)};
  std::vector<int64_t> all;
  for (std::string_view rest = text(place); !rest.empty();)
    all.push_back(checked(take_integer(rest, place), least, place));
  return all;
}
double ByteField::number_at(const BytePlace& place) const {
  if (type != kDouble) place.refuse_all();
  constexpr double kMost = 1e30;  // sums and ratios of such numbers are finite
  const double v = std::bit_cast<double>(value);
  if (!(v >= 0 && v <= kMost)) place.refuse(weft::internal::exact(v), "a finite number, 0 or more");
  return std::abs(v);  // changes -0 to 0
}
std::string_view ByteField::text(const BytePlace& place) const {
  if (type != kBytes) place.refuse_all();
  return bytes;
}

ByteField take_field(std::string_view& bytes, const BytePlace& place) {
  const uint64_t key = take_integer(bytes, place);
  if (key >> 3 == 0 || key > UINT32_MAX) place.refuse_all();
  ByteField f{static_cast<int>(key >> 3), static_cast<int>(key & 7)};
  if (f.type == kInteger) {
    f.value = take_integer(bytes, place);
  } else if (f.type == kDouble) {
    const std::string_view eight = take(bytes, 8, place);
    for (size_t i = 0; i < 8; ++i) f.value |= uint64_t{static_cast<unsigned char>(eight[i])} << 8 * i;
  } else if (f.type == kBytes) {
    f.bytes = take(bytes, take_integer(bytes, place), place);
  } else if (f.type == kFourBytes) {
    take(bytes, 4, place);
  } else {
    place.refuse_all();
  }
  return f;
}

}  // namespace weft::io
