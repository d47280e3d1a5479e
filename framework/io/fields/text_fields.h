// Records (fields.h) as text: a field is a label and its value, an enum without names is a number, and each record of a
// list is on a line of its own. Only for texts that this program wrote: ranges are not checked.
#pragma once
#include "framework/io/fields/fields.h"
#include "framework/ir/text_reader.h"

namespace weft::io {

/// A visitor that writes fields.
class TextFieldWriter {
 public:
  void line(const char* label) { text_ += str_cat(text_.empty() ? "" : "\n", label); }
  template <class T>
  void operator()(const char* label, const T& v, const Field& = {}) {
    if constexpr (requires { requires List<T> && Record<typename T::value_type>; }) {
      line(label);
      text_ += str_cat(' ', v.size());
      for (const auto& one : v) {
        line("  ");
        visit(one, *this);
      }
    } else {
      text_ += str_cat(' ', label, ' ');
      put(v);
    }
  }
  std::string text() { return std::move(text_) + "\n"; }

 private:
  template <class T>
  void put(const T& v) {
    if constexpr (List<T>) {
      text_ += '[';
      for (const auto& one : v) {
        if (text_.back() != '[') text_ += ", ";
        put(one);
      }
      text_ += ']';
    } else if constexpr (std::is_same_v<T, std::string>) {
      text_ += weft::internal::quoted(v);
    } else if constexpr (std::is_same_v<T, double>) {
      text_ += weft::internal::exact(v);
    } else if constexpr (Named<T>) {
      text_ += text_of(v);
    } else {
      text_ += str_cat(static_cast<int64_t>(v));
    }
  }

  std::string text_;
};

/// A visitor that reads the text of TextFieldWriter. Throws InvalidArgument, naming the line, for any other text.
class TextFieldReader : weft::internal::TextReader {
 public:
  explicit TextFieldReader(std::string_view text) : TextReader(text) {}

  void line(const char* label) { keyword(label); }
  template <class T>
  void operator()(const char* label, T& v, const Field& = {}) {
    keyword(label);
    if constexpr (requires { requires List<T> && Record<typename T::value_type>; }) {
      for (int64_t n = index(int64_t{1} << 30, "records"); n > 0; --n) {
        v.push_back({});
        fields(*this, v[v.size() - 1]);
      }
    } else {
      get(v);
    }
  }
  void end() {
    skip();
    if (pos_ < text_.size()) fail("the end of the text");
  }

 private:
  template <class T>
  void get(T& v) {
    if constexpr (List<T>) {
      expect('[');
      while (!take(']')) {
        if (!v.empty()) expect(',');
        std::remove_cvref_t<decltype(*v.begin())> one{};
        get(one);
        v.push_back(one);
      }
    } else if constexpr (std::is_same_v<T, std::string>) {
      v = string();
    } else if constexpr (std::is_same_v<T, double>) {
      v = std::visit([](auto x) { return static_cast<double>(x); }, number());
    } else if constexpr (Named<T>) {
      const std::string_view w = word();
      const std::string need = set_text(w, v);
      if (!need.empty()) fail(weft::internal::quoted(w), need);
    } else {
      v = static_cast<T>(integer());
    }
  }
};

}  // namespace weft::io
