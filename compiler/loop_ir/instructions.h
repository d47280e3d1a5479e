// Instructions of a kernel that is being lowered: constants and parameters, conversions, roundings, positions along
// axes. Each function appends to the segment that the caller passes and returns the index of the instruction.
#pragma once
#include <string>
#include <vector>

#include "compiler/loop_ir/lower_group.h"

namespace weft::loop_ir {

/// The type in which a value of this dtype is computed.
Type type_of(DType t);

class Instructions {
 public:
  Instructions(const Graph& body, const LowerOptions& options) : g_(body), options_(options) {}

 protected:
  static Level join(Level a, Level b);
  /// The user's op and source line.
  std::string note_of(int32_t node) const;

  int add(Instr instr, std::vector<int>& segment);
  /// A literal in the text if it is a simple number; otherwise a parameter.
  int scalar(double value, Type type, const std::string& note, std::vector<int>& segment);
  /// The constant of a node, converted as its kernel converts it.
  int constant(int32_t node, std::vector<int>& segment);
  int converted(int value, Type to, std::vector<int>& segment);
  /// Rounded to the node's dtype, if the options ask for it.
  int rounded(int value, int32_t node, std::vector<int>& segment);
  /// first + the sum over axes of position * strides[axis], as i64.
  int position(double first, const std::vector<double>& strides, const std::string& note, std::vector<int>& segment);
  /// Lists the 16-bit values that stay f32 inside the kernel: Lowered::rounds_less.
  void list_rounds();

  const Graph& g_;
  const LowerOptions& options_;
  Lowered low_;

 private:
  std::vector<Type> param_type_;
  std::vector<int32_t> unrounded_;
};

}  // namespace weft::loop_ir
