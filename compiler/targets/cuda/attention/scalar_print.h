// Prints a graph of 0-d values as statements of a scalar C++ function. A value with one use is printed at that use;
// other values get a name. Tables are read by flat position.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "framework/ir/graph.h"
#include "ops/attention/masks/mask_range.h"

namespace weft::cuda {

/// Bits for the indices on which a value depends.
enum ScalarDep : uint8_t { kOnQuery = 1, kOnKey = 2, kOnDistance = 4, kOnBatch = 8, kOnHead = 16 };

/// An input of the graph: its text, its range and its dependencies.
struct ScalarInput {
  std::string text;  // a name; for a table, the address of its array
  bool table = false;
  internal::MaskRange range{};  // for integers
  uint8_t deps = 0;             // ScalarDep
};

class ScalarPrinter {
 public:
  /// For outputs [first, last) of the graph, which must outlive the printer. what: the name of the mod in errors.
  ScalarPrinter(const Graph& g, std::span<const ScalarInput> inputs, int first, int last, const char* what);
  /// The expression of output i. statements() holds the statements that it needs so far.
  std::string output(int i);
  /// The ScalarDep bits of output i.
  uint8_t deps(int i) const;
  const std::string& statements() const { return statements_; }

 private:
  struct At {
    std::string text;
    bool atom = false;    // needs no parentheses beside any operator
    bool narrow = false;  // an i64 printed as int
    bool printed = false;
    internal::MaskRange range{};
    uint8_t deps = 0;
    int table = -1;  // the index of the input
    char line = 0;   // 'q' or 'k': it is that position plus a constant
    int uses = 0;
  };
  void analyse(int32_t id);
  void print(int32_t id);
  std::string pointwise(const Node& n, At* to);
  std::string constant(const Node& n) const;
  std::string read(const Node& n);
  /// The text of operand i, in parentheses unless `bare`; wide: an i64 as int64.
  std::string operand(const Node& n, int i, bool wide, bool bare = false);
  /// The operand that a choice always selects, if the ranges decide it; otherwise -1.
  int settled(const Node& n) const;
  At& of(Value v) { return at_[static_cast<size_t>(v.node)]; }
  const At& of(Value v) const { return at_[static_cast<size_t>(v.node)]; }

  const Graph& g_;
  const char* what_;
  std::vector<At> at_;
  std::vector<ScalarInput> inputs_;
  std::string statements_;
  int names_ = 0;
};

}  // namespace weft::cuda
