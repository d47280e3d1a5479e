// The thread for which this thread works: a worker of a pool and a rank of a mesh work for the thread that runs the
// step.
#pragma once

namespace weft::internal {

extern thread_local constinit const void* acting_for;  // null: for itself

/// Names the thread for which this thread works; unique among running threads.
inline const void* actor() { return acting_for ? acting_for : &acting_for; }

/// During its lifetime, this thread works for another one.
class ActFor {
 public:
  explicit ActFor(const void* actor) : saved_(acting_for) { acting_for = actor; }
  ~ActFor() { acting_for = saved_; }
  ActFor(const ActFor&) = delete;

 private:
  const void* saved_;
};

}  // namespace weft::internal
