// attention and attention_backward as CUDA kernels: the kernels that a call needs, and the grid and parameters of each
// launch. The kernels depend on types, head dims and mods. Lengths, batch and heads are parameters of the launches.
#pragma once
#include <memory>
#include <span>
#include <vector>

#include "compiler/targets/cuda/attention/params.h"
#include "compiler/targets/cuda/attention/spec.h"
#include "framework/ir/attr.h"
#include "framework/tensor/view.h"

namespace weft::cuda {

struct AttentionKernelOptions {
  /// f32 products on tensor cores with 11 bits of each operand (TF32); otherwise exact products and f32 sums.
  bool tf32 = false;
  /// The device is sm_90a, and the caller encodes the maps of launches: TMA and WGMMA may be chosen.
  bool sm90a = false, maps = false;
  /// Alignment of addresses that are not known yet.
  int alignment = 16;
};

/// An operand as a tensor map, for cuTensorMapEncodeTiled: elements of 2 bytes, dims from the innermost, 128-byte
/// swizzle.
struct AttentionMap {
  void* base = nullptr;
  uint64_t extents[4] = {}, strides[3] = {};  // strides in bytes, of dims 1 to 3
  uint32_t box[4] = {};
};

struct AttentionLaunch {
  int kernel = 0;  // index in AttentionProgram::kernels()
  Grid grid;
  AttentionParams params{};
  /// If not empty: the kernel's parameters are `params`, padded to 64 bytes, then these maps encoded, 128 bytes each.
  std::vector<AttentionMap> maps = {};
};
/// The offset of the first map in a launch's parameters, and the largest number of maps.
inline constexpr size_t kAttentionMapsAt = (sizeof(AttentionParams) + 63) / 64 * 64, kMostAttentionMaps = 4;

/// Views are of device memory: operands as in ops/attention/record.h (of attention or attention_backward), results
/// contiguous or with a last stride of 1. Only the kernels access the memory.
class AttentionProgram {
 public:
  /// Throws if a mod has no CUDA form, or if head dims need more shared memory than a block has.
  AttentionProgram(const Attrs& attrs, std::span<const StridedView> in, std::span<const StridedView> out, bool backward,
                   const AttentionKernelOptions& options = {});
  /// The kernels in the order of their indices in launches().
  std::span<const Kernel> kernels() const { return kernels_; }
  /// Bytes of scratch for such a call; 256-byte aligned.
  int64_t workspace(std::span<const StridedView> in) const;
  /// The launches in order, for one stream.
  std::vector<AttentionLaunch> launches(std::span<const StridedView> in, std::span<const StridedView> out,
                                        void* workspace) const;

 private:
  struct AttentionExtents;
  AttentionSpec base_spec(std::span<const StridedView> in, std::span<const StridedView> out) const;
  AttentionSpec forward_spec(const AttentionSpec& base, const AttentionExtents& z) const;
  bool hopper(const AttentionSpec& forward, const AttentionExtents& z) const;
  AttentionPart key_grad_part(const AttentionSpec& base, const AttentionExtents& z) const;
  AttentionPart query_grad_part(const AttentionSpec& base, const AttentionExtents& z) const;
  AttentionSpec key_grad_spec(const AttentionSpec& base, const AttentionExtents& z) const;
  AttentionSpec query_grad_spec(const AttentionSpec& base, const AttentionExtents& z) const;
  AttentionSpec table_grad_spec(const AttentionSpec& base, const AttentionExtents& z) const;
  AttentionSpec delta_spec(const AttentionSpec& base) const;
  void add(const AttentionSpec& spec, AttentionPart part);
  void add_backward(const AttentionSpec& base, const AttentionExtents& z);
  AttentionParams params(std::span<const StridedView> in) const;
  /// Assigns the scratch memory in the workspace.
  void lay_out(std::span<const StridedView> in, AttentionParams* p, int64_t* bytes, void* workspace) const;
  int64_t table_elements(std::span<const StridedView> in) const;
  int64_t table_sets(std::span<const StridedView> in) const;

  Attrs attrs_;
  AttentionKernelOptions options_;
  bool backward_ = false;
  MaskDeps mask_deps_;                // for a mask without lists
  std::vector<AttentionSpec> specs_;  // index: kernel
  std::vector<AttentionPart> parts_;
  std::vector<Kernel> kernels_;
  std::vector<int> finish_;  // index: learned table
};

}  // namespace weft::cuda
