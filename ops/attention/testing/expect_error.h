// For tests: checks the text of an error.
#pragma once
#include "framework/testing/compare.h"

namespace weft::testing {

/// Checks that fn throws a weft::Error whose text contains `part`.
inline void expect_error(const std::function<void()>& fn, const std::string& part) {
  const std::string text = error_of(fn);
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace weft::testing
