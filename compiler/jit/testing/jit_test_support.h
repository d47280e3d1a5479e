// Kernels that add a constant, fake compilers, and loads in child processes that start with nothing loaded.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "compiler/jit/jit.h"
#include "framework/base/error.h"
#include "framework/base/function_ref.h"
#include "framework/io/file.h"

namespace weft::jit {

/// These tests count compilations, so each test process has its own cache, which is empty at first.
inline const int own_cache = ::unsetenv("WEFT_CACHE");

using AddFunction = int64_t (*)(int64_t);

/// extern "C" int64_t symbol(int64_t x) { return x + constant; }
inline Source adder(int64_t constant, const std::string& symbol = "adder") {
  return {symbol, str_cat("extern \"C\" int64 ", symbol, "(int64 x) {\n  return x + ", constant, ";\n}\n")};
}

/// Kernels that add from, from + 1, ... Tests use different constants, so that none finds another's kernels.
inline KernelRequest adders(int64_t from, int count) {
  KernelRequest r{"typedef __INT64_TYPE__ int64;\n", {}, Isa::baseline};
  for (int i = 0; i < count; ++i) r.kernels.push_back(adder(from + i, str_cat("adder", i)));
  return r;
}

/// Whether all functions exist and compute the sums of adders(from).
inline bool adds(const Loaded& l, int64_t from) {
  for (size_t i = 0; i < l.functions.size(); ++i)
    if (!l.functions[i] || reinterpret_cast<AddFunction>(l.functions[i])(1) != 1 + from + static_cast<int64_t>(i))
      return false;
  return !l.functions.empty();
}

/// A path in the folder of the test.
inline std::string temporary(const std::string& name) { return testing::TempDir() + "/" + name; }

/// An executable script that answers --version and otherwise runs `body`.
inline std::string fake_compiler(const std::string& name, const std::string& body) {
  std::string path = temporary(name);
  io::write_file_atomic(path,
                        str_cat("#!/bin/sh\nif [ \"$1\" = --version ]; then echo fake 1.0; exit 0; fi\n", body, "\n"));
  ::chmod(path.c_str(), 0755);
  return path;
}

/// The result of a load in a child process.
struct InChild {
  int64_t compiled = -1, from_disk = -1, from_memory = -1, damaged = -1, notes = -1;
  bool right = false;    // the functions compute correct results
  int signal = 0;        // the signal that ended the child
  char text[1024] = {};  // notes, `unavailable` or the error thrown
  std::string to_string() const {
    return str_cat("compiled ", compiled, ", disk ", from_disk, ", damaged ", damaged, ", right ", right, ", signal ",
                   signal, ", ", std::string(text));
  }
};

/// Starts load() in a child; get() waits for it.
class Child {
 public:
  Child(
      const KernelRequest& request, const JitOptions& options, int64_t from, FunctionRef<void()> first = [] {}) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) std::abort();
    pid_ = ::fork();
    if (pid_ == 0) {
      InChild result;
      std::string text;
      try {
        first();
        Loaded l = load(request, options);
        result.compiled = l.compiled;
        result.from_disk = l.from_disk;
        result.from_memory = l.from_memory;
        result.damaged = l.damaged;
        result.notes = static_cast<int64_t>(l.notes.size());
        result.right = adds(l, from);
        text = l.unavailable;
        for (const std::string& note : l.notes) text += str_cat(note, "\n");
      } catch (const std::exception& error) {
        text = error.what();
      }
      std::copy_n(text.data(), std::min(text.size(), sizeof result.text - 1), result.text);
      ssize_t n = ::write(ends[1], &result, sizeof result);
      ::_exit(n == sizeof result ? 0 : 1);
    }
    ::close(ends[1]);
    pipe_ = ends[0];
  }
  Child(const Child&) = delete;
  Child(Child&& o) noexcept : pid_(std::exchange(o.pid_, -1)), pipe_(std::exchange(o.pipe_, -1)) {}
  ~Child() {
    if (pid_ > 0) get();
  }
  pid_t pid() const { return pid_; }
  InChild get() {
    InChild result;
    ssize_t n = ::read(pipe_, &result, sizeof result);
    if (n != sizeof result) result = {};
    int status = 0;
    ::waitpid(pid_, &status, 0);
    if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
    ::close(pipe_);
    pid_ = pipe_ = -1;
    return result;
  }

 private:
  pid_t pid_ = -1;
  int pipe_ = -1;
};

inline InChild load_in_child(
    const KernelRequest& request, const JitOptions& options, int64_t from, FunctionRef<void()> first = [] {}) {
  return Child(request, options, from, first).get();
}

/// Names in a folder that end with `suffix`.
inline std::vector<std::string> names_with(const std::string& folder, const std::string& suffix) {
  std::vector<std::string> out;
  for (const std::string& name : io::list_folder(folder))
    if (name.size() >= suffix.size() && name.substr(name.size() - suffix.size()) == suffix) out.push_back(name);
  return out;
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace weft::jit
