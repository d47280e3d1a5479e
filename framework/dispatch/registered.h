// Registered: the reference inside a handle (a Parameter, a module) that a registry (a module) can follow. A registry
// that lists a handle asks it for its slot, and sees in the slot what was assigned to the handle last.
#pragma once
#include <string>
#include <utility>

#include "framework/base/ref.h"
#include "framework/dispatch/clone.h"

namespace weft::internal {

/// What a registry sees of a registered handle.
template <class T>
struct Slot final : RefCounted {
  Ref<T> value;
  const void* holder = nullptr;  // the one handle whose assignments change `value`
  std::string path;              // the registry's name for the handle
};

/// A copy refers to the same object, but no registry follows assignments to the copy. A move transfers the slot
/// to the new handle, as when a vector grows; the old handle gets its slot back when it is assigned to.
template <class T>
class Registered {
 public:
  Registered() = default;
  explicit Registered(Ref<T> ref) : ref_(std::move(ref)) {}
  Registered(const Registered& o) : ref_(o.ref_) {}
  Registered(Registered&& o) noexcept : ref_(std::move(o.ref_)) { take(o); }
  Registered& operator=(const Registered& o) {
    if (this != &o) assign(o.ref_);
    return *this;
  }
  Registered& operator=(Registered&& o) noexcept {
    if (this == &o) return *this;
    if (!followed()) take(o);
    assign(std::move(o.ref_));
    return *this;
  }
  /// The copy of `o` that refers to `ref`. Inside clone() it is followed by the clone of the registry of `o`.
  static Registered clone_of(const Registered& o, Ref<T> ref, const CloneScope& scope) {
    Registered made(std::move(ref));
    if (!o.followed()) return made;
    if (Ref<RefCounted> slot = scope.find(o.slot_.get())) {
      made.slot_ = Ref<Slot<T>>(static_cast<Slot<T>*>(slot.get()));
      made.slot_->holder = &made;  // the move out of this function hands it on
    }
    return made;
  }

  const Ref<T>& ref() const { return ref_; }
  T* operator->() const { return ref_.get(); }
  T& operator*() const { return *ref_; }
  explicit operator bool() const { return static_cast<bool>(ref_); }

  /// True if a registry sees what is assigned to this handle.
  bool followed() const { return slot_ && slot_->holder == this; }
  /// The slot of this handle, made at the first call.
  const Ref<Slot<T>>& slot() const {
    if (!followed()) {
      slot_ = make_ref<Slot<T>>();
      slot_->value = ref_;
      slot_->holder = this;
    }
    return slot_;
  }

 private:
  void take(const Registered& o) {
    if (!o.followed()) return;
    slot_ = o.slot_;
    slot_->holder = this;
  }
  void assign(Ref<T> ref) {
    if (slot_ && !ref_ && !followed()) slot_->holder = this;  // moved from before
    ref_ = std::move(ref);
    if (followed()) slot_->value = ref_;
  }

  Ref<T> ref_;
  mutable Ref<Slot<T>> slot_;
};

}  // namespace weft::internal
