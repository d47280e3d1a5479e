// The training text that every program carries: the works of Shakespeare (models/data/corpus/README.md).
#pragma once
#include <string>

namespace weft::data {

/// 5 053 117 bytes of ASCII, unpacked anew by each call.
std::string embedded_corpus();

}  // namespace weft::data
