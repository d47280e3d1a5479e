// A step compiled ahead of time: the base of the classes that aot_export (export.h) writes. It replays kernels that are
// already machine code. Nothing here traces, optimises, generates code or searches for a compiler.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/tensor/tensor.h"

namespace weft {

class Graph;
struct Node;

/// The content of an exported file. All of it is valid until the program ends.
struct AotProgram {
  const char* name = "";
  const char* isa = "";    // instruction set of the kernels
  std::string_view graph;  // the scheduled graph, with the user's ops and lines
  std::string_view plan;   // compiler/aot/plan_text.h
  std::span<const void* const> kernels;
  std::string_view values;  // text: the places of values in `data`; no cells if they are in a file
  std::span<const unsigned long long> data;
};

/// A step has the arguments, results and state of the exported function, flattened. Only one call may run at a time.
class AotStep {
 public:
  AotStep(const AotStep&) = delete;
  AotStep& operator=(const AotStep&) = delete;
  virtual ~AotStep();

  /// Names of the state: parameters, buffers, and the cells of the optimiser and the random generator.
  std::vector<std::string> cells() const;
  /// The value of a cell. Throws NotFound for an unknown name, FailedPrecondition if the cell has no value yet.
  Tensor cell(std::string_view name) const;
  /// Sets a cell to a value of its shape and dtype.
  void set(std::string_view name, const Tensor& value);
  /// Reads all cells from a safetensors file that export or save wrote. If it throws, no cell has changed.
  void load(const std::string& path);
  /// Writes all cells to a safetensors file, atomically.
  void save(const std::string& path) const;

 protected:
  /// Throws if the program does not match this build of Weft, or if this processor cannot run its kernels.
  explicit AotStep(const AotProgram& program);
  /// Runs one step. If an argument has a shape, dtype or device other than the exported one, it throws InvalidArgument
  /// and changes nothing.
  std::vector<Tensor> run(std::span<const Tensor> args);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

namespace internal {
class LaunchCheck;
/// Tests set it, so that the first results of kernels are compared with their ops; null otherwise.
extern std::unique_ptr<LaunchCheck> (*aot_check_for_test)();
/// The name of cell `index` in files and in AotStep: its own name, or "cell.INDEX" if it has none.
std::string aot_cell_name(const Graph& g, size_t index);
/// The first node, nested graphs included, whose op AotStep cannot find by name (a user's op); null if there is none.
const Node* aot_unknown_op(const Graph& g);
}  // namespace internal

}  // namespace weft
