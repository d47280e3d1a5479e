#include "framework/ir/dim_map.h"

#include <algorithm>
#include <cctype>

#include "framework/tensor/tensor.h"

namespace weft {
namespace {

constexpr int64_t kUnknown = -1;

const char* suffix(FactorKind k) {
  switch (k) {
    case FactorKind::kMax:
      return "^";
    case FactorKind::kMin:
      return "_";
    case FactorKind::kProd:
      return "*";
    case FactorKind::kWhole:
      return "?";
    case FactorKind::kRagged:
      return "~";
    default:
      return "";
  }
}

class DimMapParser {
 public:
  DimMapParser(std::string_view text, std::span<const std::pair<std::string, int64_t>> sizes)
      : text_(text), sizes_(sizes) {}

  DimMap run(std::span<const TensorType> in, std::span<const TensorType> out) {
    map_.in = side(in.size());
    skip();
    WEFT_CHECK(text_.substr(pos_, 2) == "->", where(), "; need '->' after ", in.size(), " operands");
    pos_ += 2;
    map_.out = side(out.size());
    skip();
    WEFT_CHECK(pos_ == text_.size(), where(), "; need the end after ", out.size(), " results");
    for (size_t i = 0; i < in.size(); ++i) check_rank(map_.in[i], in[i]);
    for (size_t i = 0; i < out.size(); ++i) check_rank(map_.out[i], out[i]);
    solve(in, out);
    kinds();
    return std::move(map_);
  }

 private:
  std::string where() const {
    return str_cat("dim map \"", text_, "\": got '", text_.substr(std::min(pos_, text_.size())), "' at column ",
                   pos_ + 1);
  }
  void skip() {
    while (pos_ < text_.size() && text_[pos_] == ' ') ++pos_;
  }
  bool take(char c) {
    skip();
    if (pos_ >= text_.size() || text_[pos_] != c) return false;
    ++pos_;
    return true;
  }

  std::vector<DimFactors> side(size_t count) {
    std::vector<DimFactors> r;
    for (size_t i = 0; i < count; ++i) {
      if (i) WEFT_CHECK(take(','), where(), "; need ',' before tensor ", i);
      r.push_back(tensor());
    }
    return r;
  }

  DimFactors tensor() {
    DimFactors dims;
    std::vector<int> seen;
    while (true) {
      skip();
      if (pos_ >= text_.size() || text_[pos_] == ',' || text_[pos_] == '-') break;
      std::vector<int> d;
      if (take('(')) {
        while (!take(')')) d.push_back(factor(seen));
      } else if (text_[pos_] == '1') {
        ++pos_;
      } else {
        d.push_back(factor(seen));
      }
      dims.push_back(std::move(d));
    }
    return dims;
  }

  int factor(std::vector<int>& seen) {
    skip();
    size_t begin = pos_;
    WEFT_CHECK(pos_ < text_.size() && std::isalpha(static_cast<unsigned char>(text_[pos_])), where(), "; need a name");
    while (pos_ < text_.size() && std::isalnum(static_cast<unsigned char>(text_[pos_]))) ++pos_;
    std::string_view name = text_.substr(begin, pos_ - begin);
    FactorKind kind = FactorKind::kPass;
    if (pos_ < text_.size()) {
      for (FactorKind k :
           {FactorKind::kMax, FactorKind::kMin, FactorKind::kProd, FactorKind::kWhole, FactorKind::kRagged})
        if (text_[pos_] == *suffix(k)) kind = k;
      if (kind != FactorKind::kPass) ++pos_;
    }
    auto& f = map_.factors;
    auto it = std::find_if(f.begin(), f.end(), [&](const Factor& x) { return x.name == name; });
    if (it == f.end()) it = f.insert(f.end(), Factor{std::string(name), FactorKind::kPass, kUnknown});
    WEFT_CHECK(kind == FactorKind::kPass || it->kind == FactorKind::kPass || it->kind == kind, "dim map \"", text_,
               "\": got ", name, " with two different suffixes; need one");
    if (kind != FactorKind::kPass) it->kind = kind;
    int index = static_cast<int>(it - f.begin());
    WEFT_CHECK(std::find(seen.begin(), seen.end(), index) == seen.end(), "dim map \"", text_, "\": got ", name,
               " twice in one tensor; need distinct names");
    seen.push_back(index);
    return index;
  }

  void check_rank(const DimFactors& d, const TensorType& t) const {
    WEFT_CHECK(static_cast<int>(d.size()) == t.shape.size(), "dim map \"", text_, "\": got ", d.size(), " dims for ", t,
               "; need ", t.shape.size());
  }

  // Takes sizes from dims with one factor, then from groups with one unknown factor, until nothing changes.
  void solve(std::span<const TensorType> in, std::span<const TensorType> out) {
    for (auto& [name, size] : sizes_)
      for (Factor& f : map_.factors)
        if (f.name == name) f.size = size;
    bool learnt = true;
    while (learnt) {
      learnt = false;
      each_dim(in, out, [&](const std::vector<int>& d, int64_t extent, const TensorType&) {
        int unknown = -1, count = 0;
        int64_t known = 1;
        for (int i : d) {
          if (map_.factors[i].size == kUnknown)
            unknown = i, ++count;
          else
            known *= map_.factors[i].size;
        }
        if (count != 1 || known == 0) return;
        map_.factors[unknown].size = extent / known;  // a wrong division is found below
        learnt = true;
      });
    }
    bool empty = false;  // next to a factor of size 0 any size fits: take 1
    for (const Factor& f : map_.factors) empty |= f.size == 0;
    for (Factor& f : map_.factors) {
      if (f.size == kUnknown && empty) f.size = 1;
      WEFT_CHECK(f.size != kUnknown, "dim map \"", text_, "\": got no size for ", f.name,
                 "; need a dim of its own or an entry in sizes");
    }
    each_dim(in, out, [&](const std::vector<int>& d, int64_t extent, const TensorType& t) {
      int64_t product = 1;
      for (int i : d) product *= map_.factors[i].size;
      WEFT_CHECK(product == extent, "dim map \"", text_, "\": got extent ", extent, " in ", t, "; need ", product);
    });
  }

  template <class F>
  void each_dim(std::span<const TensorType> in, std::span<const TensorType> out, F f) {
    for (size_t i = 0; i < in.size(); ++i)
      for (int d = 0; d < in[i].shape.size(); ++d) f(map_.in[i][d], in[i].shape[d], in[i]);
    for (size_t i = 0; i < out.size(); ++i)
      for (int d = 0; d < out[i].shape.size(); ++d) f(map_.out[i][d], out[i].shape[d], out[i]);
  }

  void kinds() {
    std::vector<bool> kept(map_.factors.size());
    for (const DimFactors& t : map_.out)
      for (const std::vector<int>& d : t)
        for (int i : d) kept[i] = true;
    for (size_t i = 0; i < kept.size(); ++i) {
      Factor& f = map_.factors[i];
      if (!kept[i] && f.kind == FactorKind::kPass) f.kind = FactorKind::kSum;
      bool reduces = f.kind == FactorKind::kMax || f.kind == FactorKind::kMin || f.kind == FactorKind::kProd;
      WEFT_CHECK(!(kept[i] && reduces), "dim map \"", text_, "\": got ", f.name, suffix(f.kind),
                 " in a result; need it absent from results, for it is reduced");
    }
  }

  std::string_view text_;
  std::span<const std::pair<std::string, int64_t>> sizes_;
  size_t pos_ = 0;
  DimMap map_;
};

}  // namespace

DimMap DimMap::parse(std::string_view text, std::span<const TensorType> in, std::span<const TensorType> out,
                     std::span<const std::pair<std::string, int64_t>> sizes) {
  return DimMapParser(text, sizes).run(in, out);
}

DimMap DimMap::pointwise(std::span<const TensorType> in, std::span<const TensorType> out) {
  DimMap m;
  WEFT_BUG_IF(out.empty(), "pointwise: an op without results has no iteration space");
  const Shape& shape = out[0].shape;
  for (int i = 0; i < shape.size(); ++i)
    m.factors.push_back({std::string(1, static_cast<char>('a' + i)), FactorKind::kPass, shape[i]});
  auto dims = [&](const TensorType& t) {
    DimFactors d(t.shape.size());
    int shift = shape.size() - t.shape.size();
    WEFT_BUG_IF(shift < 0, "pointwise: operand ", t, " has more dims than result ", out[0]);
    for (int i = 0; i < t.shape.size(); ++i)
      if (t.shape[i] == shape[i + shift]) d[i] = {i + shift};
    return d;
  };
  for (const TensorType& t : in) m.in.push_back(dims(t));
  for (const TensorType& t : out) m.out.push_back(dims(t));
  return m;
}

double DimMap::points() const {
  double p = 1;
  for (const Factor& f : factors) p *= static_cast<double>(f.size);
  return p;
}

std::string DimMap::to_string() const {
  std::string s;
  auto side = [&](const std::vector<DimFactors>& tensors) {
    for (size_t t = 0; t < tensors.size(); ++t) {
      if (t) s += ", ";
      for (size_t d = 0; d < tensors[t].size(); ++d) {
        if (d) s += ' ';
        const std::vector<int>& dim = tensors[t][d];
        if (dim.empty()) s += '1';
        if (dim.size() > 1) s += '(';
        for (size_t i = 0; i < dim.size(); ++i) {
          if (i) s += ' ';
          s += factors[dim[i]].name + suffix(factors[dim[i]].kind);
        }
        if (dim.size() > 1) s += ')';
      }
    }
  };
  side(in);
  s += s.empty() || s.back() == ' ' ? "-> " : " -> ";
  side(out);
  while (!s.empty() && s.back() == ' ') s.pop_back();
  return s;
}

}  // namespace weft
