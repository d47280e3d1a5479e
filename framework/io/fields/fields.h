// Fields: a record lists its fields once, and visitors write and read it: json_fields.h, byte_fields.h, text_fields.h.
//   template <class V> void fields(V& v, Rate& r) { v("bytes", r.bytes, {.number = 1}), v("share", r.share, kShare); }
// The function is in the record's namespace. A visitor that writes gets a record that it does not change.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "framework/base/error.h"
#include "framework/tensor/dtype.h"

namespace weft {

constexpr int count_of(DType) { return kNumDTypes; }

namespace io {

/// When JSON has a field.
enum class In : uint8_t {
  kNeeded,   // written always; a reader refuses objects without it
  kWritten,  // written always
  kIfSet,    // written unless it has the value of a new record
  kRead,     // never written
};

/// The allowed values of a field, and its place in files. No number may be infinite or NaN.
struct Field {
  double least = -1e300, most = 1e300;
  bool above = false, below = false;              // exclude `least`, exclude `most`
  const char* words = nullptr;                    // the allowed texts, separated by commas; null: any text
  bool (*accepts)(const std::string&) = nullptr;  // or a function of the text, and
  const char* need = nullptr;                     // the texts that it accepts
  In in = In::kNeeded;
  int number = 0;  // in bytes (byte_fields.h); 0: bytes do not have the field
};
inline constexpr Field kNotNegative{.least = 0};
inline constexpr Field kPositive{.least = 0, .above = true};

/// For bytes; In::kIfSet too.
constexpr Field at(int number) { return {.number = number}; }
constexpr Field if_set(int number) { return {.in = In::kIfSet, .number = number}; }

/// An enum with names: to_string() or to_string_view(), and count_of(), in its namespace.
template <class T>
concept Named = std::is_enum_v<T> && requires(T v) {
  count_of(v);
};
struct AnyVisitor {};
/// A type with fields().
template <class T>
concept Record = requires(AnyVisitor v, T& r) {
  fields(v, r);
};
template <class T>
concept List = !std::is_same_v<T, std::string> && requires(T & v) {
  v.push_back(*v.begin());
};

template <class R, class V>
void visit(const R& r, V& v) {
  fields(v, const_cast<R&>(r));
}

// ---- values as texts ----

std::string text_of(int64_t v);
std::string text_of(uint64_t v);
std::string text_of(double v);
std::string text_of(bool v);
inline const std::string& text_of(const std::string& v) { return v; }
template <Named E>
std::string text_of(E v) {
  return str_cat([&] {
    if constexpr (requires { to_string_view(v); })
      return to_string_view(v);
    else
      return to_string(v);
  }());
}

/// Sets `v` to the value of a text. Returns "", or the values that are needed: "a whole number".
std::string set_text(std::string_view text, int64_t& v);
std::string set_text(std::string_view text, uint64_t& v);
std::string set_text(std::string_view text, double& v);
std::string set_text(std::string_view text, bool& v);
std::string set_text(std::string_view text, std::string& v);
template <Named E>
std::string set_text(std::string_view text, E& v) {
  std::string words;
  for (int i = 0; i < count_of(v); ++i) {
    const std::string word = text_of(static_cast<E>(i));
    if (text == word) return v = static_cast<E>(i), "";
    words += str_cat(i ? ", " : "", word);
  }
  return str_cat("one of ", words);
}

/// "", or the values that a field needs if it does not allow `v`: "a whole number from 1 to 8".
std::string unfit(int64_t v, const Field& field);
std::string unfit(double v, const Field& field);
std::string unfit(const std::string& v, const Field& field);
template <class T>
std::string unfit(const T&, const Field&) {
  return "";
}

// ---- helpers of visitors ----

/// The value that a new record has in the place of a member.
template <class R>
class NewValue {
 public:
  explicit NewValue(const R& record) : record_(reinterpret_cast<const char*>(&record)) {}
  template <class T>
  const T& operator()(const T& member) const {
    static const R fresh;
    const auto offset = reinterpret_cast<const char*>(&member) - record_;
    return *reinterpret_cast<const T*>(reinterpret_cast<const char*>(&fresh) + offset);
  }

 private:
  const char* record_;
};

/// Whether a value is equal to another, by its text if it has no other comparison.
template <class T>
bool same(const T& a, const T& b) {
  if constexpr (requires { a == b; })
    return a == b;
  else
    return text_of(a) == text_of(b);
}

}  // namespace io
}  // namespace weft
