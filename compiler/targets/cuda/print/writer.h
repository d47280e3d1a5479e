// The part of printing that all schedules share: the values of a kernel for one thread at one position, the head
// of the text and the launch.
#pragma once
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "compiler/targets/cpu/print/scalar_text.h"
#include "compiler/targets/cuda/print/form.h"
#include "compiler/targets/cuda/print/params.h"
#include "framework/base/str_cat.h"
#include "ops/numerics/reduce_order.h"

namespace weft::cuda {

using codegen::read_type;
using codegen::reduction_type;

struct PrintJob {
  const loop_ir::Lowered& low;
  std::span<const loop_ir::ValueLayout> out;
  const Form& form;
  const DeviceLimits& device;
  const KernelTextOptions& options;
};

const char* memory_type(DType t);        // the type in memory: "bf16"
const char* type_name(loop_ir::Type t);  // the type of computation: "f32"
/// Whether 32 bits suffice for `n` positions and one step more.
bool is_narrow(const PrintJob& job, int64_t n);
/// The same for all positions, and for all distances in elements over the axes [first, last) of all operands.
bool is_narrow(const PrintJob& job, int first, int last);

/// A function of approximations.inc in place of the expression of pointwise.inc.
struct Approximation {
  kernels::Pw op;
  const char* expression;
  int operations;
  bool whole;  // not used if the kernel rounds to whole numbers: exact quotients and roots may be whole
};

/// Prints one kernel. A schedule derives from it or sets its hooks.
class KernelWriter : public codegen::TextLines {
 public:
  explicit KernelWriter(const PrintJob& job);

  // ---- values ----
  /// The text of the element of operand `slot` that instruction i accesses, as an lvalue, and of the position along an
  /// axis. The schedule sets `element`; the position along the lanes is "l" and along an outer axis "i0", unless the
  /// schedule sets `position`.
  std::function<std::string(const loop_ir::Instr& i)> element;
  std::function<std::string(int axis)> position;
  /// Reads of operands that no result can alias (is_unwritten) go through unwritten(), so the compiler may move them
  /// past stores.
  bool marks_unwritten = false;
  /// In loops, values that are stored in arrays are NAME[array_index].
  std::vector<bool> in_array;
  std::string array_index = "i";
  bool looping = false;
  /// A condition without which loops neither read nor store, although they still compute their values: branches around
  /// elements of an array would keep both arms live.
  std::string guard;

  std::string name(int id) const;
  std::string use(int id) const;
  std::string expression(const loop_ir::Instr& i) const;
  /// Declares value id (or writes its element of an array).
  void value(int id);
  /// Prints the values outside loops that stage s needs, except those for which `skip` is true.
  void values_before(int stage, const std::function<bool(int)>& skip = {});
  /// Emits plain loads before indexed ones and before other values, so that the kernel stalls on memory only once.
  void values_of(const std::vector<int>& ids);
  void store(int id);
  /// acc = Op::f(acc, value) of reduction r. `at` follows acc ("[k]").
  void take(int r, const char* at = "");
  /// The same for element j of the sum of a column.
  void take_column(int c);
  /// One step of a loop: its values, then its reductions (into accumulators[at]) and stores. Ends the guard.
  void loop_step(int loop, const std::vector<int>& values, const char* at = "");
  std::string stored(int id) const;  // the value of a store or reduction, as it is stored
  std::string place_of_index(const loop_ir::Instr& check) const;
  std::string lane_index(const loop_ir::Instr& i);        // "l", "l * s0_1" or "0"
  std::string index_term(const loop_ir::Instr& i) const;  // " + at * d" of an indexed load whose index is not per lane

  /// The operations of one instruction, as it is printed.
  int cost_of(const loop_ir::Instr& i) const;
  std::string type(int id) const { return type_name(k_.instrs[id].type); }
  std::string op(int reduction) const;
  std::string identity(int reduction) const {
    return str_cat("identity<", op(reduction), ", ", type(reduction), ">()");
  }

  // ---- sums over rows and split rows ----
  /// The parts of a sum over rows: 16 classes of each block of 1024 rows.
  int64_t row_classes() const { return (points_ + kReduceBlock - 1) / kReduceBlock * kReduceLanes; }
  /// The values outside loops that a loop with sums over rows needs for each row.
  std::vector<int> row_values(int loop) const;
  /// The partial sums of a column sum or reduction in scratch.
  std::string partial(int id) { return partial(k_.instrs[id].slot, type(id)); }
  std::string partial(int slot, const std::string& type);

  /// How many positions a loop should read before it stores; 0: any number. No compiler moves the read of an operand
  /// that a result may overwrite past a store.
  int together_of(int loop, const std::vector<int>& values) const;
  /// The body of such a loop: two loops over j. `declare` prints the position and `in`, whether the position exists.
  void read_together(int loop, const std::vector<int>& values, int together, const std::function<void()>& declare);

  std::string operand_pointer(int slot);
  /// "s0_1", an i32 or i64 field.
  std::string stride(int slot, int axis, bool narrow);
  std::string extent(int axis, bool narrow);
  /// The name of the flat outer point: "i0" if there is only one outer axis, otherwise "o".
  std::string point() const;
  /// Declares i0, i1, ... of the outer axes, of type i32 or i64, from `o` if there are several.
  void outer_positions(bool narrow);
  /// Declares x0, y1, ...: the addresses at the outer point of the operands that the loads and stores in `used` access.
  void outer_pointers(bool narrow, const std::vector<int>& used);
  /// Declares the outer positions and pointers, then prints the values outside loops and, by loop(0), loop(1), ..., all
  /// loops.
  void loops_at_point(bool narrow, const std::function<void(int)>& loop);
  /// Opens the loop of a thread block over its part of `units`.
  void open_units(const std::string& units, bool narrow);
  /// Opens the loop of a thread block over rows (outer points), `rows` at a time with `team` threads each, and declares
  /// the point. Returns the text of the row's length for this thread: 0 if it has no row. full: every thread has a row.
  std::string open_rows(int rows, int team, bool full, bool narrow_rows, bool narrow_length);
  /// "MINE && " for code that only threads with a row run, or nothing.
  std::string has_row(int rows, bool full, bool narrow_rows);
  /// Instructions outside loops, of loops [first, last) and, if `ends`, the stores after them.
  std::vector<int> needed(int first, int last, bool ends) const;
  std::vector<int> all_needed() const { return needed(0, static_cast<int>(form_.loops.size()), true); }
  /// The start of operand `slot`: its name at the outer point, or the parameter if it is the same for all points.
  std::string pointer_name(int slot);
  bool moves(int slot) const;
  /// Whether no result may overwrite the operand.
  bool is_unwritten(int slot) const;
  /// Whether a result may overwrite an operand that has one element per outer point.
  bool overwrites_points() const;

  // ---- the launch ----
  /// The launch: head with comments, parameter struct, and the body printed so far (the caller has closed it).
  CudaLaunch finish(int threads, int shared_bytes, Grid grid, const std::string& how);
  /// The same with `blocks` thread blocks, or the most that a grid can have.
  CudaLaunch finish(int threads, int shared_bytes, int64_t blocks, const std::string& how) {
    return finish(threads, shared_bytes, Grid{grid_blocks(blocks)}, how);
  }
  uint32_t grid_blocks(int64_t blocks) const { return static_cast<uint32_t>(std::min(blocks, job_.device.max_grid_x)); }
  std::string symbol() const;
  /// Follows the kernel's name, for a second kernel.
  std::string suffix;

  Params params;
  const PrintJob& job_;
  const loop_ir::Lowered& low_;
  const loop_ir::Kernel& k_;
  const Form& form_;
  const int64_t lanes_, points_;
  bool narrow_;  // 32 bits suffice along the lanes, unless the schedule sets it for more axes

 private:
  bool reads_first(int id) const;
  std::string guarded(const loop_ir::Instr& i, const std::string& x) const;
  std::string converted(std::string x, loop_ir::Type from, loop_ir::Type to, bool wraps) const;
  std::string pointwise(const loop_ir::Instr& i) const;
  const Approximation* approximation(const loop_ir::Instr& i) const;
  mutable Params* fields_ = &params;
  bool finds_whole_numbers_ = false;  // it rounds to whole numbers
};

/// The values that loops keep in registers: arrays of `steps` values per thread.
struct Arrays {
  std::vector<bool> kept;                 // index: instruction
  std::vector<std::vector<int>> compute;  // loop -> the values that it computes itself, in order
};
/// Uses at most `budget` registers for arrays of `steps`; otherwise no arrays.
Arrays choose_arrays(const Form& form, int steps, int budget);
/// How many steps of an unrolled loop may have their loads in flight at once, so that they do not take all registers;
/// 0: all.
int steps_at_once(const Form& form, const Arrays& arrays, int loop, int steps);
/// The operations of all loops at one position.
int operations(const Form& form);

CudaLaunch print_flat(const PrintJob& job);
CudaLaunch print_tiles(const PrintJob& job);
CudaLaunch print_rows(const PrintJob& job);
/// False if the rows do not fit in shared memory, or if nothing would be put there.
bool print_staged_rows(const PrintJob& job, CudaLaunch* launch);
CudaLaunch print_columns(const PrintJob& job);
/// Sums over rows, without sums along rows.
CudaLaunch print_column_sums(const PrintJob& job);
/// False if batches of rows do not fit in shared memory.
bool print_staged_columns(const PrintJob& job, CudaLaunch* launch);
CudaLaunch print_across(const PrintJob& job);
CudaLaunch print_split(const PrintJob& job);
/// Combines the partial sums that print_columns or print_split left in scratch.
CudaLaunch print_finish(const PrintJob& job);
/// The offset in scratch of each slot's partial sums, one slot after another; *total is their size in bytes.
std::vector<int64_t> partial_offsets(const PrintJob& job, int64_t* total);

}  // namespace weft::cuda
