// Loops over rows in shared memory. Operands are copied there once, 16 bytes at a time, with all copies in flight
// together. Sums read them there in the order of reduce_order.h, and results are stored from there in vectors of up to
// 16 bytes. In shared memory a row has the same offset from a multiple of 16 bytes as in global memory. The offset is 0
// if the plan proves it (even); otherwise it is computed at run time.
#pragma once
#include <string>
#include <vector>

#include "compiler/targets/cuda/print/writer.h"

namespace weft::cuda {

class StageWriter : protected KernelWriter {
 protected:
  /// For rows (or pieces of rows that start at multiples of 1024) of at most n elements. Operands that are the same for
  /// all rows are not copied, unless there is only one row.
  StageWriter(const PrintJob& job, int64_t n);

  /// One pass over a row: sums along the lanes, or stores in vectors. A first part, also in vectors, may compute costly
  /// values that need no sum, with the stores that need none: operands that only it reads are not copied to shared
  /// memory.
  struct StagePart {
    int loop = 0;
    bool stores = false;
    std::vector<int> sinks, compute, reads;  // reads: values that an earlier part kept in shared memory
  };
  /// Splits the loops into parts. Costly values that several parts need are kept; they are laid out after the loads.
  void find_parts(bool keeps);
  /// Whether any operand or value is put into shared memory.
  bool stages() const { return !loads_.empty() || !kept_.empty(); }
  bool copies() const { return !loads_.empty(); }
  /// Bytes of shared memory per row: a multiple of 64, but not of 128, so that half warps on neighbouring rows use
  /// different banks.
  int64_t row_bytes() const { return (row_bytes_ + 127) / 128 * 128 + 64; }

  /// Declares the tiles of a row that starts at byte `at`, and their shifts. The pointers must be declared already.
  void declare_tiles(const std::string& at);
  /// Copies the loads that are (or are not) at a row chosen by an index.
  void copy_tiles(bool gathered, const std::string& n, const std::string& who, const std::string& team);
  /// Whether there are loads of gathered rows.
  bool has_gathered() const;
  /// Whether the plan proves that all copied rows start and end at multiples of 16 bytes.
  bool tiles_even() const;
  /// The loads that are copied to shared memory; and the loads of `ids` that are not.
  std::vector<int> staged() const;
  std::vector<int> unstaged(const std::vector<int>& ids) const;

  /// Prints the values of a part at position l, and keeps the values for later parts.
  void lane_values(const StagePart& part);
  /// Declares the vectors at l0 of loads (in_vectors_). kept: and of values that an earlier part kept.
  void load_vectors(const std::vector<int>& ids, bool kept = false);
  /// Whether the operand is read or written in vectors, outside shared memory.
  bool packed(int id) const;
  /// Prints the stores of a part, by `team` threads of a row.
  void print_stores(const StagePart& part, const std::string& n, const std::string& who, const std::string& team);

  std::string tile_index = "l";  // the index of position l in a row's tile
  std::string origin;            // added to the start of operands, for that tile: " + first"
  std::vector<StagePart> parts_;
  int width_ = 1;            // elements per vector of stores
  bool even_ = false;        // stores are at multiples of width_, with lengths that are multiples too
  bool in_vectors_ = false;  // element j of vectors at l0 is printed

 private:
  struct StagedTile {
    int id = 0;
    int64_t offset = 0;
    bool even = false, gathered = false, kept = false;
  };
  bool is_even(int slot, bool indexed) const;
  bool is_unit(int slot) const { return k_.operands[slot].strides.back() == loop_ir::StrideKind::kUnit; }
  const StagedTile* tile_of(int id) const;
  void find_first_part();
  bool gathers_rows(const loop_ir::Instr& i) const {
    return i.a >= 0 && !form_.in_loop(i.a) && form_.stage[form_.same[i.a]] == 0;
  }
  std::string address(const loop_ir::Instr& i);
  std::string place(const loop_ir::Instr& i);

  std::vector<StagedTile> loads_, kept_;
  int64_t n_;
  int64_t row_bytes_ = 0;
};

}  // namespace weft::cuda
