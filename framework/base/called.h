// The public function in whose name errors are reported.
#pragma once

namespace weft::internal {

/// During its lifetime, an error that begins with the name of another function or op, "concat: ...", begins with this
/// name: the user called it, not the functions of which it is made. The outermost one decides. `name` must outlive it.
class Called {
 public:
  explicit Called(const char* name) : outer_(current) {
    if (!current) current = name;
  }
  ~Called() { current = outer_; }
  Called(const Called&) = delete;

  static thread_local constinit const char* current;  // null: none

 private:
  const char* outer_;
};

}  // namespace weft::internal
