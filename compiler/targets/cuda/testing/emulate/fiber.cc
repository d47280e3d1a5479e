#include "compiler/targets/cuda/testing/emulate/fiber.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <cstdint>

#include "framework/base/error.h"

#if defined(__x86_64__)
asm(R"(
.text
.globl weft_fiber_switch
.type weft_fiber_switch, @function
weft_fiber_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size weft_fiber_switch, .-weft_fiber_switch
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl weft_fiber_switch
.type weft_fiber_switch, %function
weft_fiber_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x2, sp
  str x2, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size weft_fiber_switch, .-weft_fiber_switch
)");
#endif

namespace weft::cuda {
namespace {
constexpr size_t kStack = 128 << 10, kPage = 4096;
}

FiberStacks::~FiberStacks() {
  if (memory_) ::munmap(memory_, bytes_);
}

void FiberStacks::reserve(int count) {
  if (count <= count_) return;
  if (memory_) ::munmap(memory_, bytes_);
  memory_ = nullptr;
  count_ = 0;
  bytes_ = kRoom + kStack * count;
  void* p = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  WEFT_CHECK_AS(kResourceExhausted, p != MAP_FAILED, "emulated kernel: no memory for the stacks of ", count,
                " threads");
  memory_ = p;
  count_ = count;
  for (int i = 0; i < count; ++i) ::mprotect(room() + kRoom + i * kStack, kPage, PROT_NONE);
}

char* FiberStacks::room() { return static_cast<char*>(memory_); }

void* FiberStacks::start(int i, void (*function)()) {
  // The frames of the thread that ran here before did not return: AddressSanitizer still guards their locals.
  ASAN_UNPOISON_MEMORY_REGION(room() + kRoom + i * kStack + kPage, kStack - kPage);
  // Stack tops at different distances from the stack's end. Otherwise all active frames would share few cache sets.
  char* top = room() + kRoom + (i + 1) * kStack - 64 - i * 832 % 12288;
  top = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t{15});
#if defined(__x86_64__)
  void** frame = reinterpret_cast<void**>(top) - 6;  // the return address is at a multiple of 16
  for (int r = 0; r < 6; ++r) frame[r] = nullptr;
  frame[6] = reinterpret_cast<void*>(function);
#else
  void** frame = reinterpret_cast<void**>(top - 160);
  for (int r = 0; r < 20; ++r) frame[r] = nullptr;
  frame[11] = reinterpret_cast<void*>(function);  // x30
#endif
  return frame;
}

}  // namespace weft::cuda
