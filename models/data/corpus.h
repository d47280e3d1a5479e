// The training text embedded in every program: the works of Shakespeare (models/data/corpus/README.md).
#pragma once
#include <string>

namespace weft::data {

/// 5 053 117 bytes of ASCII. Each call decompresses them.
std::string embedded_corpus();

}  // namespace weft::data
