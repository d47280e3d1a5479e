// CloneScope: during its lifetime, copying a cell's handle on this thread gives a handle to a new cell with the same
// value; all copies of one handle share one new cell. So the copy constructor of an object full of handles makes an
// independent object.
#pragma once
#include <utility>
#include <vector>

#include "framework/base/ref.h"

namespace weft {

struct Cell;

namespace internal {

class CloneScope {
 public:
  CloneScope();
  ~CloneScope();
  CloneScope(const CloneScope&) = delete;
  /// The clone of a cell, made at the first call; null stays null.
  Ref<Cell> of(const Ref<Cell>& cell);
  /// The clone of another shared object if `remember` was called for it, otherwise null.
  Ref<RefCounted> find(const RefCounted* original) const;
  void remember(const RefCounted* original, Ref<RefCounted> clone) { seen_.emplace_back(original, std::move(clone)); }

 private:
  std::vector<std::pair<const RefCounted*, Ref<RefCounted>>> seen_;
  CloneScope* saved_;
};
// Copy constructors have no argument to pass it through.
extern thread_local constinit CloneScope* clone_scope;

}  // namespace internal

/// An independent copy of a value that holds cells (a module, a vector of parameters), with new cells.
template <class T>
T clone(const T& value) {
  internal::CloneScope scope;
  return T(value);
}

}  // namespace weft
