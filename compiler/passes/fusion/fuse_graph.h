// The facts about a graph that fusion needs: the role of each node, and the reads of each unit through views. Edges
// skip views and constants: a unit (a node that is launched or fused) reads root values.
#pragma once
#include <algorithm>
#include <span>
#include <vector>

#include "framework/ir/graph.h"

namespace weft::fusion {

enum class Role : uint8_t {
  kDead,    // nothing needs it
  kSource,  // input, cell, captured
  kFree,    // computed from constants and iota only, by few ops: every kernel that needs it computes it, unless it
  // is a small mask that is read many times
  kView,       // a view of its root's memory
  kPointwise,  // units start here; also a reshape that must move elements
  kReduction,
  kProduct,  // dot, grouped_dot of rows
  kLibrary,  // never fused
};

/// How a value is read: position (i, j, k) of a x b x c reads element i * c + k; b is 1 unless elements are repeated.
struct Spread {
  bool regular = true;  // false: any other view (permuted, sliced)
  int64_t a = 1, b = 1, c = 1;
  bool linear() const { return regular && b == 1; }
};

struct Read {
  Value value;       // the root
  int32_t node = 0;  // the reader
  Spread map;
  bool whole = true;      // all elements are read: no slice in between
  bool gathered = false;  // at computed positions (map is irregular)
  int64_t row = 0;        // gathered: position p of the reader reads from row p of this many elements; 0: anywhere
};

class FusionGraph {
 public:
  /// `free_chains`: nodes computed from iota and constants are kFree too, not only constants.
  FusionGraph(const Graph& g, bool free_chains);

  const Graph& graph() const { return g_; }
  int32_t size() const { return g_.size(); }
  Role role(int32_t id) const { return role_[id]; }
  bool is_unit(int32_t id) const { return role_[id] >= Role::kPointwise; }
  bool is_free(int32_t id) const { return role_[id] == Role::kFree; }
  Value root(Value v) const { return role_[v.node] == Role::kView ? root_[v.node] : v; }
  /// The reads of unit `id`, without kFree values.
  std::span<const Read> reads(int32_t id) const {
    return {reads_.data() + first_read_[id], reads_.data() + first_read_[id + 1]};
  }
  /// Indices of the reads of all results of node `id`.
  std::span<const int32_t> readers(int32_t id) const {
    return {readers_.data() + first_reader_[id], readers_.data() + first_reader_[id + 1]};
  }
  const Read& read(int32_t i) const { return reads_[i]; }
  /// Units that must run before or after without passing a value: the readers and the writer of a cell; side effects
  /// and ordered nodes among each other.
  std::span<const int32_t> before(int32_t id) const { return before_[id]; }
  std::span<const int32_t> after(int32_t id) const { return after_[id]; }
  /// Whether the value, or a view of it, is an output or a cell's new value.
  bool pinned(Value v) const { return pinned_[value_id(v)]; }
  bool written(int32_t id) const { return written_[id]; }
  int32_t value_id(Value v) const { return first_value_[v.node] + v.index; }
  int32_t num_values() const { return first_value_.back(); }
  int64_t bytes(Value v) const { return g_.type(v).nbytes(); }
  /// Bytes that the reader fetches.
  int64_t bytes_read(const Read& r) const {
    const TensorType& t = g_.type(r.value);
    return r.gathered ? std::min(t.nbytes(), points(r.node) * itemsize(t.dtype)) : t.nbytes();
  }
  /// Whether the node is gather or index_select.
  bool chooses(int32_t id) const;
  /// Whether the node chooses at positions that differ from point to point.
  bool scatters_reads(int32_t id) const;
  /// Library calls before it in the program: a measure of time.
  int32_t library_calls_before(int32_t id) const { return library_calls_before_[id]; }
  /// The number of points that the node iterates over: the elements of a reduction's operand, otherwise of its result.
  int64_t points(int32_t id) const;

 private:
  void classify(bool free_chains);
  bool fusible(const Node& n) const;
  void connect();
  void order_edges();
  Spread spread_of(Value v) const;
  void follow_gather(const Node& n, int64_t k, Read& r) const;

  const Graph& g_;
  std::vector<Role> role_;
  std::vector<bool> live_, pinned_, written_;
  std::vector<Value> root_;
  std::vector<Spread> spread_;
  std::vector<Shape> strides_;
  std::vector<bool> whole_;
  std::vector<uint8_t> chain_;  // ops of a free chain
  std::vector<int32_t> first_value_, library_calls_before_;
  std::vector<Read> reads_;
  std::vector<int32_t> first_read_, readers_, first_reader_;
  std::vector<std::vector<int32_t>> before_, after_;
};

/// A reduction's operand as a x b x c with b reduced; irregular if the reduced dims are not adjacent.
Spread reduced_spread(const Shape& shape, const Shape& dims);
/// Composes the map from root to middle with the map from middle to result.
Spread compose(const Spread& first, const Spread& second);

}  // namespace weft::fusion
