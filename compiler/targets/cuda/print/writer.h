// What all schedules print alike: lines, the values of a kernel for one thread at one position, the head and the
// launch.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "compiler/targets/cpu/print/scalar_text.h"
#include "compiler/targets/cuda/print/form.h"
#include "compiler/targets/cuda/print/params.h"

namespace weft::cuda {

using codegen::read_type;
using codegen::reduction_type;

struct Job {
  const loop_ir::Lowered& low;
  std::span<const loop_ir::Layout> out;
  const Form& form;
  const DeviceLimits& device;
  const PlanOptions& options;
};

const char* memory_type(DType t);        // in memory: "bf16"
const char* type_name(loop_ir::Type t);  // computed: "f32"
/// Whether 32 bits do for `n` positions, with room for a step beyond.
bool is_narrow(const Job& job, int64_t n);
/// The same for all positions and distances in elements that the axes [first, last) span, over all operands.
bool is_narrow(const Job& job, int first, int last);

/// Prints one kernel. A schedule derives from it or sets its hooks.
class Writer {
 public:
  explicit Writer(const Job& job) : job_(job), low_(job.low), k_(job.low.kernel), form_(job.form) {}

  // ---- lines ----
  void line(const std::string& text, const std::string& note = "");
  void open(const std::string& text);
  void close(const std::string& text = "}");
  /// Back from what open() moved in, where no line ends it.
  void depth_less() { --depth_; }

  // ---- values ----
  /// How the element of operand `slot` that instruction i touches is spelled, as an lvalue, and the position along
  /// an axis. Set by the schedule.
  std::function<std::string(const loop_ir::Instr& i)> element;
  std::function<std::string(int axis)> position;
  /// In loops, values that lie in arrays are NAME[array_index].
  /// Those that is_unwritten() are read by unwritten(): the compiler need not keep such reads before stores.
  bool tells_unwritten = false;
  std::vector<bool> in_array;
  std::string array_index = "i";
  bool looping = false;
  /// A condition without which loops neither read nor store, where their values are computed all the same: branches
  /// around elements of an array would keep both arms alive.
  std::string guard;

  std::string name(int id) const;
  std::string use(int id) const;
  /// Declares value id (or writes its element of an array).
  void value(int id);
  /// Values outside loops that stage s needs; with those that `skip` says left out.
  void values_before(int stage, const std::function<bool(int)>& skip = {});
  /// Loads of operands that are no operands' positions come first: what follows may wait for memory once.
  void values_of(const std::vector<int>& ids);
  void store(int id);
  /// acc = Op::f(acc, value) of reduction r; `at` follows acc ("[k]").
  void take(int r, const char* at = "");
  std::string stored(int id) const;  // the value of a store or reduction, as memory takes it
  std::string place_of_index(const loop_ir::Instr& check) const;
  std::string index_term(const loop_ir::Instr& i) const;  // " + at * d" of an indexed load outside lanes' own

  /// How many positions at a time a loop is to read before it stores: operands that a result may lie on are not read
  /// past a store by any compiler. 0: it need not.
  int together_of(int loop, const std::vector<int>& values) const;
  /// The body of such a loop: two loops over j, of which `declare` prints the position and `in`, whether there is one.
  void read_together(int loop, const std::vector<int>& values, int together, const std::function<void()>& declare);

  std::string operand_pointer(int slot);
  /// "s0_1", an i32 or i64 field.
  std::string stride(int slot, int axis, bool narrow);
  std::string extent(int axis, bool narrow);
  /// The name of the flat outer point: "i0" where it is the only axis, else "o".
  std::string point() const;
  /// Declares i0, i1, ... of the outer axes from `o`, of type i32 or i64, where they are several.
  void outer_positions(bool narrow);
  /// Declares x0, y1, ...: where operands that `used` loads and stores touch begin at the outer point.
  void outer_pointers(bool narrow, const std::vector<int>& used);
  /// Opens the loop of a thread block over `units` of its own.
  void open_units(const std::string& units, bool narrow);
  /// Opens the loop of a thread block over rows (outer points), `rows` at a time with `team` threads each, and names
  /// the point. Gives how the length of the thread's row is spelled: 0 where there is none. full: there always is one.
  std::string open_rows(int rows, int team, bool full, bool narrow_rows, bool narrow_length);
  /// "MINE && " before what only threads with a row do, or nothing.
  std::string has_row(int rows, bool full, bool narrow_rows);
  /// Instructions outside loops, of loops [first, last) and, if asked, the stores after them.
  std::vector<int> needed(int first, int last, bool ends) const;
  std::vector<int> all_needed() const { return needed(0, static_cast<int>(form_.loops.size()), true); }
  /// Where operand `slot` begins: its own name at the outer point, or the parameter if it is the same at all.
  std::string pointer_name(int slot);
  bool moves(int slot) const;
  /// An operand that no result may lie on.
  bool is_unwritten(int slot) const;
  /// Whether an operand that each point of the outer axes has one of may lie where such a result goes.
  bool overwrites_points() const;

  // ---- the whole ----
  /// The launch: head with comments, struct and body as printed so far (which the caller has closed).
  CudaLaunch finish(int threads, int shared_bytes, Grid grid, const std::string& how, int min_blocks = 1);
  std::string symbol() const;
  /// The lines printed so far.
  const std::string& body() const { return body_; }
  /// In place of the kernel's own name, for a second kernel.
  std::string suffix;

  Params params;
  const Job& job_;
  const loop_ir::Lowered& low_;
  const loop_ir::Kernel& k_;
  const Form& form_;

 private:
  std::string expression(const loop_ir::Instr& i) const;
  bool reads_first(int id) const;
  std::string guarded(const loop_ir::Instr& i, const std::string& x) const;
  std::string converted(std::string x, loop_ir::Type from, loop_ir::Type to, bool wraps) const;
  std::string pointwise(const loop_ir::Instr& i) const;
  std::string body_;
  mutable Params* fields_ = &params;
  int depth_ = 1;
};

/// What loops keep in registers: arrays of `steps` values of a thread.
struct Arrays {
  std::vector<bool> kept;                 // by instruction
  std::vector<std::vector<int>> compute;  // by loop: values it computes itself, in order
};
/// At most `budget` registers of arrays of `steps`, or none.
Arrays choose_arrays(const Form& form, int steps, int budget);
/// How many steps of a loop that is written out may have their loads under way at once, lest they take all registers;
/// 0: all.
int steps_at_once(const Form& form, const Arrays& arrays, int loop, int steps);
/// Operations of all loops at one position.
int operations(const Form& form);

CudaLaunch print_flat(const Job& job);
CudaLaunch print_tiles(const Job& job);
CudaLaunch print_rows(const Job& job);
/// False: the rows do not fit in shared memory, or nothing would come there.
bool print_staged_rows(const Job& job, CudaLaunch* launch);
CudaLaunch print_columns(const Job& job);
/// Sums over rows alone.
CudaLaunch print_column_sums(const Job& job);
/// False: batches of rows do not fit in shared memory.
bool print_staged_columns(const Job& job, CudaLaunch* launch);
CudaLaunch print_across(const Job& job);
CudaLaunch print_split(const Job& job);
/// Combines partial sums that print_columns or print_split left in scratch.
CudaLaunch print_finish(const Job& job);
/// Bytes of scratch for those, by slot after one another: their offsets.
std::vector<int64_t> partial_offsets(const Job& job, int64_t* total);

}  // namespace weft::cuda
