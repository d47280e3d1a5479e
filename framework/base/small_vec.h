// A vector that stores its first N elements inside itself: operand lists of graph nodes and launches rarely allocate.
#pragma once
#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace weft {

template <class T, size_t N>
class SmallVec {
 public:
  using value_type = T;
  SmallVec() = default;
  SmallVec(std::initializer_list<T> v) {
    for (const T& x : v) push_back(x);
  }
  explicit SmallVec(std::span<const T> v) {
    reserve(v.size());
    for (const T& x : v) push_back(x);
  }
  explicit SmallVec(size_t n) { resize(n); }
  SmallVec(const SmallVec& o) : SmallVec(std::span<const T>(o.data(), o.size())) {}
  SmallVec(SmallVec&& o) noexcept { take(o); }
  SmallVec& operator=(const SmallVec& o) {
    if (this != &o) {
      SmallVec copy(o);
      *this = std::move(copy);
    }
    return *this;
  }
  SmallVec& operator=(SmallVec&& o) noexcept {
    if (this != &o) {
      destroy();
      take(o);
    }
    return *this;
  }
  ~SmallVec() { destroy(); }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& back() { return data_[size_ - 1]; }
  const T& back() const { return data_[size_ - 1]; }
  bool contains(const T& v) const { return std::find(begin(), end(), v) != end(); }

  void push_back(T v) {
    if (size_ == cap_) reserve(cap_ * 2);
    new (data_ + size_) T(std::move(v));
    ++size_;
  }
  void pop_back() { data_[--size_].~T(); }
  void clear() {
    while (size_) pop_back();
  }
  void resize(size_t n) {
    reserve(n);
    while (size_ < n) {
      new (data_ + size_) T();
      ++size_;
    }
    while (size_ > n) pop_back();
  }
  void reserve(size_t n) {
    if (n <= cap_) return;
    T* p = std::allocator<T>().allocate(n);
    for (size_t i = 0; i < size_; ++i) {
      new (p + i) T(std::move(data_[i]));
      data_[i].~T();
    }
    if (data_ != inline_data()) std::allocator<T>().deallocate(data_, cap_);
    data_ = p;
    cap_ = n;
  }
  operator std::span<const T>() const { return {data_, size_}; }
  operator std::span<T>() { return {data_, size_}; }
  friend bool operator==(const SmallVec& a, const SmallVec& b) {
    if (a.size_ != b.size_) return false;
    for (size_t i = 0; i < a.size_; ++i)
      if (!(a.data_[i] == b.data_[i])) return false;
    return true;
  }

 private:
  T* inline_data() { return reinterpret_cast<T*>(raw_); }
  void destroy() {
    clear();
    if (data_ != inline_data()) std::allocator<T>().deallocate(data_, cap_);
    data_ = inline_data();
    cap_ = N;
  }
  void take(SmallVec& o) {
    if (o.data_ != o.inline_data()) {
      data_ = std::exchange(o.data_, o.inline_data());
      cap_ = std::exchange(o.cap_, N);
      size_ = std::exchange(o.size_, 0);
      return;
    }
    for (size_t i = 0; i < o.size_; ++i) new (data_ + i) T(std::move(o.data_[i]));
    size_ = o.size_;
    o.clear();
  }

  alignas(T) unsigned char raw_[N * sizeof(T)];
  T* data_ = inline_data();
  size_t size_ = 0;
  size_t cap_ = N;
};

}  // namespace weft
