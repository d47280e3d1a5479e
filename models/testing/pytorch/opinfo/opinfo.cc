// Compares Weft with the samples that `opinfo.py draw FOLDER` wrote: values and gradients in f64 and in the sample's
// dtype, and the bits of compiled functions of f32 and 16-bit samples. Prints differences and counts; fails if a
// difference is not in accepted.txt, or if more than 2% are refused.
// Usage: opinfo FOLDER [--only=NAME] [--compiled=SAMPLES OF A ROW AND DTYPE].
#include "models/testing/pytorch/opinfo/opinfo.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <regex>
#include <sstream>

#include "framework/testing/compare.h"

namespace weft::testing::pytorch {

std::vector<OpInfoRow>& opinfo_rows() {
  static std::vector<OpInfoRow> rows;
  return rows;
}

Arg Inputs::arg(const char* name, double fallback) const {
  const Argument* a = find(name);
  if (!a) return Arg(static_cast<int>(fallback));
  if (a->type == 'T') return Arg(a->tensors[0]);
  if (a->type == 'F') return Arg(a->numbers[0]);
  if (a->type == 'B') return Arg(a->integers[0] != 0);
  return Arg(a->integers[0]);
}

void Inputs::fill_module() const {
  nn::StateDict values;
  for (const auto& [name, a] : all) {
    if (name == "layer.training") module->train(a.integers[0] != 0);
    if (!name.starts_with("state.")) continue;
    values[name.substr(6)] = a.tensors[0].detach();
    if (is_floating(a.tensors[0].dtype())) module->to(a.tensors[0].dtype());
  }
  module->load_state_dict(values);
}

namespace {

/// PyTorch's result or gradient, computed in f64 and in the sample's dtype.
struct Wanted {
  DType dtype;
  Shape shape;
  std::vector<double> wide, own;
};

struct Sample {
  const OpInfoRow* row;
  DType dtype;
  Inputs inputs;
  std::vector<Wanted> outs, grads;
  std::string name() const { return std::string(row->head).substr(0, std::string(row->head).find('(')); }
};

struct Result {
  std::vector<Tensor> outs, grads;
  std::vector<bool> records;  // whether a result has a gradient
  std::shared_ptr<nn::Module> module;
};

/// An index that index_word() of opinfo.py wrote: "i:2", "s:0:-:1", "t:2,2:0,1,1,0", "none".
TensorIndex index_of(const std::string& word) {
  std::vector<std::string> parts;
  std::istringstream in(word);
  for (std::string part; std::getline(in, part, ':');) parts.push_back(part);
  if (word == "none") return None;
  if (word == "ellipsis") return Ellipsis;
  if (parts[0] == "i") return std::stoll(parts.at(1));
  if (parts[0] == "s") {
    const auto bound = [&](size_t i) { return parts.at(i) == "-" ? Slice::SliceBound() : std::stoll(parts[i]); };
    return Slice(bound(1), bound(2), bound(3));
  }
  parts.resize(3);  // without elements the last part is missing
  const auto numbers = [](const std::string& text) {
    std::vector<int64_t> out;
    std::istringstream all(text == "-" ? "" : text);
    for (std::string n; std::getline(all, n, ',');) out.push_back(std::stoll(n));
    return out;
  };
  return Tensor::from_vector<int64_t>(numbers(parts[2]), Shape(numbers(parts[1]))).to(parts[0] == "b" ? kBool : kInt64);
}

/// Reads the files of opinfo.py.
class Reader {
 public:
  std::map<std::string, std::map<std::string, int>> unmapped;  // name, reason
  std::string versions;
  int skipped = 0;

  std::vector<Sample> read(const std::string& folder, const std::string& only) {
    std::ifstream blob(folder + "/values.bin", std::ios::binary | std::ios::ate), index(folder + "/index.txt");
    WEFT_CHECK(index && blob, "opinfo: ", folder, " has no samples; run opinfo.py draw ", folder);
    blob_.resize(static_cast<size_t>(blob.tellg()));
    blob.seekg(0).read(blob_.data(), static_cast<std::streamsize>(blob_.size()));
    std::map<std::string, const OpInfoRow*> rows;
    for (const OpInfoRow& r : opinfo_rows()) rows[r.head] = &r;
    std::vector<Sample> samples;
    for (std::string line; std::getline(index, line);) {
      std::istringstream in(line);
      std::string word, dtype, rest;
      in >> word;
      if (word == "torch") {
        versions = line;
      } else if (word == "skipped") {
        ++skipped;
      } else if (word == "unmapped") {
        in >> word >> dtype;
        std::getline(in, rest);
        if (only.empty() || only == word) ++unmapped[word][rest];
      } else if (word == "sample") {
        in >> dtype >> std::ws;
        std::getline(in, rest);
        WEFT_CHECK(rows.count(rest), "opinfo: rows.txt has no row ", rest, "; draw the samples again");
        samples.push_back({rows[rest], parse_dtype(dtype), {}, {}, {}});
      } else if (word == "in") {
        argument(in, samples.back());
      } else {
        std::string shape;
        if (word == "out") in >> dtype;
        size_t wide, own;
        in >> shape >> wide >> own;
        const Shape s = shape_of(shape);
        const DType d = word == "out" ? parse_dtype(dtype) : leaf_;
        (word == "out" ? samples.back().outs : samples.back().grads)
            .push_back({d, s, doubles(wide, s, d), doubles(own, s, d)});
      }
    }
    if (!only.empty()) std::erase_if(samples, [&](const Sample& s) { return s.name() != only; });
    return samples;
  }

 private:
  static Shape shape_of(const std::string& text) {
    Shape s;
    std::istringstream in(text == "-" ? "" : text);
    for (std::string n; std::getline(in, n, ',');) s.push_back(std::stoll(n));
    return s;
  }
  template <class T>
  std::vector<T> values(size_t at, const Shape& shape) const {
    std::vector<T> v(static_cast<size_t>(shape.numel()));
    if (!v.empty()) std::memcpy(v.data(), blob_.data() + 8 * at, 8 * v.size());
    return v;
  }
  std::vector<double> doubles(size_t at, const Shape& s, DType d) const {
    if (is_floating(d)) return values<double>(at, s);
    const std::vector<int64_t> v = values<int64_t>(at, s);
    return {v.begin(), v.end()};
  }
  void argument(std::istringstream& in, Sample& s) {
    std::string name, dtype, shape;
    char type;
    in >> name >> type;
    Argument& a = s.inputs.all[name];
    a.type = type;
    if (type == 'T' || type == 'L') {
      size_t at;
      bool leaf;
      in >> dtype >> shape >> at >> leaf;
      const DType d = leaf_ = parse_dtype(dtype);
      const Shape extents = shape_of(shape);
      a.tensors.push_back(is_floating(d) ? Tensor::from_vector<double>(values<double>(at, extents), extents).to(d)
                                         : Tensor::from_vector<int64_t>(values<int64_t>(at, extents), extents).to(d));
      a.leaf.push_back(leaf);
    } else if (type == 't') {
      in >> dtype;
      a.dtype = parse_dtype(dtype);
    } else if (type == 'X') {
      for (std::string word; in >> word;) a.indices.push_back(index_of(word));
    } else if (type == 's') {
      std::getline(in >> std::ws, a.text);
    } else if (type == 'f' || type == 'F') {
      for (std::string v; in >> v;) a.numbers.push_back(std::strtod(v.c_str(), nullptr));
    } else {
      for (int64_t v; in >> v;) a.integers.push_back(v);
    }
  }
  std::vector<char> blob_;
  DType leaf_ = kFloat32;  // the dtype of the argument read last, whose gradient follows
};

/// Calls fn with each tensor of the inputs.
template <class F>
void each_tensor(Inputs& in, const F& fn) {
  for (auto& [name, a] : in.all)
    for (size_t i = 0; i < a.tensors.size(); ++i) fn(a.tensors[i], a.leaf[i]);
}

/// The inputs in f64, where floating-point elements are perturbed.
Inputs widened(const Sample& s, int pattern, double step) {
  Inputs in = s.inputs;
  each_tensor(in, [&](Tensor& t, bool) {
    if (is_floating(t.dtype())) t = Tensor::from_vector(perturbed(t.to_vector<double>(), pattern, step), t.shape());
  });
  return in;
}

/// The results, and the gradients of the sum of weights times results; the weights are perturbed as the inputs are.
/// Under capture, `eager` has the layer, and says which results have a gradient.
Result evaluate(const Sample& s, Inputs in, int pattern = 0, double step = 0, const Result* eager = nullptr) {
  each_tensor(in, [&](Tensor& t, bool leaf) {
    if (leaf && !s.grads.empty()) t = t.requires_grad();
  });
  if (eager) in.module = eager->module;
  Result r;
  r.outs = s.row->run(in);
  r.module = in.module;
  if (s.grads.empty()) return r;
  std::vector<Tensor> leaves;
  for (const auto& [name, a] : in.all)
    for (size_t i = 0; i < a.tensors.size(); ++i)
      if (a.leaf[i])
        leaves.push_back(in.module && name.starts_with("state.") ? in.module->get_parameter(name.substr(6)).value()
                                                                 : a.tensors[i]);
  Tensor loss;
  for (size_t i = 0; i < r.outs.size(); ++i) {
    const Tensor& out = r.outs[i];
    r.records.push_back(eager ? eager->records[i] : is_floating(out.dtype()) && out.requires_grad_enabled());
    if (!r.records[i]) continue;
    std::vector<double> w;
    for (int64_t e = 0; e < out.numel(); ++e)
      w.push_back(static_cast<double>(((e + 5 * static_cast<int64_t>(i)) * 7 + 3) % 13) / 8 - 11. / 16);
    w = perturbed(w, pattern ? pattern + 16 : 0, step);
    const Tensor part = sum(out * Tensor::from_vector<double>(w, out.shape()).to(out.dtype()));
    loss = loss.defined() ? loss + part : part;
  }
  if (loss.defined()) r.grads = grad(loss, leaves);
  for (const Tensor& x : leaves)  // results that do not depend on the inputs
    if (!loss.defined()) r.grads.push_back(zeros_like(x.detach()));
  return r;
}

/// The change of each element of `exact` by one rounding of each input, relative to 2^-24. An element that jumps (its
/// change does not shrink with the step) counts as unchanged: PyTorch's result in the same dtype decides there.
std::vector<double> changes(const Tensor& exact, const std::vector<Tensor>& large, const std::vector<Tensor>& small) {
  const std::vector<double> x = exact.to_vector<double>();
  std::vector<double> out(x.size());
  for (size_t p = 0; p < large.size(); ++p) {
    if (large[p].shape() != exact.shape() || small[p].shape() != exact.shape()) continue;
    const std::vector<double> a = large[p].to_vector<double>(), b = small[p].to_vector<double>();
    for (size_t e = 0; e < x.size(); ++e) {
      const double far = std::fabs(a[e] - x[e]), near = std::fabs(b[e] - x[e]);
      if (std::isfinite(far) && near <= far / 8) out[e] = std::max(out[e], far);
    }
  }
  return out;
}

double largest(const std::vector<double>& values) {
  double most = 0;
  for (double v : values)
    if (std::isfinite(v)) most = std::max(most, std::fabs(v));
  return most;
}

/// "" or the first difference.
std::string difference(const std::string& what, const Tensor& got, const Wanted& want,
                       const std::vector<double>& change, double most, double coarsest, bool wide) {
  if (got.shape() != want.shape) return str_cat(what, " has shape ", got.shape(), "; PyTorch's has ", want.shape);
  const std::vector<double> v = got.to_vector<double>();
  const double unit = is_floating(got.dtype()) ? std::max(unit_roundoff(got.dtype()), coarsest) : 0;
  // Few operations round to 16 bits; f64 functions may have an error of 1e-9.
  const double roundings = unit > 0x1p-20 ? 8 : 64, floor = got.dtype() == kFloat64 ? 1e-9 * most : 0;
  for (size_t e = 0; e < v.size(); ++e) {
    const double bound =
        std::max(floor, roundings * (change[e] * unit * 0x1p24 + unit * most) + tiny_roundoff(got.dtype()));
    const auto equal = [&](double w) {
      return v[e] == w || (std::isnan(v[e]) && std::isnan(w)) || std::fabs(v[e] - w) <= bound;
    };
    if (equal(want.wide[e]) || (!wide && equal(want.own[e]))) continue;
    return str_cat(what, " element ", e, ": got ", v[e], ", PyTorch ", want.wide[e], " (f64), ", want.own[e], " (",
                   want.dtype, "), bound ", bound);
  }
  if (!wide && got.dtype() != want.dtype) return str_cat(what, " is ", got.dtype(), "; PyTorch's is ", want.dtype);
  return "";
}

/// `least`: a value that the roundings are relative to if the results are smaller.
std::string differences(const char* what, const std::vector<Tensor>& got, const std::vector<Wanted>& want,
                        const std::vector<std::vector<double>>& change, double coarsest, double least, bool wide) {
  if (got.size() != want.size()) return str_cat(got.size(), " ", what, "s; PyTorch has ", want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const std::string d = difference(str_cat(what, " ", i, wide ? " in f64" : ""), got[i], want[i], change[i],
                                     std::max(least, largest(want[i].wide)), coarsest, wide);
    if (!d.empty()) return d;
  }
  return "";
}

/// The regular expressions of accepted.txt.
std::vector<std::regex> accepted() {
  std::vector<std::regex> all;
  std::ifstream file("models/testing/pytorch/opinfo/accepted.txt");
  WEFT_CHECK(file, "opinfo: accepted.txt is missing; start with ./bazelw run");
  for (std::string line; std::getline(file, line);)
    if (const size_t end = line.find(" => "); !line.starts_with("#") && end != std::string::npos)
      all.emplace_back(line.substr(0, end), std::regex::optimize);
  return all;
}

class Report {
 public:
  /// Counts one comparison; `text` is empty for equality, or begins with "refused" or says how the results differ.
  void add(const Sample& s, const std::string& mode, const std::string& text) {
    Count& c = counts_[mode];
    if (text.empty()) {
      ++c.equal;
      return;
    }
    const std::string name = s.name() + " " + mode, line = str_cat(name, " ", s.dtype, ": ", text, "; ", given(s));
    const auto found = std::find_if(accepted_.begin(), accepted_.end(), [&](const std::regex& e) {
      return std::regex_search(line, e, std::regex_constants::match_continuous);
    });
    if (found != accepted_.end()) {
      ++c.accepted;
      return;
    }
    ++(text.starts_with("refused") ? c.refused : c.differ);
    const int seen = ++shown_[name];
    if (seen <= 3) std::cout << line << "\n";
  }
  bool print(const Reader& reader) const {
    for (const auto& [name, n] : shown_) std::cout << "TOTAL " << name << ": " << n << "\n";
    int unmapped = 0;
    for (const auto& [name, reasons] : reader.unmapped)
      for (const auto& [reason, n] : reasons) {
        std::cout << "UNMAPPED " << name << ":" << reason << ": " << n << "\n";
        unmapped += n;
      }
    std::cout << reader.versions << "; " << unmapped << " samples have arguments that no row accepts, "
              << reader.skipped << " are not computed by PyTorch in both dtypes or are complex\n";
    bool good = true;
    for (const auto& [mode, c] : counts_) {
      std::cout << mode << ": " << c.equal << " equal, " << c.differ << " differ, " << c.refused << " refused, "
                << c.accepted << " accepted\n";
      const int all = c.equal + c.differ + c.refused + c.accepted;
      good = good && !c.differ && c.refused * 50 <= all;
    }
    return good;
  }

 private:
  struct Count {
    int equal = 0, differ = 0, refused = 0, accepted = 0;
  };
  static std::string given(const Sample& s) {
    std::string out;
    for (const auto& [name, a] : s.inputs.all) {
      out += str_cat(out.empty() ? "" : ", ", name, "=", a.text);
      for (const Tensor& t : a.tensors) out += str_cat(t.dtype(), t.shape());
      for (int64_t v : a.integers) out += str_cat(v, " ");
      for (double v : a.numbers) out += str_cat(v, " ");
      if (a.type == 't') out += str_cat(a.dtype);
    }
    return out;
  }
  std::vector<std::regex> accepted_ = accepted();
  std::map<std::string, Count> counts_;
  std::map<std::string, int> shown_;
};

/// Gradients of one sample round intermediate values that they share, and terms of which only a small difference may
/// remain (the derivative of x / |x| along x is 0): the largest gradient, or a result by the largest input.
double gradient_scale(const Sample& s) {
  double result = 0, input = 0, gradient = 1e-4;
  for (const Wanted& w : s.outs) result = std::max(result, largest(w.wide));
  for (const Wanted& w : s.grads) gradient = std::max(gradient, largest(w.wide));
  Inputs in = s.inputs;
  each_tensor(in, [&](const Tensor& t, bool leaf) {
    if (leaf) input = std::max(input, largest(t.to_vector<double>()));
  });
  return input > 0 ? std::max(gradient, result / input) : gradient;
}

/// The result in the sample's dtype, if Weft computes it.
std::optional<Result> compare_eager(const Sample& s, Report& report) {
  Result own;
  double coarsest = 0;  // the unit roundoff of an argument dtype=
  for (const auto& [name, a] : s.inputs.all)
    if (a.type == 't' && is_floating(a.dtype)) coarsest = unit_roundoff(a.dtype);
  try {
    const Result exact = evaluate(s, widened(s, 0, 0));
    std::vector<Result> large, small;
    for (int pattern : {1, 2}) {
      large.push_back(evaluate(s, widened(s, pattern, 0x1p-24), pattern, 0x1p-24));
      small.push_back(evaluate(s, widened(s, pattern, 0x1p-30), pattern, 0x1p-30));
    }
    own = evaluate(s, s.inputs);
    for (const bool gradients : {false, true}) {
      if (gradients && s.grads.empty()) break;
      const auto part = [&](const Result& r) { return gradients ? r.grads : r.outs; };
      std::vector<std::vector<double>> change;
      for (size_t i = 0; i < part(exact).size(); ++i) {
        std::vector<Tensor> a, b;
        for (size_t p = 0; p < large.size(); ++p) a.push_back(part(large[p]).at(i)), b.push_back(part(small[p]).at(i));
        change.push_back(changes(part(exact)[i], a, b));
      }
      const char* what = gradients ? "gradient" : "result";
      const std::vector<Wanted>& want = gradients ? s.grads : s.outs;
      const double least = gradients ? gradient_scale(s) : 1e-4;
      std::string text = differences(what, part(exact), want, change, coarsest, least, true);
      if (text.empty()) text = differences(what, part(own), want, change, coarsest, least, false);
      report.add(s, gradients ? "gradients" : "eager", text);
    }
    return own;
  } catch (const std::exception& e) {
    report.add(s, "eager", str_cat("refused: ", e.what()));
    return std::nullopt;
  }
}

struct Evaluated {
  const Sample* sample;
  Result result;
};

/// The first difference of each sample, compiled with the others as one function, from the bits of eager evaluation.
std::vector<std::string> compare_compiled(std::span<const Evaluated> all) {
  std::vector<Tensor> in;
  for (const Evaluated& e : all) {
    Inputs copy = e.sample->inputs;
    each_tensor(copy, [&](Tensor& t, bool) { in.push_back(t); });
  }
  const std::vector<Tensor> got = compile(
      [&](const std::vector<Tensor>& traced) {
        std::vector<Tensor> out;
        size_t at = 0;
        for (const Evaluated& e : all) {
          Inputs inputs = e.sample->inputs;
          each_tensor(inputs, [&](Tensor& t, bool) { t = traced[at++]; });
          const Result r = evaluate(*e.sample, inputs, 0, 0, &e.result);
          out.insert(out.end(), r.outs.begin(), r.outs.end());
          out.insert(out.end(), r.grads.begin(), r.grads.end());
        }
        return out;
      },
      {.numerics = "eager"})(in);
  std::vector<std::string> texts(all.size());
  size_t at = 0;
  for (size_t i = 0; i < all.size(); ++i)
    for (const std::vector<Tensor>* part : {&all[i].result.outs, &all[i].result.grads})
      for (const Tensor& t : *part) {
        const ::testing::AssertionResult same = same_bits(got.at(at++), t);
        if (!same) texts[i] = same.message();
      }
  return texts;
}

void compiled(const std::vector<Evaluated>& all, Report& report) {
  constexpr size_t kTogether = 16;
  for (size_t from = 0; from < all.size(); from += kTogether) {
    const std::span<const Evaluated> some = std::span(all).subspan(from, std::min(kTogether, all.size() - from));
    std::vector<std::string> texts;
    try {
      texts = compare_compiled(some);
    } catch (const std::exception&) {  // one sample fails: find it
      for (size_t i = 0; i < some.size(); ++i) {
        try {
          texts.push_back(compare_compiled(some.subspan(i, 1))[0]);
        } catch (const std::exception& e) {
          texts.push_back(str_cat("refused: ", e.what()));
        }
      }
    }
    for (size_t i = 0; i < some.size(); ++i) report.add(*some[i].sample, "compiled", texts[i]);
  }
}

int run(const std::string& folder, const std::string& only, size_t most) {
  Reader reader;
  Report report;
  std::map<std::pair<const OpInfoRow*, DType>, std::vector<Evaluated>> rows;
  const std::vector<Sample> samples = reader.read(folder, only);
  for (const Sample& s : samples)
    if (std::optional<Result> r = compare_eager(s, report); r && (s.dtype == kFloat32 || is_16bit(s.dtype)))
      rows[{s.row, s.dtype}].push_back({&s, *r});
  std::vector<Evaluated> chosen;  // equally many samples of each row and dtype
  for (const auto& [row, all] : rows) {
    if (std::string_view(row.first->head).starts_with("optim.")) continue;  // their rows make parameters
    for (size_t i = 0; i < std::min(most, all.size()); ++i)
      chosen.push_back(all[i * all.size() / std::min(most, all.size())]);
  }
  compiled(chosen, report);
  return report.print(reader) ? 0 : 1;
}

}  // namespace
}  // namespace weft::testing::pytorch

int main(int argc, char** argv) {
  std::string folder, only;
  size_t most = 4;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a.starts_with("--only=")) {
      only = a.substr(7);
    } else if (a.starts_with("--compiled=")) {
      most = std::stoul(a.substr(11));
    } else {
      folder = a;
    }
  }
  return weft::testing::pytorch::run(folder, only, most);
}
