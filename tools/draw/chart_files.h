// Files that //tools:plot draws: metrics of a training run, and charts as JSON.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tools/draw/chart.h"

namespace weft::draw {

/// The charts of a metrics file (one JSON object a line, as --metrics of the trainers writes it): loss by step and, for
/// mixtures of experts, the share of tokens by expert, and by layer the fullest expert over the mean, experts without
/// tokens and dropped choices. Throws InvalidArgument for other text. The error names `file`, the line, the field, the
/// given value and the needed value.
std::vector<Chart> metrics_charts(std::string_view text, const std::string& file, const std::string& title);

/// The charts of a JSON file:
///   {"panels": [{"title", "x": AXIS, "y": AXIS, "lines": [SERIES], "dots": [SERIES], "limits": [SERIES],
///                "bars": {"labels": [TEXT], "width", "bars": [{"at", "parts": [[LABEL, HEIGHT], ...]}]}}]}
/// where SERIES is {"label", "points": [[x, y], ...]}, LABEL the number of a label, and AXIS {"label", "from", "to"},
/// with "base" if it is logarithmic, or {"label", "names": [TEXT]}. All but panels, title, x and y may be absent.
/// Throws InvalidArgument, naming `file`, for any other text.
std::vector<Chart> json_charts(std::string_view text, const std::string& file);

}  // namespace weft::draw
