// A shared library found at run time, and the table of functions to find in it: libcuda, NVRTC and cuBLASLt are reached
// this way, without being linked. An open library stays open: these libraries own threads and must not be unloaded.
#pragma once
#include <span>
#include <string>

namespace weft::cuda {

/// One row of a table of functions: the symbol's name and the pointer to fill.
struct WantedSymbol {
  const char* name;
  void** target;
};

/// The first of several shared libraries that opens, or one sentence why none did. Never throws.
class DynamicLibrary {
 public:
  /// Tries the names (or paths) in order, as dlopen does.
  explicit DynamicLibrary(std::span<const std::string> names);
  DynamicLibrary(std::initializer_list<std::string> names) : DynamicLibrary(std::span(names.begin(), names.size())) {}

  bool open() const { return handle_ != nullptr; }
  /// The name that opened; empty if none did.
  const std::string& name() const { return name_; }
  /// The file it was loaded from; empty if none opened.
  std::string path() const;
  /// Why none opened ("libcuda.so.1 was not found"); empty if one did.
  const std::string& why_not() const { return why_not_; }
  /// The address of a symbol, or null.
  void* find(const char* symbol) const;
  /// Fills a table. Returns "" or a clause that names the missing symbols ("libcuda.so.1 lacks cuFoo and 2 more");
  /// missing symbols are null. All are null if the library is not open.
  std::string fill(std::span<const WantedSymbol> table) const;

 private:
  void* handle_ = nullptr;
  std::string name_, why_not_;
};

}  // namespace weft::cuda
