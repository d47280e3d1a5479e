// The result of a study.
#pragma once
#include <string>
#include <vector>

#include "tools/draw/chart.h"

namespace weft::study {

struct StudyReport {
  std::string text;
  std::string json;  // one object
  std::vector<draw::Chart> charts;
  std::string problem = {};  // the error of the program; "": none
};

}  // namespace weft::study
