// A cuBLASLt for tests without a GPU. It records products and checks descriptors as the real library does, and more:
// memory is inside the allowed ranges and aligned as planned, and results overlap no operand. It computes term by term,
// either at once in host memory, or as a kernel of a fake driver in stream order.
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "framework/cuda/libraries/cublaslt_abi.h"

namespace weft::cuda {
namespace testing {
class FakeDriver;
struct FakeRange;
}  // namespace testing

/// A product as it was called, in cuBLASLt's own terms.
struct FakeMatmul {
  struct Matrix {
    int type = 0;
    uint64_t rows = 0, cols = 0;
    int64_t ld = 0, batch_stride = 0;
    int32_t batch = 1;
    auto operator<=>(const Matrix&) const = default;
  };
  int compute = 0, scale = 0, epilogue = lt::kDefault;
  bool transpose_a = false, transpose_b = false;
  Matrix a, b, c, d;
  int64_t aux_ld = 0, aux_batch_stride = 0;
  uint32_t align[4] = {256, 256, 256, 256};  // alignments of a, b, c, d as planned
  uint32_t reductions = 7;
  uint64_t workspace = 0;
};

class FakeCublasLt {
 public:
  /// At most one exists at a time in a process. `driver`, if not null, runs the products and must outlive this.
  explicit FakeCublasLt(testing::FakeDriver* driver = nullptr);
  ~FakeCublasLt();
  FakeCublasLt(const FakeCublasLt&) = delete;

  const lt::CublasLtTable& table() const { return table_; }
  /// Allows products to use this memory; without any call, all memory is allowed.
  void allow(const void* data, size_t bytes);
  /// Scratch size that every plan asks for.
  void set_workspace(uint64_t bytes) { workspace_ = bytes; }

  /// The products run, and the products that the heuristics were asked for.
  const std::vector<FakeMatmul>& ran() const { return ran_; }
  const std::vector<FakeMatmul>& planned() const { return planned_; }
  /// The 16-bit products among planned() that have no fast kernel: rows of a matrix do not start at multiples of 16
  /// bytes. One phrase each. Products with an extent below 8 are left out.
  std::vector<std::string> misaligned() const;
  /// The faults found, one sentence each.
  const std::vector<std::string>& faults() const { return faults_; }
  /// Number of descriptors not destroyed.
  int64_t alive() const { return alive_; }
  /// Number of descriptors made so far.
  int64_t made() const { return made_; }

 private:
  friend struct FakeCublasLtCalls;
  struct Job {
    std::function<void()> compute;
    std::vector<testing::FakeRange> touches;
  };
  std::deque<Job> jobs_;  // jobs of a driver; kept for ever, because graphs replay them
  testing::FakeDriver* driver_ = nullptr;
  lt::CublasLtTable table_;
  std::vector<std::span<const char>> allowed_;
  std::vector<FakeMatmul> ran_, planned_;
  std::vector<std::string> faults_;
  uint64_t workspace_ = 0;
  int64_t alive_ = 0, made_ = 0;
};

}  // namespace weft::cuda
