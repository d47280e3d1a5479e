// Arg: an operand of an op. Built implicitly from a Tensor, a cell or a number; it records the caller's line.
#pragma once
#include <source_location>

#include "framework/dispatch/parameter.h"
#include "framework/ir/graph.h"

namespace weft {

namespace internal {
/// A number as a signed one; throws if it is larger than 2^63 - 1.
int64_t signed_of(uint64_t number, SourceLine line);
}  // namespace internal

class Arg {
 public:
  using Loc = std::source_location;
  Arg(const Tensor& t, Loc loc = Loc::current()) : tensor_(&t), loc_(loc) {}
  Arg(const Parameter& p, Loc loc = Loc::current()) : own_(p.value(loc)), tensor_(&own_), loc_(loc) {}
  Arg(const Buffer& b, Loc loc = Loc::current()) : own_(b.value(loc)), tensor_(&own_), loc_(loc) {}
  Arg(double v, Loc loc = Loc::current()) : number_(v), kind_(kFloat), loc_(loc) {}
  Arg(float v, Loc loc = Loc::current()) : number_(v), kind_(kFloat), loc_(loc) {}
  Arg(int v, Loc loc = Loc::current()) : integer_(v), kind_(kInt), loc_(loc) {}
  Arg(long v, Loc loc = Loc::current()) : integer_(v), kind_(kInt), loc_(loc) {}
  Arg(long long v, Loc loc = Loc::current()) : integer_(v), kind_(kInt), loc_(loc) {}
  Arg(unsigned v, Loc loc = Loc::current()) : integer_(v), kind_(kInt), loc_(loc) {}
  Arg(unsigned long v, Loc loc = Loc::current()) : integer_(internal::signed_of(v, loc)), kind_(kInt), loc_(loc) {}
  Arg(unsigned long long v, Loc loc = Loc::current()) : integer_(internal::signed_of(v, loc)), kind_(kInt), loc_(loc) {}
  Arg(bool v, Loc loc = Loc::current()) : integer_(v), kind_(kBoolean), loc_(loc) {}
  Arg(const Arg&) = delete;

  enum ArgKind : uint8_t { kTensor, kFloat, kInt, kBoolean };
  bool is_tensor() const { return tensor_ != nullptr; }
  ArgKind kind() const { return kind_; }
  /// The tensor; only if is_tensor().
  const Tensor& tensor() const { return *tensor_; }
  double number() const { return kind_ == kFloat ? number_ : static_cast<double>(integer_); }
  int64_t integer() const { return integer_; }
  SourceLine line() const { return SourceLine(loc_); }
  Loc loc() const { return loc_; }

 private:
  Tensor own_;
  const Tensor* tensor_ = nullptr;
  double number_ = 0;
  int64_t integer_ = 0;
  ArgKind kind_ = kTensor;
  Loc loc_;
};

}  // namespace weft
