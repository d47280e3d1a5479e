// Mutex over std::mutex with clang's thread annotations (absl::Mutex is a false positive under TSan here).
#pragma once
#include <mutex>

#if defined(__clang__)
#define WEFT_TSA(x) __attribute__((x))
#else
#define WEFT_TSA(x)
#endif
#define WEFT_GUARDED_BY(m) WEFT_TSA(guarded_by(m))
#define WEFT_REQUIRES(m) WEFT_TSA(requires_capability(m))

namespace weft {

class WEFT_TSA(capability("mutex")) Mutex {
 public:
  void lock() WEFT_TSA(acquire_capability()) { m_.lock(); }
  void unlock() WEFT_TSA(release_capability()) { m_.unlock(); }
  bool try_lock() WEFT_TSA(try_acquire_capability(true)) { return m_.try_lock(); }
  std::mutex& native() { return m_; }  // for std::condition_variable

 private:
  std::mutex m_;
};

class WEFT_TSA(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& m) WEFT_TSA(acquire_capability(m)) : m_(m) { m_.lock(); }
  ~MutexLock() WEFT_TSA(release_capability()) { m_.unlock(); }
  MutexLock(const MutexLock&) = delete;

 private:
  Mutex& m_;
};

}  // namespace weft
