// The current thread's place in the user's program: the line of the op being called and the modules around it.
// Every error reports it (see fail in error.cc).
#pragma once
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

#include "framework/base/str_cat.h"

namespace weft {

/// The line of the user's program that an op came from.
struct SourceLine {
  const char* file = "";
  uint32_t line = 0;
  SourceLine() = default;
  SourceLine(const char* f, uint32_t l) : file(f), line(l) {}
  SourceLine(std::source_location l) : file(relative(l.file_name())), line(l.line()) {}
  std::string to_string() const { return line ? str_cat(file, ":", line) : std::string(); }

 private:
  // Headers that are found by -I. have names that start with "./".
  static const char* relative(const char* f) { return f[0] == '.' && f[1] == '/' ? f + 2 : f; }
};

namespace internal {

struct OriginName;

struct Origin {
  const SourceLine* line = nullptr;   // overrides the source lines of ops
  const OriginName* names = nullptr;  // the innermost name
};
extern thread_local constinit Origin origin;

/// During its lifetime, ops carry this source line and errors report it: the parts of a composite point at its caller.
/// The outermost scope wins. Public functions make one before they check their arguments.
class LineScope {
 public:
  explicit LineScope(SourceLine line) : line_(line), saved_(origin.line) {
    if (!saved_ && line.line) origin.line = &line_;
  }
  ~LineScope() { origin.line = saved_; }
  LineScope(const LineScope&) = delete;

 private:
  SourceLine line_;
  const SourceLine* saved_;
};

/// More about a name, in errors alone: "net.2 (Linear)". Nodes of a graph have the name without it.
struct OriginNote {
  virtual std::string text() const = 0;

 protected:
  ~OriginNote() = default;
};

/// During its lifetime, errors report this name after the names around it. A path hides those names. `text` and `note`
/// must outlive it.
struct OriginName {
  OriginName(std::string_view text, bool path, const OriginNote* note = nullptr)
      : outer(origin.names), text(text), path(path && !text.empty()), note(note) {
    origin.names = this;
  }
  ~OriginName() { origin.names = outer; }
  OriginName(const OriginName&) = delete;

  const OriginName* const outer;
  const std::string_view text;
  const bool path;
  const OriginNote* const note;
};

/// During its lifetime, errors and captured nodes have neither line nor names. For code that adds the place itself to
/// the errors that it catches or to the nodes that it copies.
class NoOrigin {
 public:
  NoOrigin() : saved_(std::exchange(origin, {})) {}
  ~NoOrigin() { origin = saved_; }
  NoOrigin(const NoOrigin&) = delete;

 private:
  const Origin saved_;
};

/// The current names, as a path for origin_text: "blocks.3/attn".
std::string origin_path();

/// "; at model.cc:31, in blocks.3.attn", or less where line or scope is empty. `scope` is a path such as
/// "blocks.3/attn".
std::string origin_text(SourceLine line, std::string_view scope);

}  // namespace internal
}  // namespace weft
