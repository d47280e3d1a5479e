// Charts of the precision tool.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "tools/draw/chart.h"
#include "tools/precision/op_errors.h"
#include "tools/precision/tensor_ranges.h"

namespace weft::precision {

/// The range of each float format in powers of two: subnormal and normal numbers.
draw::Chart format_chart();
/// Median relative error by op, a series for each format but TF32 and E2M1.
draw::Chart op_chart(const std::vector<OpError>& errors);
/// The share of elements by magnitude for each kind of tensor, and the ranges of small formats below.
std::vector<draw::Chart> range_charts(const std::map<TensorKind, Magnitudes>& totals);

/// A value for each step.
struct Curve {
  std::string label;
  std::vector<double> values;
};
draw::Chart curve_chart(const std::string& title, const std::string& y, const std::vector<Curve>& curves,
                        bool logarithmic = false);

}  // namespace weft::precision
