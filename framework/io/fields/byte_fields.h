// Records (fields.h) as bytes, in the wire format of protobuf messages: fields by their numbers, which rise. A field
// with the value of a new record is left out, and so is a field without a number; unknown numbers are skipped. The last
// field is 1000, true: bytes without it were cut off. A value that is no record may be written as one by to_record(),
// and read by from_record().
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/io/fields/fields.h"
#include "framework/ir/text.h"

namespace weft::io {

/// Fields in the order of writing.
struct BytePieces {
  std::string bytes;
  std::vector<std::pair<int, size_t>> begins = {};  // the number of each field and its first byte
};
void put(BytePieces& pieces, int number, int64_t v);
void put(BytePieces& pieces, int number, double v);
void put(BytePieces& pieces, int number, std::string_view bytes);
void put(BytePieces& pieces, int number, const std::vector<int64_t>& values);
/// The fields by number; equal numbers keep their order.
std::string joined(const BytePieces& pieces);

/// The place in the bytes that is read, as errors begin: "record: launches 3: ".
class BytePlace {
 public:
  BytePlace(std::string_view what, std::string_view bytes) : text_(str_cat(what, ": ")), size_(bytes.size()) {}
  const std::string& text() const { return text_; }
  /// Throws InvalidArgument "PLACE got GOT; need NEED".
  [[noreturn]] void refuse(std::string_view got, std::string_view need) const;
  /// Throws InvalidArgument for all bytes, which are no complete record.
  [[noreturn]] void refuse_all() const;
  /// Calls fn(); errors name this part too.
  template <class F>
  void in(std::string_view part, const F& fn) {
    const size_t before = text_.size();
    text_.append(part).append(": ");
    fn();
    text_.resize(before);
  }

 private:
  std::string text_;
  size_t size_;
};

/// A field as it was read. Its value comes from outside: the functions throw InvalidArgument for another type or value.
struct ByteField {
  int number = 0, type = 0;  // type 0: an integer, 1: a double, 2: bytes
  uint64_t value = 0;        // value of types 0 and 1
  std::string_view bytes;    // value of type 2

  std::vector<int64_t> integers(int64_t least, const BytePlace& place) const;
  int64_t integer(int64_t least, const BytePlace& place) const;
  /// A finite number from 0 to 1e30.
  double number_at(const BytePlace& place) const;
  std::string_view text(const BytePlace& place) const;
};
/// Takes the first field from the bytes of a record.
ByteField take_field(std::string_view& bytes, const BytePlace& place);

/// Integers in bytes are 0 or more; an int32_t may be -1, which is none.
template <class T>
constexpr int64_t kLeastOf = std::is_same_v<T, int32_t> ? -1 : 0;
template <class T>
concept Integers = List<T> && requires {
  requires std::is_integral_v<typename T::value_type>;
};

/// The bytes of a record in another record.
template <class R>
std::string piece_of(const R& record) {
  BytePieces pieces;
  pieces.bytes.reserve(256), pieces.begins.reserve(32);
  const NewValue<R> fresh(record);
  const auto write_one = [&]<class T>(int number, const T& v) {
    if constexpr (std::is_integral_v<T>)
      put(pieces, number, int64_t{v});
    else if constexpr (std::is_floating_point_v<T>)
      put(pieces, number, v);
    else if constexpr (Record<T>)
      put(pieces, number, std::string_view(piece_of(v)));
    else if constexpr (requires { to_record(v); })
      put(pieces, number, std::string_view(piece_of(to_record(v))));
    else
      put(pieces, number, std::string_view(text_of(v)));
  };
  const auto write = [&]<class T>(const char*, const T& v, const Field& f = {}) {
    if (f.number == 0) return;
    if constexpr (Integers<T>) {
      if (!v.empty()) put(pieces, f.number, std::vector<int64_t>(v.begin(), v.end()));
    } else if constexpr (List<T>) {
      for (const auto& one : v) write_one(f.number, one);
    } else if constexpr (Record<T>) {
      write_one(f.number, v);
    } else {
      if (!same(v, fresh(v))) write_one(f.number, v);
    }
  };
  visit(record, write);
  return joined(pieces);
}

/// Sets the fields of a record that a piece has.
template <class R>
void read_piece(R& record, std::string_view bytes, BytePlace& place) {
  ByteField field;
  const auto read_one = [&]<class T>(T& v) {
    if constexpr (std::is_integral_v<T>) {
      v = static_cast<T>(field.integer(kLeastOf<T>, place));
    } else if constexpr (std::is_floating_point_v<T>) {
      v = field.number_at(place);
    } else if constexpr (Record<T>) {
      read_piece(v, field.text(place), place);
    } else if constexpr (requires { to_record(v); }) {
      decltype(to_record(v)) one;
      read_piece(one, field.text(place), place);
      from_record(one, v, place);
    } else {
      const std::string need = set_text(field.text(place), v);
      if (!need.empty()) place.refuse(internal::quoted(field.text(place)), need);
    }
  };
  const auto read = [&]<class T>(const char* name, T& v, const Field& f = {}) {
    if (f.number != field.number) return;
    if constexpr (Integers<T>)
      for (int64_t n : field.integers(kLeastOf<typename T::value_type>, place))
        v.push_back(static_cast<typename T::value_type>(n));
    else if constexpr (List<T>)
      place.in(str_cat(name, " ", v.size()), [&] { read_one(v.emplace_back()); });
    else
      place.in(name, [&] { read_one(v); });
  };
  while (!bytes.empty()) {
    field = take_field(bytes, place);
    fields(read, record);
  }
}

inline constexpr std::string_view kEnd = "\xc0\x3e\x01";  // field 1000, true

template <class R>
std::string to_bytes(const R& record) {
  return piece_of(record).append(kEnd);
}
/// Sets the fields of a record that the bytes have. Throws InvalidArgument with the place, the value found and the
/// value needed.
template <class R>
void read_bytes(R& record, std::string_view bytes, BytePlace& place) {
  if (!bytes.ends_with(kEnd)) place.refuse_all();
  read_piece(record, bytes, place);
}

}  // namespace weft::io
