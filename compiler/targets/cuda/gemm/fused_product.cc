#include "compiler/targets/cuda/gemm/fused_product.h"

#include <algorithm>

#include "compiler/targets/cuda/print/writer.h"
#include "framework/base/error.h"
#include "framework/base/str_cat.h"

namespace weft::cuda {
namespace {

using loop_ir::Instr;
using loop_ir::Op;
using loop_ir::StrideKind;

// Prints the function that consumes `width` neighbouring sums of a row.
class ProductFinish : KernelWriter {
 public:
  ProductFinish(const PrintJob& job, int width) : KernelWriter(job), width_(width) {
    narrow_ = is_narrow(job, 0, k_.axes);
    pack_.assign(k_.operands.size(), false);
    for (const Instr& i : k_.instrs) {
      if (!touches(i) || i.slot == low_.tile) continue;
      if (lane(i) && packs(i)) pack_[i.slot] = true;
      guards_ |= lane(i) && !packs(i);
    }
    for (const Instr& i : k_.instrs) guards_ |= i.op == Op::kCheck;
    element = [this](const Instr& i) { return place(i); };
    position = [this](int axis) { return axis == k_.axes - 1 ? std::string("(col + j)") : str_cat("i", axis); };
  }

  GemmHook run() {
    const char* type = narrow_ ? "i32" : "i64";
    line(str_cat("const ", type, " ", point(), " = (", type, ")row;"));
    outer_positions(narrow_);
    std::vector<int> used;
    for (int id : all_needed())
      if (!touches(k_.instrs[id]) || k_.instrs[id].slot != low_.tile) used.push_back(id);
    outer_pointers(narrow_, used);
    values_before(0);
    for (int slot = 0; slot < static_cast<int>(k_.operands.size()); ++slot) {
      if (!pack_[slot]) continue;
      const loop_ir::Operand& o = k_.operands[slot];
      const std::string pack = str_cat("Pack<", memory_type(o.dtype), ", ", width_, "> v", slot);
      line(o.output ? str_cat(pack, ";")
                    : str_cat("const ", pack, " = load<", width_, ">(", pointer_name(slot), " + col, count);"));
    }
    open(str_cat("UNROLL for (int j = 0; j < ", width_, "; ++j) {"));
    if (guards_) open("if (j < count) {");
    values_of(form_.closure(0, {}));
    for (int id : form_.loops[0].stores) store(id);
    if (guards_) close();
    close();
    for (int slot = 0; slot < static_cast<int>(k_.operands.size()); ++slot)
      if (pack_[slot] && k_.operands[slot].output)
        line(str_cat("store<", width_, ">(", pointer_name(slot), " + col, v", slot, ", count);"));
    const int n = static_cast<int>(low_.bound.size());
    params.pointer("const void", "a", {Pointer::kOperand, n});
    params.pointer("const void", "b", {Pointer::kOperand, n + 1});
    params.pointer("const void", "offsets", {Pointer::kOperand, n + 2});
    params.pointer("i32", "bad", {Pointer::kBad});
    GemmHook hook;
    hook.prelude = loop_intrinsics(job_.options.approximate);
    hook.structure = params.text("P");
    hook.text = str_cat("// ", k_.name, "\nstatic inline void finish(const P& p, int64 row, int col, int count, ",
                        "const f32 (&v)[8]) {\n", body(), "}\n");
    return hook;
  }
  void write(CudaLaunch* launch) const { params.write(launch); }

 private:
  static bool touches(const Instr& i) { return i.op == Op::kLoad || i.op == Op::kStore; }
  static bool lane(const Instr& i) { return Form::in_loop(i.level); }

  // Whether the operand is contiguous along the lanes and starts at multiples of the vector width (at most 16 bytes if
  // it is misaligned).
  bool packs(const Instr& i) const {
    const loop_ir::Operand& o = k_.operands[i.slot];
    if ((i.op == Op::kLoad && i.a >= 0) || o.indexed || o.strides.back() != StrideKind::kUnit) return false;
    const loop_ir::BoundOperand& b = low_.bound[i.slot];
    const int64_t bytes = std::min<int64_t>(16, width_ * itemsize(o.dtype));
    bool aligned = job_.options.alignment % bytes == 0 && b.offset * itemsize(o.dtype) % bytes == 0;
    for (int a = 0; a + 1 < k_.axes; ++a)
      aligned &= low_.extents[a] <= 1 || b.strides[a] * itemsize(o.dtype) % bytes == 0;
    return aligned;
  }

  std::string place(const Instr& i) {
    if (i.slot == low_.tile) return "v[j]";
    const std::string base = pointer_name(i.slot);
    if (!lane(i)) return str_cat(base, "[0", index_term(i), "]");
    if (pack_[i.slot] && packs(i)) return str_cat("v", i.slot, "[j]");
    const StrideKind kind = k_.operands[i.slot].strides.back();
    const std::string at = kind == StrideKind::kUnit   ? "col + j"
                           : kind == StrideKind::kZero ? "0"
                                                       : str_cat("(col + j) * ", stride(i.slot, k_.axes - 1, narrow_));
    return str_cat(base, "[", at, index_term(i), "]");
  }

  int width_;
  bool narrow_, guards_ = false;
  std::vector<bool> pack_;
};

bool elementwise(const loop_ir::Lowered& low, const Form& form) {
  const loop_ir::Kernel& k = low.kernel;
  return low.tile >= 0 && k.mode == loop_ir::Mode::kRows && k.columns == 0 && k.partials == 0 && !form.has_reduces() &&
         form.loops.size() == 1 && form.last.empty();
}

}  // namespace

std::optional<CudaLaunch> fused_product(const loop_ir::Lowered& low, std::span<const loop_ir::ValueLayout> out,
                                        const GroupedGemm& product, int sm, const DeviceLimits& device,
                                        const KernelTextOptions& options) {
  const Form form = form_of(low.kernel);
  const bool mma = is_16bit(product.in);
  if (!elementwise(low, form) || (!mma && product.in != kFloat32)) return {};
  WEFT_BUG_IF(low.lanes() != product.n, "cuda: ", low.kernel.name, " walks ", low.lanes(), " columns of ", product.n);
  CudaLaunch launch;
  auto print = [&](const KernelTextOptions& with, const std::string& symbol, CudaLaunch* into) {
    const PrintJob job{low, out, form, device, with};
    ProductFinish finish(job, mma ? 8 : 4);
    const GemmHook hook = finish.run();
    if (into) finish.write(into);
    return gemm_kernel(product, symbol, &hook, sm);
  };
  KernelTextOptions plain = options;
  plain.notes = false;
  plain.symbol.clear();
  launch.key = print(plain, "kernel", nullptr).kernel.text;
  const std::string symbol = !options.symbol.empty()   ? options.symbol
                             : low.kernel.name.empty() ? "product"
                                                       : low.kernel.name;
  GroupedGemmKernel kernel = print(options, symbol, &launch);
  launch.grid = kernel.grid(device.multiprocessors);
  if (kernel.most_tiles == 0) launch.grid.x = 0;
  launch.kernel = std::move(kernel.kernel);
  return launch;
}

}  // namespace weft::cuda
