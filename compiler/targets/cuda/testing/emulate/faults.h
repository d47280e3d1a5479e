// Segmentation faults of emulated threads as errors: while a Faults stands, one in the thread that made it is handed to
// a function, which never returns; others go where they went before.
#pragma once
#include <signal.h>

namespace weft::cuda {

class Faults {
 public:
  explicit Faults(void (*handle)(const void* address));
  ~Faults();
  Faults(const Faults&) = delete;

 private:
  struct sigaction segv_, bus_;
  stack_t stack_;
};

}  // namespace weft::cuda
