// Loops over rows that lie in shared memory: operands come there once, 16 bytes at a time and all under way together;
// sums read them in the order of reduce_order.h, and results leave in vectors of up to 16 bytes from there.
// A row begins in shared memory as far behind a multiple of 16 bytes as it does in memory: 0 where the plan proves it
// (even), else found at run time.
#pragma once
#include <string>
#include <vector>

#include "compiler/targets/cuda/print/writer.h"

namespace weft::cuda {

class Stage : protected Writer {
 protected:
  /// Of rows (or pieces of them that begin at multiples of 1024) of at most n elements. What is the same for all rows
  /// stays where it is, unless there is one row.
  Stage(const Job& job, int64_t n);

  /// Sums along the lanes, or stores in vectors; or, first, in vectors too, values that cost much and that no sum is
  /// needed for, with the stores that need none: what only these read does not come to shared memory.
  struct Part {
    int loop = 0;
    bool stores = false;
    std::vector<int> sinks, compute, reads;  // reads: values that an earlier part kept in shared memory
  };
  /// The loops as parts; values that cost much and that several need are kept. What is kept is laid out behind loads.
  void find_parts(bool keeps);
  /// Whether some operand, or some value, comes to shared memory.
  bool stages() const { return !loads_.empty() || !kept_.empty(); }
  bool copies() const { return !loads_.empty(); }
  /// Bytes of shared memory of one row, a multiple of 64 that is none of 128: half warps on neighbouring rows meet in
  /// no bank.
  int64_t row_bytes() const { return (row_bytes_ + 127) / 128 * 128 + 64; }

  /// Declares the tiles of a row that begins at byte `at`, and shifts; pointers are declared.
  void declare_tiles(const std::string& at);
  /// Copies of the loads that are (or are not) at a position that a number chooses.
  void copy_tiles(bool gathered, const std::string& n, const std::string& who, const std::string& team);
  /// Whether there are loads of that kind.
  bool has_gathered() const;
  /// Whether the plan proves that all rows that come begin and end at multiples of 16 bytes.
  bool tiles_even() const;
  /// The loads that come to shared memory; those of `ids` that do not.
  std::vector<int> staged() const;
  std::vector<int> unstaged(const std::vector<int>& ids) const;

  /// Values of a part at position l, and what it keeps.
  void lane_values(const Part& part);
  /// Stores of a part by `team` threads of a row.
  void print_stores(const Part& part, const std::string& n, const std::string& who, const std::string& team);

  std::string op(int r) const { return reduction_type(k_.instrs[r].rd); }
  std::string type(int id) const { return type_name(k_.instrs[id].type); }
  std::string identity(int r) const { return cat_identity(r); }

  std::string tile_index = "l";  // of position l in a row's tile
  std::string origin;            // what is added to where operands begin, for that tile: " + first"
  std::vector<Part> parts_;
  int64_t lanes_, points_;
  bool narrow_;
  int width_ = 1;      // elements of a vector of stores
  bool even_ = false;  // stores are at multiples of width_, of lengths that are such

 private:
  struct Tile {
    int id = 0;
    int64_t offset = 0;
    bool even = false, gathered = false, kept = false;
  };
  std::string cat_identity(int r) const;
  bool is_even(int slot, bool indexed) const;
  bool is_unit(int slot) const { return k_.operands[slot].strides.back() == loop_ir::StrideKind::kUnit; }
  const Tile* tile_of(int id) const;
  void find_first_part();
  bool gathers_rows(const loop_ir::Instr& i) const {
    return i.a >= 0 && !form_.in_loop(i.a) && form_.stage[form_.same[i.a]] == 0;
  }
  std::string address(const loop_ir::Instr& i);
  std::string place(const loop_ir::Instr& i);
  bool packed(int id) const;

  std::vector<Tile> loads_, kept_;
  int64_t n_;
  int64_t row_bytes_ = 0;
  bool in_vectors_ = false;
};

}  // namespace weft::cuda
