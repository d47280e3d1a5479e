// The parameter struct of a kernel: its text, and its bytes for one launch.
#pragma once
#include <string>
#include <vector>

#include "compiler/loop_ir/loop_ir.h"
#include "compiler/targets/cuda/print/plan.h"

namespace weft::cuda {

/// A field is added when the text first uses it. Each call returns the text for the kernel's body ("p.n0").
class Params {
 public:
  std::string pointer(const std::string& type, const std::string& name, Pointer what);
  std::string number(loop_ir::Type type, const std::string& name, double value);
  std::string i32(const std::string& name, int64_t value);
  std::string i64(const std::string& name, int64_t value);
  /// A divisor (Div in loops.inc) of numbers below 2^31.
  std::string div(const std::string& name, int64_t divisor);

  /// "struct NAME { ... };", fields in order of decreasing size.
  std::string text(const std::string& name) const;
  void write(CudaLaunch* launch) const;

 private:
  struct ParamField {
    std::string type, name;
    std::vector<char> bytes;
    Pointer what;
    bool is_pointer = false;
    int align = 8;
  };
  std::string add(ParamField field);
  std::vector<ParamField> sorted() const;
  std::vector<ParamField> fields_;
};

}  // namespace weft::cuda
