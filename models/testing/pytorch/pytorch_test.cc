// Values and gradients of the rows of cases.txt and everyday.txt against PyTorch's (fixtures.txt): in f64, in f32, and
// compiled. `--test_arg=ROW`, as in cases.txt:12, runs one row.
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "framework/base/switches.h"
#include "framework/testing/compare.h"
#include "models/testing/pytorch/rows.h"

namespace weft::testing::pytorch {
namespace {

std::string only;  // the row to run; "": all

struct Numbers {
  std::string dtype;  // "": of a gradient
  std::vector<int64_t> shape;
  std::vector<double> values;
};
struct Fixture {
  std::vector<Numbers> outs;
  std::map<std::string, Numbers> grads;
};
struct Fixtures {
  std::vector<std::string> operands;
  std::map<std::string, Fixture> rows;  // key: PyTorch's text
};

const Fixtures& fixtures() {
  static const Fixtures all = [] {
    Fixtures f;
    Fixture* row = nullptr;
    std::ifstream file("models/testing/pytorch/fixtures.txt");
    const auto numbers = [](std::istream& in, Numbers n) {
      for (std::string v; in >> v;) n.values.push_back(std::strtod(v.c_str(), nullptr));
      return n;
    };
    for (std::string line; std::getline(file, line);) {
      std::istringstream in(line);
      if (line.starts_with("#")) continue;
      if (line.starts_with("let ")) {
        f.operands.push_back(line.substr(4));
      } else if (line.starts_with("= ")) {
        row = &f.rows[line.substr(2)];
      } else if (line.starts_with("grad ")) {
        std::string word, name;
        in >> word >> name;
        row->grads[name] = numbers(in, {});
      } else {
        Numbers n;
        std::getline(in, n.dtype, '[');
        for (char c = ','; c == ',' && in.peek() != ']';) {
          n.shape.emplace_back();
          in >> n.shape.back() >> c;
          if (c == ']') in.putback(c);
        }
        in.get();
        row->outs.push_back(numbers(in, n));
      }
    }
    return f;
  }();
  return all;
}

struct Result {
  std::vector<Tensor> outs;
  std::vector<bool> records;            // whether an output has a gradient
  std::map<std::string, Tensor> grads;  // gradients of the operands, and of the first layer ("0.weight")
};

const std::vector<OperandText>& operands() {
  static const std::vector<OperandText> all = operand_texts();
  return all;
}

bool names(const Row& row, const OperandText& o) {
  return std::find(row.operands.begin(), row.operands.end(), o.name) != row.operands.end();
}

/// The operands that a row names, in the context's dtype; the others are undefined. Without a row: all.
std::vector<Tensor> operand_values(const Row* row) {
  std::vector<Tensor> in;
  for (const OperandText& o : operands()) {
    if (row && !names(*row, o)) {
      in.emplace_back();
      continue;
    }
    std::vector<double> values = o.numbers;
    if (!o.literal) {
      values = grid(o.name, o.shape.numel());
      for (double& v : values) v = o.numbers[0] + (o.numbers[1] - o.numbers[0]) * v;
    }
    if (o.dtype == "f64") values = perturbed(values, context().pattern);
    const DType dtype = o.dtype == "f64" ? context().dtype : o.dtype == "i64" ? kInt64 : kBool;
    in.push_back(Tensor::from_vector<double>(values, o.shape).to(dtype));
  }
  return in;
}

Tensor weights(int64_t output, const Tensor& like) {
  std::vector<double> w;
  for (int64_t e = 0; e < like.numel(); ++e)
    w.push_back(static_cast<double>(((e + 5 * output) * 7 + 3) % 13) / 8 - 11. / 16);
  return Tensor::from_vector<double>(w, like.shape()).to(like.dtype());
}

/// The row's results, and the gradients of the sum of weights times results. Under capture, `eager` contains a gradient
/// for each result that has one, and `layers` are the layers of FILLED.
Result evaluate(const Row& row, std::vector<Tensor> in, const Result* eager = nullptr,
                const std::vector<nn::Module>& layers = context().layers) {
  Result r;
  std::vector<Tensor> leaves;
  std::vector<std::string> names;
  for (size_t i = 0; i < in.size(); ++i)
    if (in[i].defined() && is_floating(in[i].dtype())) {
      leaves.push_back(in[i] = in[i].requires_grad());
      names.push_back(operands()[i].name);
    }
  r.outs = row.run(in);
  Tensor loss;
  for (size_t i = 0; i < r.outs.size(); ++i) {
    const Tensor& out = r.outs[i];
    r.records.push_back(eager ? eager->records[i] : is_floating(out.dtype()) && out.requires_grad_enabled());
    if (!r.records[i]) continue;
    const Tensor part = sum(out * weights(static_cast<int64_t>(i), out));
    loss = loss.defined() ? loss + part : part;
  }
  if (!loss.defined() || row.tags & kShape) return r;
  std::vector<Parameter> parameters;
  for (size_t l = 0; l < layers.size(); ++l)
    for (const auto& [name, p] : layers[l].named_parameters())
      if (p.requires_grad()) {
        parameters.push_back(p);
        names.push_back(str_cat(l, ".", name));
      }
  std::vector<Tensor> grads = leaves.empty() ? leaves : grad(loss, leaves);
  if (!parameters.empty())
    for (const Tensor& g : grad(loss, parameters)) grads.push_back(g);
  for (size_t i = 0; i < grads.size(); ++i) r.grads[names[i]] = grads[i];
  return r;
}

Result evaluate_as(const Row& row, DType dtype, int pattern = 0) {
  context() = {.dtype = dtype, .pattern = pattern};
  return evaluate(row, operand_values(&row));
}

std::string position(size_t e, const Shape& shape) {
  std::vector<int64_t> at;
  for (int d = shape.size(); d-- > 0; e /= static_cast<size_t>(shape[d]))
    at.insert(at.begin(), static_cast<int64_t>(e) % shape[d]);
  return str_cat(Shape(at));
}

/// Reports the first element that differs by more than `bound`.
void expect_near(const Row& row, const std::string& what, const Tensor& got, const Numbers& need, double bound) {
  const std::vector<double> values = got.to_vector<double>();
  if (values.size() != need.values.size()) {
    ADD_FAILURE() << row.place << ": " << what << " of " << row.weft << " has " << values.size() << " elements; need "
                  << need.values.size();
    return;
  }
  for (size_t e = 0; e < values.size(); ++e) {
    const double a = values[e], b = need.values[e];
    if (a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= bound) continue;
    ADD_FAILURE() << row.place << ": " << what << " of " << row.weft << " at " << position(e, got.shape()) << ": got "
                  << str_cat(a) << ", need " << str_cat(b) << " (" << row.torch << "), a difference of "
                  << str_cat(std::fabs(a - b)) << "; at most " << str_cat(bound);
    return;
  }
}

double largest(const std::vector<double>& values) {
  double most = 0;
  for (double v : values)
    if (std::isfinite(v)) most = std::max(most, std::fabs(v));
  return most;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> u = a.to_vector<double>(), v = b.to_vector<double>();
  double most = 0;
  for (size_t i = 0; i < u.size(); ++i)
    if (std::isfinite(u[i] - v[i])) most = std::max(most, std::fabs(u[i] - v[i]));
  return most;
}

using Bound = std::function<double(const Tensor& got, const Numbers& need, const std::string& what)>;

void compare(const Row& row, const Fixture& f, const Result& r, DType dtype, const Bound& bound) {
  ASSERT_EQ(r.outs.size(), f.outs.size()) << row.place << ": " << row.weft << ": number of results";
  for (size_t i = 0; i < r.outs.size(); ++i) {
    const Tensor& got = r.outs[i];
    const std::string what = str_cat("result ", i);
    const std::string name =
        f.outs[i].dtype == "f64" && f.outs[i].dtype != str_cat(got.dtype()) ? str_cat(dtype) : f.outs[i].dtype;
    EXPECT_EQ(str_cat(got.dtype()), name) << row.place << ": " << what << " of " << row.weft;
    EXPECT_EQ(got.shape(), Shape(f.outs[i].shape)) << row.place << ": " << what << " of " << row.weft;
    if (!(row.tags & (kShape | kAutocast)) && got.shape() == Shape(f.outs[i].shape))
      expect_near(row, what, got, f.outs[i], is_floating(got.dtype()) ? bound(got, f.outs[i], what) : 0);
  }
  for (const auto& [name, need] : f.grads) {
    const std::string what = "the gradient of " + name;
    const auto found = r.grads.find(name);
    if (found == r.grads.end()) {
      ADD_FAILURE() << row.place << ": " << row.weft << " has no gradient of " << name << "; PyTorch has one";
    } else {
      expect_near(row, what, found->second, need, bound(found->second, need, what));
    }
  }
  for (const auto& [name, g] : r.grads)
    if (!f.grads.count(name))
      expect_near(row, "the gradient of " + name, g, {.values = std::vector<double>(static_cast<size_t>(g.numel()))},
                  0);
}

/// Calls `check` with each row that the test runs, and reports its exceptions.
void for_each(const std::function<void(const Row&)>& check) {
  for (const Row& row : all_rows()) {
    if (!only.empty() && only != row.place) continue;
    try {
      check(row);
    } catch (const std::exception& e) {
      ADD_FAILURE() << row.place << ": " << row.weft << ": " << e.what();
    }
  }
}

const Fixture* fixture(const Row& row) {
  const auto found = fixtures().rows.find(row.torch);
  if (found != fixtures().rows.end()) return &found->second;
  ADD_FAILURE() << row.place << ": fixtures.txt has no '" << row.torch << "': run make_fixtures.py";
  return nullptr;
}

TEST(PyTorch, OperandsAreThoseOfTheFixtures) {
  std::vector<std::string> texts;
  for (const OperandText& o : operands()) {
    std::ostringstream text;
    text << o.name << " " << o.dtype << o.shape << (o.literal ? " =" : "");
    for (double v : o.numbers) text << " " << v;
    texts.push_back(text.str());
  }
  EXPECT_EQ(texts, fixtures().operands) << "run make_fixtures.py";
}

// f64 of two implementations differ by few roundings; 1e-9 of the tensor's largest value finds any other difference.
TEST(PyTorch, ValuesAndGradientsInF64) {
  for_each([](const Row& row) {
    if (row.tags & kAutocast) return;
    if (!*row.torch) {
      context() = {};
      row.run(operand_values(&row));
      return;
    }
    const Fixture* f = fixture(row);
    if (!f) return;
    compare(row, *f, evaluate_as(row, kFloat64), kFloat64,
            [&](const Tensor& got, const Numbers& need, const std::string&) {
              const double roundoff = got.dtype() == kFloat64 ? 0 : 2 * unit_roundoff(got.dtype());
              return std::max({row.tags & kLoose ? 1e-7 : 1e-9, roundoff}) * std::max(largest(need.values), 1e-4);
            });
  });
}

// A stable evaluation in f32 gives the exact result of operands that are changed by some roundings. The change of the
// result by one rounding of each operand is measured in f64, with two patterns of signs. The bound is 64 such changes
// (the rows sum up to about 100 elements), plus 64 roundings of the largest result.
TEST(PyTorch, ValuesAndGradientsInF32) {
  for_each([](const Row& row) {
    if (!*row.torch || row.tags & (kShape | kAutocast)) return;
    const Fixture* f = fixture(row);
    if (!f) return;
    const Result exact = evaluate_as(row, kFloat64);
    std::map<std::string, double> change;
    for (int pattern : {1, 2}) {
      const Result moved = evaluate_as(row, kFloat64, pattern);
      for (size_t i = 0; i < exact.outs.size(); ++i) {
        double& c = change[str_cat("result ", i)];
        c = std::max(c, largest_difference(exact.outs[i], moved.outs[i]));
      }
      for (const auto& [name, g] : exact.grads) {
        double& c = change["the gradient of " + name];
        c = std::max(c, largest_difference(g, moved.grads.at(name)));
      }
    }
    compare(row, *f, evaluate_as(row, kFloat32), kFloat32,
            [&](const Tensor& got, const Numbers& need, const std::string& what) {
              return 64 * (change[what] + std::max(unit_roundoff(got.dtype()), 0x1p-24) * largest(need.values));
            });
  });
}

struct EagerRow {
  const Row* row;
  Result result;
  std::vector<nn::Module> layers;
};

/// Compares the rows in one compiled function.
void expect_compiled_is_eager(std::span<const EagerRow> rows) {
  context() = {.dtype = kFloat32};
  const std::vector<Tensor> in = operand_values(nullptr);
  for (const EagerRow& e : rows)
    for (const nn::Module& m : e.layers) context().fill(m);
  context().capturing = true;
  const std::vector<Tensor> got = compile(
      [&](const std::vector<Tensor>& all) {
        std::vector<Tensor> out;
        for (const EagerRow& e : rows) {
          std::vector<Tensor> named = all;
          for (size_t o = 0; o < named.size(); ++o)
            if (!names(*e.row, operands()[o])) named[o] = Tensor();
          const Result r = evaluate(*e.row, named, &e.result, e.layers);
          out.insert(out.end(), r.outs.begin(), r.outs.end());
          for (const auto& [name, g] : r.grads) out.push_back(g);
        }
        return out;
      },
      {.numerics = "eager"})(in);
  size_t at = 0;
  for (const EagerRow& e : rows) {
    for (size_t o = 0; o < e.result.outs.size(); ++o)
      EXPECT_TRUE(same_bits(got.at(at++), e.result.outs[o]))
          << e.row->place << ": result " << o << " of " << e.row->weft << ", compiled";
    for (const auto& [name, g] : e.result.grads)
      EXPECT_TRUE(same_bits(got.at(at++), g))
          << e.row->place << ": the gradient of " << name << " of " << e.row->weft << ", compiled";
  }
}

// Many rows are one function, because compiling a kernel takes longer than calling it.
TEST(PyTorch, CompiledIsEager) {
  std::vector<EagerRow> rows;
  for_each([&](const Row& row) {
    if (!*row.torch || row.tags & (kEager | kShape | kAutocast)) return;
    const Result r = evaluate_as(row, kFloat32);
    rows.push_back({&row, r, context().layers});
  });
  constexpr size_t kTogether = 32;
  for (size_t from = 0; from < rows.size(); from += kTogether) {
    const std::span<const EagerRow> some = std::span(rows).subspan(from, std::min(kTogether, rows.size() - from));
    try {
      expect_compiled_is_eager(some);
    } catch (const std::exception&) {  // one row fails: find it
      for (const EagerRow& e : some) {
        try {
          expect_compiled_is_eager({&e, 1});
        } catch (const std::exception& error) {
          ADD_FAILURE() << e.row->place << ": " << e.row->weft << ": compiled: " << error.what();
        }
      }
    }
  }
}

// The dtypes that torch.autocast gives, eagerly and compiled.
TEST(PyTorch, Autocast) {
  set_switch("WEFT_CXX", "none");  // interpreted: quicker for so little data
  for_each([](const Row& row) {
    if (!(row.tags & kAutocast)) return;
    const Fixture* f = fixture(row);
    if (!f) return;
    context() = {.dtype = kFloat32};
    const std::vector<Tensor> all = operand_values(&row);
    std::vector<Tensor> in;
    for (const Tensor& t : all)
      if (t.defined()) in.push_back(t);
    for (bool enabled : {false, true}) {
      context().capturing = enabled;
      const auto run = [&](const std::vector<Tensor>& given) {
        std::vector<Tensor> named(all.size());
        for (size_t i = 0, at = 0; i < all.size(); ++i)
          if (all[i].defined()) named[i] = given[at++];
        return row.run(named);
      };
      const auto step = compile(run, {.enabled = enabled, .autocast = kBFloat16});
      compare(row, *f, {.outs = step(in)}, kFloat32, {});
    }
  });
}

}  // namespace
}  // namespace weft::testing::pytorch

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc > 1) weft::testing::pytorch::only = argv[1];
  weft::testing::pytorch::fixtures();
  if (const char* folder = std::getenv("TEST_TMPDIR")) std::filesystem::current_path(folder);
  return RUN_ALL_TESTS();
}
