// Kernels built by hand for tests, memory for them filled from a seed, and two ways to run them: with the interpreter,
// or as compiled text of a target. Outcomes are compared bit by bit (all NaNs are equal).
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "compiler/loop_ir/loop_ir.h"
#include "compiler/targets/cpu/print/print.h"

namespace weft::codegen {

/// Builds a kernel instruction by instruction. Values are instruction indices.
class KernelBuilder {
 public:
  explicit KernelBuilder(loop_ir::Mode mode, int axes) { kernel.mode = mode, kernel.axes = axes; }
  /// strides: one of 0, 1, s per axis.
  int in(DType dtype, const std::string& strides) { return operand(dtype, strides, false); }
  int out(DType dtype, const std::string& strides) { return operand(dtype, strides, true); }
  void once() { kernel.segments.push_back({false, {}}); }
  void loop() { kernel.segments.push_back({true, {}}); }
  int constant(double x, loop_ir::Type t = loop_ir::Type::f32);
  int param(loop_ir::Type t = loop_ir::Type::f32);
  int load(int operand, loop_ir::Level level = loop_ir::Level::kBoth);
  /// The level is the highest level of the operands.
  int pw(kernels::Pw op, int a, int b = -1, int c = -1);
  int cast(int a, loop_ir::Type t, DType dtype = kFloat32);
  int round(int a, DType dtype);
  int index(int axis);
  int reduce(kernels::Rd rd, int a, loop_ir::Level level = loop_ir::Level::kPoint);
  int column(kernels::Rd rd, int a);
  int keep(int a);  // returns the slot
  int kept(int slot);
  void store(int operand, int a, loop_ir::Level level = loop_ir::Level::kBoth);
  loop_ir::Level join(loop_ir::Level a, loop_ir::Level b) const;

  loop_ir::Kernel kernel;

 private:
  int operand(DType dtype, const std::string& strides, bool output);
  int add(loop_ir::Instr i);
};

struct KernelCase {
  std::string name;
  loop_ir::Kernel kernel;
  std::vector<int64_t> extents;
  std::vector<std::vector<int64_t>> strides;  // indices: operand and axis
  std::vector<double> params;
  int seed = 1;
  bool extremes = true;                     // inputs include NaN, infinities, denormals and other extremes
  std::vector<int64_t> index_strides = {};  // index: operand, for indexed ones
  std::vector<int64_t> index_extents = {};  // operand -> extent of its indexed dim

  /// Makes outputs dense and row-major over the axes that they have, and kAny inputs dense in the reverse order.
  void lay_out();
  int64_t points() const;
};

using KernelFn = std::function<void(const loop_ir::Args&, int64_t, int64_t, int64_t, int64_t, int64_t)>;
/// A part of the work: the arguments o0, o1, step, l0, l1.
struct WorkRange {
  int64_t o0, o1, step, l0, l1;
};
struct Outcome {
  std::vector<std::pair<DType, std::vector<char>>> memory;  // operands with their guard elements, columns, partials
  bool bad = false;                                         // an index was out of range
};

Outcome run(const KernelCase& c, const KernelFn& fn, const std::vector<WorkRange>& parts = {});
/// Empty if equal; otherwise the first difference.
std::string difference(const Outcome& a, const Outcome& b);

/// "x86-64-v4" or similar: the architecture of the prebuilt kernels' instruction set.
std::string march();
/// The kernels (named k0, k1, ...) printed for the target, compiled and loaded.
std::vector<KernelFn> compile(const std::vector<loop_ir::Kernel>& kernels, const PrintTarget& target);
KernelFn interpreted(const loop_ir::Kernel& kernel);

}  // namespace weft::codegen
