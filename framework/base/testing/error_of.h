// For tests: the text of an error, and checks of its content.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "framework/base/error.h"

namespace weft::testing {

/// The text of the weft::Error that fn throws, "" if it throws nothing. Other exceptions pass through.
inline std::string placed_error_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

/// The same; checks the code of the error.
inline std::string placed_error_of(const std::function<void()>& fn, Code code) {
  return placed_error_of([&] {
    try {
      fn();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      throw;
    }
  });
}

/// The same without the place at its end ("; at model.cc:31, in blocks.3").
inline std::string error_of(const std::function<void()>& fn) {
  const std::string text = placed_error_of(fn);
  for (const char* begin : {"; at ", "; in "}) {
    const size_t i = text.rfind(begin);
    if (i == text.npos) continue;
    std::string place = text.substr(i + 5);
    if (const size_t names = place.find(", in "); names != place.npos) place.erase(names, 5);
    if (place.ends_with(')')) place.erase(std::min(place.find(" ("), place.size()));  // "net.2 (Linear)"
    if (place.find(' ') == place.npos) return text.substr(0, i);
  }
  return text;
}

inline void expect_has(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), text.npos) << "need: " << part << "\ngot: " << text;
}

/// Checks that fn throws a weft::Error whose text has `part`.
inline void expect_error(const std::function<void()>& fn, const std::string& part) { expect_has(error_of(fn), part); }

}  // namespace weft::testing
