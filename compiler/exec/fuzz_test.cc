// Random programs over views, in-place chances, cells and gradients: eager, interpreted and compiled runs have the same
// bits, and the predicted peak is the measured one.
#include "compiler/exec/testing/test_programs.h"
#include "framework/autodiff/grad.h"
#include "ops/composite/composite.h"
#include "ops/core/core.h"

namespace weft {
namespace {

using testing::expect_same_everywhere;
using testing::Program;
using testing::Random;
using testing::Tensors;

// The same seed makes the same program each time it is run.
class RandomProgram {
 public:
  RandomProgram(uint64_t seed, const std::vector<Parameter>& cells) : r_(seed * 7919 + 1), cells_(cells) {}

  Tensors run(const Tensors& in) {
    values_ = in;
    differentiate_ = pick(2);
    const int ops = 5 + pick(25);
    for (int i = 0; i < ops; ++i) values_.push_back(op());
    Tensors out;
    if (differentiate_) {
      Tensor loss = tanh(any()).sum();
      for (const Parameter& p : cells_) loss = loss + (p * any_of(p.shape())).sum();
      std::vector<Tensor> g = grad(loss, cells_);
      for (size_t i = 0; i < cells_.size(); ++i) {
        if (pick(3)) cells_[i].set(cells_[i].value() - g[i] * 0.01);
        values_.push_back(g[i]);
      }
      out.push_back(loss);
    }
    for (int i = pick(4); i >= 0; --i) out.push_back(any());
    return out;
  }

 private:
  int pick(int n) { return static_cast<int>(r_.bits() % n); }
  const Tensor& any() {
    // Late values more often: deep graphs.
    const size_t n = values_.size();
    return values_[n - 1 - std::min<size_t>(n - 1, pick(3) ? pick(4) : pick(static_cast<int>(n)))];
  }
  Tensor any_of(const Shape& shape) {
    for (size_t i = 0; i < 8; ++i)
      if (const Tensor& t = any(); t.shape() == shape) return t;
    return full(shape, 0.5);
  }
  const Parameter& cell() { return cells_[pick(static_cast<int>(cells_.size()))]; }

  Tensor op() {
    const Tensor x = any();
    const int64_t d = x.dim() ? pick(x.dim()) : 0;
    switch (pick(23)) {
      case 0:
        return tanh(x);
      case 1:
        return x * 0.5;
      case 2:
        return sigmoid(x) + any_of(x.shape());
      case 3:
        return maximum(x, any_of(x.shape()));
      case 4:
        return where(x > 0.0, x, any_of(x.shape()) * 0.25);
      case 5:
        return x.dim() == 2 ? x.transpose(0, 1) : x;
      case 21:
        return x.dim() == 2 && x.size(0) == x.size(1) ? x * 0.5 + x.transpose(0, 1) : exp(neg(x * x));
      case 6:
        return x.dim() ? x.slice(d, 0, (x.size(d) + 1) / 2) : x;
      case 7:
        return x.reshape({-1});
      case 8:
        return x.dim() ? cat({x, x.slice(d, 0, x.size(d) / 2)}, d) : x;
      case 9:
        return x.dim() ? x.sum({d}, pick(2) == 0) : x;
      case 10:
        return x.dim() == 2 ? tanh(matmul(x, x.transpose(0, 1))) : x;
      case 11:
        return x.dim() ? softmax(x, d) : x;
      case 12:
        return dropout(x, 0.25);
      case 13:
        return x.dim() ? x.amax({d}) : x;
      case 14:
        return x.dim() < 4 ? x.unsqueeze(0).expand(grown(x)) * 0.5 : x;
      case 15: {
        const Parameter& c = cell();
        if (differentiate_) return Tensor(c);
        Tensor old = c;
        c.set(tanh(old * 0.9 + any_of(c.shape())));
        return pick(2) ? old : Tensor(c);
      }
      case 16: {
        const Parameter &a = cell(), &b = cell();
        if (differentiate_ || !(a.shape() == b.shape())) return x;
        Tensor t = a;
        a.set(b.value());
        b.set(pick(2) ? t : t * 0.5);
        return t;
      }
      case 17:
        return Tensor(cell()) + 0.125;
      case 18:
        return x.dim() ? cumsum(x, d) * 0.1 : x;
      case 19:
        return x.dim() ? index_select(x, d, Tensor::from_vector<int64_t>({0, 0}, {2})) : x;
      case 20:
        return x.dim() ? index_add(x, 0, Tensor::from_vector<int64_t>({0}, {1}), x.slice(0, 0, 1)) : x;
      default:
        return tanh(x * x - x);
    }
  }
  Shape grown(const Tensor& x) {
    Shape s{2};
    for (int64_t n : x.shape()) s.push_back(n);
    return s;
  }

  Random r_;
  std::vector<Parameter> cells_;
  Tensors values_;
  bool differentiate_ = false;  // cells are then written at the end only
};

class Fuzz : public ::testing::TestWithParam<int> {};

TEST_P(Fuzz, EveryWayOfRunningGivesTheSameBits) {
  for (uint64_t k = 0; k < 25; ++k) {
    const uint64_t seed = GetParam() * 1000 + k;
    SCOPED_TRACE(seed);
    auto make = [&] {
      std::vector<Parameter> cells;
      for (const Shape& s : {Shape{4, 6}, Shape{4, 6}, Shape{6}, Shape{4, 4}})
        cells.push_back(Parameter(TensorType{kFloat32, {}, s}, [=] { return randn(s); }));
      Program p;
      for (const Parameter& c : cells) p.cells.push_back(c);
      p.step = [=](Tensors in) { return RandomProgram(seed, cells).run(in); };
      return p;
    };
    Random r(seed);
    std::vector<Tensors> inputs(3);
    for (Tensors& in : inputs)
      for (const Shape& s : {Shape{4, 6}, Shape{6, 4}, Shape{4}}) in.push_back(testing::random_tensor(kFloat32, s, r));
    expect_same_everywhere(make, inputs);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Fuzz, ::testing::Range(0, 8));

}  // namespace
}  // namespace weft
