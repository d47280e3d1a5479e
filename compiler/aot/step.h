// A step compiled ahead of time: the base of the classes that aot_export (export.h) writes. It replays kernels that are
// already machine code; nothing here traces, optimises, generates code or looks for a compiler.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/tensor/tensor.h"

namespace weft {

class Graph;

/// What an exported file holds. All of it lives as long as the program.
struct AotProgram {
  const char* name = "";
  const char* isa = "";    // instruction set of the kernels
  std::string_view graph;  // the scheduled graph, with the user's ops and lines
  std::string_view plan;   // compiler/aot/plan_text.h
  std::span<const void* const> kernels;
  std::string_view values;  // text: what lies where in `data`; of cells, where they are in a file, nothing
  std::span<const unsigned long long> data;
};

/// Arguments, results and state are those of the function that was exported, flattened; one call at a time.
class AotStep {
 public:
  AotStep(const AotStep&) = delete;
  AotStep& operator=(const AotStep&) = delete;
  virtual ~AotStep();

  /// Names of the state: parameters, buffers, the optimiser's and the random generator's cells.
  std::vector<std::string> cells() const;
  /// Value of a cell. Throws NotFound for other names, FailedPrecondition if it has none yet.
  Tensor cell(std::string_view name) const;
  /// Gives a cell a value of its shape and dtype.
  void set(std::string_view name, const Tensor& value);
  /// Reads all cells from a safetensors file (as export or save wrote it), or throws and changes none.
  void load(const std::string& path);
  /// Writes all cells to a safetensors file, atomically.
  void save(const std::string& path) const;

 protected:
  /// Throws if the program does not fit this build of Weft, or its kernels this processor.
  explicit AotStep(const AotProgram& program);
  /// One step. Throws InvalidArgument, changing nothing, for arguments of other shapes,
  /// dtypes or devices than exported.
  std::vector<Tensor> run(std::span<const Tensor> args);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

namespace internal {
class LaunchCheck;
/// Tests set it, so that the first results of kernels are compared with their ops; null otherwise.
extern std::unique_ptr<LaunchCheck> (*aot_check_for_test)();
/// What cell `index` is called in files and by AotStep: its name, or "cell.INDEX" if it has none of its own.
std::string aot_cell_name(const Graph& g, size_t index);
}  // namespace internal

}  // namespace weft
