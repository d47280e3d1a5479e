// Turns segmentation faults of emulated threads into errors. While a Faults object lives, a fault in the thread that
// created it calls a function that never returns. Other faults use the previous action.
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
