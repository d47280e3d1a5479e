// The model of the equality matrix: dense layers and layers with experts, grouped-query heads, packed documents,
// dropout, tied embedding, accumulation over micro-batches; and one run of it, on one device or on a mesh.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "distributed/launch/compile.h"
#include "weft.h"

namespace weft::testing {

struct MatrixCase {
  std::string mesh;  // "": one device
  dist::Plan plan;
  double capacity = 0;  // capacity of experts; 0: dropless
  DType dtype = kFloat64;
  int64_t vocab = 264;
  int steps = 3;
  std::string folder = {};  // where the run saves its state; "": nowhere
  bool one_device() const { return mesh.empty(); }
  /// "dp2,tp2 zero1 cp:ring/headtail dropless f64".
  std::string name() const;
};

/// The values that must be equal between runs.
struct MatrixRun {
  std::vector<double> losses, norms;
  std::vector<std::pair<std::string, std::vector<double>>> cells;  // parameters, optimiser state, counts, generator
  std::vector<std::string> planned, actual;     // collectives of the last rank of this process in one step
  int64_t planned_peak = 0, measured_peak = 0;  // peaks of the largest rank
  // Files of model and optimiser: as all processes write them in parts, and as the first one writes whole values.
  std::vector<std::string> saved, whole;
  int64_t save_bytes = 0;  // memory that saving in parts needed besides the cells
};
MatrixRun run_case(const MatrixCase& c);

/// The differences, most surprising first, a line each; empty if the runs are equal. Losses may differ by the fraction
/// `loss_tol` of the wanted loss, gradient norms by the fraction `tol` of the wanted norm. The elements of a cell may
/// differ by `tol` times a scale: the largest |element| of the wanted cell, or 0.001 of the largest |element| of all
/// parameters if that is larger. Counts and the state of the generator are equal.
std::string difference(const MatrixRun& got, const MatrixRun& want, double tol, double loss_tol);

}  // namespace weft::testing
