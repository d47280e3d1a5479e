// Registered: the reference inside a handle (a Parameter, a module) that a registry (a module) can follow. A registry
// that lists a handle asks it for its slot, and sees in the slot the handle's last assignment.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "framework/base/ref.h"
#include "framework/dispatch/state/clone.h"

namespace weft::internal {

/// Counts the assignments that gave a registered handle another object. A compiled step that was captured before the
/// last of them may use objects that no registry lists any more.
inline std::atomic<uint64_t> registered_changes{0};

/// Where the object of a registry is. Moving the object updates it, before its members are moved.
struct RegistryPlace final : RefCounted {
  const void* object = nullptr;  // null after the object was assigned another registry
};

/// The data that a registry and a registered handle share.
template <class T>
struct RegisteredSlot final : RefCounted {
  Ref<T> value;
  const void* holder = nullptr;    // the one handle whose assignments change `value`
  const void* moved_to = nullptr;  // the handle that `holder` was moved to: the holder once `holder` is destroyed
  Ref<RegistryPlace> registry;     // the first registry of the handle
  const void* object = nullptr;    // the registry's object when `holder` was set
  std::string path;                // the registry's name for the handle

  /// Notes that the handle is registered in `first`, unless it was registered before.
  void enter(const Ref<RegistryPlace>& first) {
    if (registry) return;
    registry = first;
    object = first->object;
  }
  void hold(const void* handle) {
    holder = handle;
    moved_to = nullptr;
    if (registry) object = registry->object;
  }
  /// Where the holder is, if it is a member of the registry's object: it moves with that object.
  const void* place() const {
    if (!holder || !registry || !registry->object || !object) return nullptr;
    return reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(registry->object) +
                                         (reinterpret_cast<uintptr_t>(holder) - reinterpret_cast<uintptr_t>(object)));
  }
};

/// A copy refers to the same object, but no registry follows assignments to the copy. A move takes the slot along in
/// two cases: the object of the registry has moved, and the new handle is the same member of it; or the old handle is
/// destroyed, as when a vector grows. In every other move each handle keeps its slot. So a swap of two registered
/// handles changes both registries.
template <class T>
class Registered {
 public:
  Registered() = default;
  explicit Registered(Ref<T> ref) : ref_(std::move(ref)) {}
  Registered(const Registered& o) : ref_(o.ref_) {}
  Registered(Registered&& o) noexcept {
    take(o);
    set(std::move(o.ref_));
  }
  Registered& operator=(const Registered& o) {
    if (this == &o) return *this;
    if (!followed()) slot_ = {};
    set(o.ref_);
    return *this;
  }
  Registered& operator=(Registered&& o) noexcept {
    if (this == &o) return *this;
    if (!followed()) slot_ = {};
    take(o);
    set(std::move(o.ref_));
    return *this;
  }
  ~Registered() {
    if (!slot_) return;
    if (slot_->moved_to == this) slot_->moved_to = nullptr;
    if (followed()) slot_->hold(slot_->moved_to);
  }
  /// The copy of `o` that refers to `ref`. Inside clone() it is followed by the clone of the registry of `o`.
  static Registered clone_of(const Registered& o, Ref<T> ref, const CloneScope& scope) {
    Registered made(std::move(ref));
    if (!o.followed()) return made;
    if (Ref<RefCounted> slot = scope.find(o.slot_.get())) {
      made.slot_ = Ref<RegisteredSlot<T>>(static_cast<RegisteredSlot<T>*>(slot.get()));
      made.slot_->hold(&made);  // the move out of this function transfers it
    }
    return made;
  }

  const Ref<T>& ref() const { return ref_; }
  T* operator->() const { return ref_.get(); }
  T& operator*() const { return *ref_; }
  explicit operator bool() const { return static_cast<bool>(ref_); }

  /// True if a registry sees assignments to this handle.
  bool followed() const { return slot_ && slot_->holder == this; }
  /// The slot of this handle, made at the first call.
  const Ref<RegisteredSlot<T>>& slot() const {
    if (!followed()) {
      slot_ = make_ref<RegisteredSlot<T>>();
      slot_->value = ref_;
      slot_->hold(this);
    }
    return slot_;
  }

 private:
  void take(const Registered& o) {
    if (!o.followed() && !(o.slot_ && o.slot_->moved_to == &o)) return;
    if (o.slot_->place() == this) {
      slot_ = o.slot_;
      slot_->hold(this);
    } else if (!followed()) {
      slot_ = o.slot_;
      slot_->moved_to = this;
    }
  }
  void set(Ref<T> ref) {
    ref_ = std::move(ref);
    if (!followed()) return;
    if (slot_->registry && slot_->value.get() != ref_.get()) registered_changes.fetch_add(1, std::memory_order_relaxed);
    slot_->value = ref_;
    slot_->moved_to = nullptr;
  }

  Ref<T> ref_;
  mutable Ref<RegisteredSlot<T>> slot_;
};

}  // namespace weft::internal
