#include "compiler/targets/cuda/testing/emulate/faults.h"

#include <pthread.h>

#include <cstddef>

namespace weft::cuda {
namespace {

void (*g_handle)(const void*) = nullptr;
pthread_t g_thread;
struct sigaction g_before[2];

void on_signal(int number, siginfo_t* info, void*) {
  if (g_handle && ::pthread_equal(g_thread, ::pthread_self())) g_handle(info->si_addr);
  // Not ours: restore the previous action; the instruction runs again.
  ::sigaction(number, &g_before[number == SIGBUS], nullptr);
}

}  // namespace

Faults::Faults(void (*handle)(const void*)) {
  g_handle = handle;
  g_thread = ::pthread_self();
  // The handler needs its own stack, because a fiber's stack may have overflowed.
  alignas(16) static char room[64 << 10];
  stack_t mine{};
  mine.ss_sp = room;
  mine.ss_size = sizeof room;
  ::sigaltstack(&mine, &stack_);
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  // The handler does not return, so the signal must not stay blocked.
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGSEGV, &action, &segv_);
  ::sigaction(SIGBUS, &action, &bus_);
  g_before[0] = segv_;
  g_before[1] = bus_;
}

Faults::~Faults() {
  ::sigaction(SIGSEGV, &segv_, nullptr);
  ::sigaction(SIGBUS, &bus_, nullptr);
  g_handle = nullptr;
  ::sigaltstack(&stack_, nullptr);
}

}  // namespace weft::cuda
