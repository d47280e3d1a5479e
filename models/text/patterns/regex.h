// A regular expression of a tokenizer, by PCRE2 with limits: one that backtracks too much is an error.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace weft::text {

/// Memory of matching; one for each thread.
class RegexMemory {
 public:
  RegexMemory();
  ~RegexMemory();
  RegexMemory(const RegexMemory&) = delete;

 private:
  friend class Regex;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class Regex {
 public:
  /// Throws "WHERE: ..." for an expression that PCRE2 does not read. \s, \S and \w have the meaning of Oniguruma, the
  /// library of `tokenizers`.
  Regex(const std::string& pattern, const std::string& where);
  ~Regex();
  Regex(Regex&& o) noexcept : code_(o.code_), pattern_(std::move(o.pattern_)) { o.code_ = nullptr; }
  const std::string& pattern() const { return pattern_; }

  struct Match {
    size_t begin, end;
  };
  /// Finds the first match in valid UTF-8 from `from` on; false if there is none. Throws ResourceExhausted at a limit.
  bool find(std::string_view text, size_t from, RegexMemory& memory, Match* match) const;

 private:
  void* code_ = nullptr;
  std::string pattern_;
};

}  // namespace weft::text
