// For tests: what an error must say.
#pragma once
#include "framework/testing/compare.h"

namespace weft::testing {

/// fn throws a weft::Error whose text holds `part`.
inline void expect_error(const std::function<void()>& fn, const std::string& part) {
  const std::string text = error_of(fn);
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace weft::testing
