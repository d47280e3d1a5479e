// Operations that are a few kernel launches in sequence, with sizes and layouts known in advance: only addresses are
// filled in when they are enqueued. Also writes a kernel's text and the bytes of its parameters together, so that the
// two agree.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/targets/cuda/run/operation.h"

namespace weft::cuda {

/// The memory to which an address parameter points.
struct MemoryAddress {
  enum AddressKind { kIn, kOut, kWorkspace, kBad } kind = kIn;
  int index = 0;      // index of the operand or result
  int64_t bytes = 0;  // from element 0, or from the start of the workspace
};
inline MemoryAddress operand_address(int i, int64_t bytes = 0) { return {MemoryAddress::kIn, i, bytes}; }
inline MemoryAddress result_address(int i, int64_t bytes = 0) { return {MemoryAddress::kOut, i, bytes}; }
inline MemoryAddress scratch_address(int64_t bytes) { return {MemoryAddress::kWorkspace, 0, bytes}; }

/// One launch.
struct KernelStep {
  Kernel kernel;
  Grid grid;
  std::vector<std::byte> parameters;  // without the addresses
  std::vector<std::pair<int, MemoryAddress>> addresses;
  int same_in = -1, same_out = -1;  // skipped if this operand and this result have the same address

  /// Writes the parameters of a run, parameters.size() bytes.
  void write_parameters(const Addresses& at, std::byte* to) const;
  bool left_out(const Addresses& at) const;
};

class Launches final : public DeviceOperation {
 public:
  explicit Launches(const char* op) : op_(op) {}
  void add(KernelStep step);
  /// Reserves bytes of scratch at a 256-byte boundary; returns where they start.
  int64_t scratch(int64_t bytes);
  void set_checks_indices() { checks_ = true; }
  /// A run skips the last step if operand and result have the same address.
  void leave_out_where_same(int in, int out) {
    steps_.back().same_in = in;
    steps_.back().same_out = out;
  }
  const std::vector<KernelStep>& steps() const { return steps_; }

  std::span<const Kernel> kernels() const override { return kernels_; }
  void bind(std::span<const Function> functions) override;
  int64_t workspace_bytes() const override { return workspace_; }
  bool checks_indices() const override { return checks_; }
  void enqueue(const Addresses& at, Stream& stream, SourceLine line) const override;

 private:
  const char* op_;
  std::vector<KernelStep> steps_;
  std::vector<Kernel> kernels_;
  std::vector<Function> functions_;
  int64_t workspace_ = 0;
  bool checks_ = false;
};

/// Writes a kernel: the types and constants that specialise its text (they are part of its symbol), its parameters in
/// order, its body.
class Text {
 public:
  /// `wide`: the type I of positions is int64, otherwise int.
  explicit Text(std::string_view name, bool wide = false);
  Text& type(std::string_view name, DType dtype);
  Text& type(std::string_view name, std::string_view text);
  Text& constant(std::string_view name, int64_t value);
  /// Declarations of types for the text that follows.
  Text& types(std::string_view text);
  /// Device functions that the kernel uses. They are the same for every kernel of this name, or distinguished by `key`.
  Text& functions(std::string_view text, std::string_view key = "");

  Text& address(std::string_view declaration, const MemoryAddress& place);
  Text& bad() { return address("int* bad", {MemoryAddress::kBad}); }
  Text& index(std::string_view name, int64_t value);  // I
  Text& indices(std::string_view name, std::span<const int64_t> values);
  Text& whole(std::string_view name, int64_t value);  // int64
  Text& real(std::string_view name, double value);    // f64

  /// `body` defines the kernel as W_KERNEL { ... }; its parameters are p.
  KernelStep step(std::string_view body, int64_t blocks, int threads = 256, int shared = 0);

 private:
  void put(const void* data, int bytes, int alignment);
  std::string name_, head_, fields_, functions_;
  bool wide_;
  int alignment_ = 1;
  KernelStep step_;
};

/// The name of a dtype's elements in kernel text.
std::string_view element_type(DType t);

/// The number of blocks of `per` that cover n.
inline int64_t blocks_for(int64_t n, int64_t per = 256) { return (n + per - 1) / per; }

}  // namespace weft::cuda
