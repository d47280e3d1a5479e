#include "compiler/targets/cuda/print/plan.h"

#include <algorithm>

#include "compiler/targets/cpu/print/choices.h"
#include "compiler/targets/cuda/print/loop_texts.h"
#include "compiler/targets/cuda/print/writer.h"

namespace weft::cuda {
namespace {

using Print = CudaLaunch (*)(const PrintJob&);

std::vector<Print> schedule_of(const Form& form) {
  const loop_ir::Kernel& k = *form.kernel;
  if (k.mode == loop_ir::Mode::kAcross) return {print_across};
  if (k.mode == loop_ir::Mode::kSplit) return {print_split, print_finish};
  if (k.columns > 0) return {print_columns, print_finish};
  if (form.has_reduces()) return {print_rows};
  if (codegen::goes_by_tiles(k)) return {print_tiles};
  return {print_flat};
}

}  // namespace

const std::string& loop_intrinsics(bool approximate) {
  static const std::string exact = codegen::strip_comments(loop_texts("loops")),
                           all = exact + codegen::strip_comments(loop_texts("approximations"));
  return approximate ? all : exact;
}

CudaLaunches plan(const loop_ir::Lowered& low, std::span<const loop_ir::ValueLayout> out, const DeviceLimits& device,
                  const KernelTextOptions& options) {
  CudaLaunches all;
  const Form form = form_of(low.kernel);
  KernelTextOptions plain = options;
  plain.notes = false;
  plain.symbol.clear();
  const PrintJob job{low, out, form, device, options}, plain_job{low, out, form, device, plain};
  const bool nothing = std::find(low.extents.begin(), low.extents.begin() + low.kernel.outer_axes(), 0) !=
                       low.extents.begin() + low.kernel.outer_axes();
  for (const Print print : schedule_of(form)) {
    CudaLaunch launch = print(job);
    launch.key = loop_intrinsics(options.approximate) + print(plain_job).kernel.text;
    launch.kernel.text = loop_intrinsics(options.approximate) + launch.kernel.text;
    if (nothing && print != print_finish) launch.grid.x = 0;
    for (const Pointer& p : launch.pointers) all.reads_bad |= p.kind == Pointer::kBad;
    all.launches.push_back(std::move(launch));
  }
  if (low.kernel.columns || low.kernel.partials) partial_offsets(job, &all.scratch_bytes);
  return all;
}

}  // namespace weft::cuda
