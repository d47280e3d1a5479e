// The CPU as a target: groups of ops are lowered, printed as C++ and compiled by the host's compiler; other ops run the
// kernels of their records. Equal kernel texts are compiled once in a process, all missing texts in one batch.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "compiler/targets/cpu/run/fused_kernel.h"

namespace weft::internal {

class CpuTarget : public HostTarget {
 public:
  std::shared_ptr<Operation> prepare(Device device, const OpDef& op, const Attrs& attrs,
                                     std::span<const StridedView> in, std::span<const StridedView> out, int alignment,
                                     const PrepareOptions& options) override;
  /// Without a compiler the kernels are interpreted, and the report says so.
  LoadReport compile(Device device, std::span<const std::shared_ptr<Operation>> operations,
                     const LoadOptions& options) override;
  Agreement agreement(const Operation& operation, const Node& n, const PrepareOptions& options) const override;
  std::string write_reproduction(const Operation& operation, const Graph& body, std::span<const Tensor> in,
                                 std::span<const Tensor> want) const override;
  std::string dump(const Operation& operation, const std::string& folder) const override;
};

/// The CPU's target, which weft.cc registers.
CpuTarget& cpu_target();

/// The kernel of a body whose operands and results have these layouts (addresses are not read). Throws CannotLower.
std::shared_ptr<FusedKernel> make_fused_kernel(const Ref<Graph>& body, std::span<const StridedView> in,
                                               std::span<const StridedView> out,
                                               const loop_ir::LowerOptions& options = {});
/// Gives the kernels their functions; compiles the missing ones.
LoadReport load_kernels(std::span<const FusedKernel* const> kernels, const LoadOptions& options);

/// Tests set it to damage the result of lowering, and then call forget_operations(DeviceType::kCpu); null otherwise.
extern void (*fault_for_test)(loop_ir::Lowered&);

/// Bytes that differ for kernels with different code, independent of names and notes.
std::string kernel_key(const loop_ir::Kernel& k);

/// "NAME_HASH": the file name, without its ending, of a kernel's dump.
std::string dump_name(const FusedKernel& k);
/// Writes NAME.loop_ir (the user's ops, the loop IR, the numbers it is launched with) and NAME.cc (its source, which
/// builds alone) to the folder.
void dump_kernel(const FusedKernel& k, const std::string& folder);

}  // namespace weft::internal
