// Tensor::to_string: the text PyTorch prints (precision 4, line width 80, at most 1000 elements before summarising).
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ostream>

#include "framework/tensor/tensor.h"

namespace weft {
namespace {

constexpr int kPrecision = 4, kEdge = 3, kLineWidth = 80;
constexpr int64_t kThreshold = 1000;
constexpr int kIndent = 7;  // "tensor("

template <class T>
T read(const char* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

double read_float(const char* p, DType t) {
  if (itemsize(t) == 1) return float8_to_float(read<uint8_t>(p), t);
  return with_float(t, [&]<class T>(T) -> double { return read<T>(p); });
}

int64_t read_int(const char* p, DType t) {
  return with_integer(t, [&]<class T>(T) { return static_cast<int64_t>(read<T>(p)); });
}

std::string format(const char* pattern, double v) {
  if (std::isnan(v)) return "nan";
  char buf[400];
  return {buf, static_cast<size_t>(std::snprintf(buf, sizeof buf, pattern, kPrecision, v))};
}

/// Chooses one number format for all shown elements, as torch/_tensor_str.py does.
class TensorPrinter {
 public:
  explicit TensorPrinter(const StridedView& v) : v_(v), summarize_(v.numel() > kThreshold) {
    if (is_floating(v_.dtype)) {
      std::vector<double> shown;
      visit(0, base(), [&](const char* p) {
        double x = read_float(p, v_.dtype);
        if (std::isfinite(x) && x != 0) shown.push_back(x);
      });
      choose(shown);
    } else {
      visit(0, base(), [&](const char* p) { width_ = std::max(width_, element(p).size()); });
    }
  }

  std::string text() const { return dim(0, base(), kIndent); }

 private:
  const char* base() const { return static_cast<const char*>(v_.data); }
  const char* at(const char* p, int d, int64_t i) const { return p + i * v_.strides[d] * itemsize(v_.dtype); }
  bool cut(int d) const { return summarize_ && v_.shape[d] > 2 * kEdge; }

  template <class F>
  void visit(int d, const char* p, F f) const {
    if (d == v_.shape.size()) return f(p);
    for (int64_t i = 0; i < v_.shape[d]; ++i) {
      if (cut(d) && i == kEdge) i = v_.shape[d] - kEdge;
      visit(d + 1, at(p, d, i), f);
    }
  }

  void choose(const std::vector<double>& shown) {
    if (shown.empty()) return;
    double lo = INFINITY, hi = 0;
    for (double x : shown) {
      lo = std::min(lo, std::fabs(x));
      hi = std::max(hi, std::fabs(x));
      if (x != std::ceil(x)) integers_ = false;
    }
    scientific_ = hi / lo > 1000.0 || hi > 1.0e8 || (!integers_ && lo < 1.0e-4);
    for (double x : shown) width_ = std::max(width_, number(x).size());
  }

  std::string number(double x) const {
    if (scientific_) return format("%.*e", x);
    if (!integers_) return format("%.*f", x);
    char buf[400];
    if (!std::isfinite(x)) return format("%.*f", x);
    return {buf, static_cast<size_t>(std::snprintf(buf, sizeof buf, "%.0f.", x))};
  }

  std::string element(const char* p) const {
    std::string s;
    if (is_floating(v_.dtype)) {
      s = number(read_float(p, v_.dtype));
    } else if (v_.dtype == kBool) {
      s = read_int(p, v_.dtype) ? "True" : "False";
    } else {
      s = std::to_string(read_int(p, v_.dtype));
    }
    return s.size() < width_ ? std::string(width_ - s.size(), ' ') + s : s;
  }

  std::string row(int d, const char* p, int indent) const {
    std::vector<std::string> items;
    for (int64_t i = 0; i < v_.shape[d]; ++i) {
      if (cut(d) && i == kEdge) {
        items.push_back(" ...");
        i = v_.shape[d] - kEdge;
      }
      items.push_back(element(at(p, d, i)));
    }
    size_t per_line = std::max<size_t>(1, std::max(0, kLineWidth - indent) / (width_ + 2));
    std::string s = "[";
    for (size_t i = 0; i < items.size(); ++i) {
      if (i) s += i % per_line ? ", " : ",\n" + std::string(indent + 1, ' ');
      s += items[i];
    }
    return s + "]";
  }

  std::string dim(int d, const char* p, int indent) const {
    int rank = v_.shape.size();
    if (d == rank) return element(p);
    if (d == rank - 1) return row(d, p, indent);
    std::string separator = "," + std::string(rank - d - 1, '\n') + std::string(indent + 1, ' '), s = "[";
    for (int64_t i = 0; i < v_.shape[d]; ++i) {
      if (i) s += separator;
      if (cut(d) && i == kEdge) {
        s += "..." + separator;
        i = v_.shape[d] - kEdge;
      }
      s += dim(d + 1, at(p, d, i), indent + 1);
    }
    return s + "]";
  }

  const StridedView v_;
  bool summarize_;
  bool integers_ = true, scientific_ = false;
  size_t width_ = 1;
};

std::string size_suffix(const Shape& shape) {
  std::string s = "size=(";
  for (int i = 0; i < shape.size(); ++i) s += str_cat(i ? ", " : "", shape[i]);
  return s + (shape.size() == 1 ? ",)" : ")");
}

}  // namespace

std::string Tensor::to_string() const {
  if (!defined()) return "Tensor(undefined)";
  const TensorImpl& impl = get();
  if (impl.trace) return str_cat("Tensor(traced ", impl.type, ")");
  if (device().type == DeviceType::kMeta) return str_cat("Tensor(meta ", dtype(), shape(), ")");

  std::string text = "tensor(";
  std::vector<std::string> suffixes;
  if (device() != Device::cpu()) suffixes.push_back(str_cat("device='", device(), "'"));
  if (numel() == 0) {
    if (dim() != 1) suffixes.push_back(size_suffix(shape()));
    if (dtype() != kFloat32) suffixes.push_back(str_cat("dtype=", dtype()));
    text += "[]";
  } else {
    if (dtype() != kFloat32 && dtype() != kInt64 && dtype() != kBool) suffixes.push_back(str_cat("dtype=", dtype()));
    text += TensorPrinter(internal::on_host(*this).view_for_kernel()).text();
  }
  if (impl.grad) suffixes.push_back("requires_grad=True");

  size_t newline = text.rfind('\n');
  size_t last = newline == text.npos ? text.size() + 2 : text.size() - newline + 1;  // PyTorch counts rfind's -1 too
  for (const std::string& s : suffixes) {
    bool wrap = last + s.size() + 2 > kLineWidth;
    text += wrap ? ",\n" + std::string(kIndent, ' ') + s : ", " + s;
    last = wrap ? kIndent + s.size() : last + s.size() + 2;
  }
  return text + ")";
}

std::ostream& operator<<(std::ostream& out, const Tensor& t) { return out << t.to_string(); }

}  // namespace weft
