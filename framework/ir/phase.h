// Phase: the part of a training step that a node, a launch or a collective belongs to.
#pragma once
#include <cstdint>

namespace weft {

/// An update reads a gradient and is not part of one.
enum class Phase : uint8_t { kForward, kBackward, kUpdate };
/// "forward", "backward", "update".
inline const char* to_string(Phase phase) {
  constexpr const char* kNames[] = {"forward", "backward", "update"};
  return kNames[static_cast<int>(phase)];
}

}  // namespace weft
