// Instructions of a kernel being lowered: constants and parameters, conversions, roundings, positions along axes. Each
// goes to the end of a segment that the caller names and is told by its index.
#pragma once
#include <string>
#include <vector>

#include "compiler/loop_ir/lower_group.h"

namespace weft::loop_ir {

bool is_16bit(DType t);
/// What a value of this dtype is computed as.
Type type_of(DType t);
/// A number among the attributes, whole or not.
double number(const Attrs& attrs, const char* key);

class Instructions {
 public:
  Instructions(const Graph& body, const LowerOptions& options) : g_(body), options_(options) {}

 protected:
  static Level join(Level a, Level b);
  /// The user's op and line.
  std::string note_of(int32_t node) const;

  int add(Instr instr, std::vector<int>& segment);
  /// Written into the text where that is plain, else a parameter.
  int scalar(double value, Type type, const std::string& note, std::vector<int>& segment);
  /// The constant of a node, as its kernel converts it.
  int constant(int32_t node, std::vector<int>& segment);
  int converted(int value, Type to, std::vector<int>& segment);
  /// As the node's dtype rounds it, where options say so.
  int rounded(int value, int32_t node, std::vector<int>& segment);
  /// first + the sum over axes of their position times strides[axis], i64.
  int position(double first, const std::vector<double>& strides, const std::string& note, std::vector<int>& segment);
  /// Names the 16-bit values that stay f32 inside: Lowered::rounds_less.
  void list_rounds();

  const Graph& g_;
  const LowerOptions& options_;
  Lowered low_;

 private:
  std::vector<Type> param_type_;
  std::vector<int32_t> unrounded_;
};

}  // namespace weft::loop_ir
