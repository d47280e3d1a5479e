#include "framework/mesh/mesh.h"

#include <algorithm>
#include <cctype>
#include <functional>

#include "framework/base/error.h"
#include "framework/base/origin.h"

namespace weft::dist {
namespace {

constexpr int64_t kMaxRanks = 1 << 20;

std::vector<int> prime_factors(int n) {
  std::vector<int> p;
  for (int d = 2; d * d <= n; ++d)
    for (; n % d == 0; n /= d) p.push_back(d);
  if (n > 1) p.push_back(n);
  return p;
}

bool is_name(std::string_view s) {
  bool ok = !s.empty();
  for (char c : s) ok &= std::isalpha(static_cast<unsigned char>(c)) || c == '_';
  return ok;
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    out.emplace_back(text.substr(0, comma));
    text = comma == text.npos ? std::string_view() : text.substr(comma + 1);
  }
  return out;
}

}  // namespace

Mesh::Mesh(const std::vector<std::pair<std::string, int>>& dims, std::source_location loc) {
  weft::internal::LineScope line(loc);
  int64_t size = 1;
  for (const auto& [text, count] : dims) {
    Dim d{.name = text, .size = count, .axes = {}, .over = {}};
    if (const size_t open = text.find('('); open != text.npos) {
      WEFT_CHECK(text.back() == ')', "mesh: got '", text, "'; need ')' at its end, as in \"ep(dp,tp)\"");
      d.name = text.substr(0, open);
      d.over = text.substr(open + 1, text.size() - open - 2);
      WEFT_CHECK(!d.over.empty(), "mesh: view '", d.name,
                 "' lists no dimensions; write them in parentheses, as in ep4(dp,tp)");
    }
    WEFT_CHECK(is_name(d.name), "mesh: dimension name '", d.name, "' is not valid; need letters, as in dp2,tp4");
    WEFT_CHECK(d.name != "world", "mesh: 'world' means all ranks; give the dimension another name");
    WEFT_CHECK(d.name != "replica" || (dims_.empty() && d.over.empty()),
               "mesh: 'replica' is not the first dimension; need it there, as in replica2,fsdp2");
    WEFT_CHECK(count >= 1, "mesh: dimension '", d.name, "' has size ", count, "; need 1 or more");
    WEFT_CHECK(!find(d.name), "mesh: dimension '", d.name, "' is given twice");
    if (d.over.empty()) size *= count;
    WEFT_CHECK(size <= kMaxRanks, "mesh: more than ", kMaxRanks, " ranks");
    dims_.push_back(std::move(d));
  }
  size_ = static_cast<int>(size);
  // A view may take only some of a dimension's innermost ranks: their number, by dimension. The dimension's axes are
  // refined so that the view ends between two of them.
  std::vector<std::vector<int>> cuts(dims_.size());
  for (const Dim& v : dims_) {
    if (v.over.empty()) continue;
    std::vector<size_t> over;
    for (const std::string& name : split(v.over)) {
      const Dim* d = find(name);
      WEFT_CHECK(d && d->over.empty(), "mesh: view '", v.name, "' lists '", name, "', but '", name,
                 "' is not a dimension of the mesh; add it, as in dp2,tp2,ep4(dp,tp)");
      WEFT_CHECK(name != "replica", "mesh: view '", v.name,
                 "' lists 'replica', which only splits the batch; need other dimensions");
      over.push_back(static_cast<size_t>(d - dims_.data()));
    }
    int left = v.size;
    for (size_t i = over.size(); i-- > 0 && left > 1;) {
      const int here = dims_[over[i]].size;
      if (left % here == 0) {
        left /= here;
        continue;
      }
      WEFT_CHECK(here % left == 0, "mesh: view '", v.name, "' of size ", v.size, " does not fit into ", v.over,
                 ": dimension '", dims_[over[i]].name, "' of size ", here, " does not split into groups of ", left);
      cuts[over[i]].push_back(left);
      left = 1;
    }
    WEFT_CHECK(left == 1, "mesh: view '", v.name, "' has size ", v.size, "; need a divisor of the number of ranks in ",
               v.over);
  }
  for (size_t i = 0; i < dims_.size(); ++i) {
    if (!dims_[i].over.empty()) continue;
    std::sort(cuts[i].begin(), cuts[i].end(), std::greater<>());
    int outer = dims_[i].size;
    auto add = [&](int n) {
      // Nothing is split over a part of the replicas.
      const bool whole = dims_[i].name == "replica" && n > 1;
      for (int p : whole ? std::vector<int>{n} : prime_factors(n)) {
        dims_[i].axes.push_back(static_cast<int8_t>(axis_size_.size()));
        axis_size_.push_back(p);
      }
    };
    for (int cut : cuts[i]) {
      if (cut == outer) continue;
      WEFT_CHECK(outer % cut == 0, "mesh: two views split dimension '", dims_[i].name,
                 "' into groups that do not nest");
      add(outer / cut);
      outer = cut;
    }
    add(outer);
  }
  WEFT_CHECK(axis_size_.size() < 64, "mesh: too many dimensions");
  axis_stride_.assign(axis_size_.size(), 1);
  for (size_t a = axis_size_.size(); a-- > 1;) axis_stride_[a - 1] = axis_stride_[a] * axis_size_[a];
  for (Dim& v : dims_) {
    if (v.over.empty()) continue;
    Axes all = axes(v.over), inner;
    int left = v.size;
    for (int i = static_cast<int>(all.size()) - 1; i >= 0 && left > 1; --i) {
      inner.push_back(all[static_cast<size_t>(i)]);
      left /= axis_size(all[static_cast<size_t>(i)]);
    }
    for (size_t i = inner.size(); i-- > 0;) v.axes.push_back(inner[i]);
  }
}

Mesh Mesh::parse(std::string_view text, std::source_location loc) {
  weft::internal::LineScope line(loc);
  if (text == "one") return Mesh();
  std::vector<std::pair<std::string, int>> dims;
  size_t at = 0;
  auto fail = [&](const char* need) {
    WEFT_CHECK(false, "mesh '", text, "': got '", text.substr(std::min(at, text.size())), "' at column ", at + 1,
               "; need ", need, ", as in dp2,tp2 or dp2,tp2,ep4(dp,tp)");
  };
  while (at < text.size()) {
    std::string name;
    while (at < text.size() && (std::isalpha(static_cast<unsigned char>(text[at])) || text[at] == '_'))
      name += text[at++];
    if (name.empty()) fail("the name of a dimension");
    int64_t size = 0;
    const size_t digits = at;
    for (; at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])); ++at)
      size = std::min<int64_t>(size * 10 + (text[at] - '0'), kMaxRanks + 1);
    if (at == digits) fail("a number of ranks");
    if (at < text.size() && text[at] == '(') {
      const size_t close = text.find(')', at);
      if (close == text.npos) fail("')'");
      name += text.substr(at, close + 1 - at);
      at = close + 1;
    }
    dims.emplace_back(name, static_cast<int>(size));
    if (at == text.size()) break;
    if (text[at] != ',') fail("','");
    if (++at == text.size()) fail("a dimension after ','");
  }
  return Mesh(dims, loc);
}

const Mesh::Dim* Mesh::find(std::string_view name) const {
  for (const Dim& d : dims_)
    if (d.name == name) return &d;
  return nullptr;
}

Axes Mesh::axes(std::string_view names) const {
  Axes out;
  if (names == "world") {
    for (int a = 0; a < num_axes(); ++a) out.push_back(static_cast<int8_t>(a));
    return out;
  }
  for (const std::string& part : split(names)) {
    const size_t colon = part.find(':');
    const Dim* d = find(part.substr(0, colon));
    if (!d) {
      std::string known;
      for (const Dim& k : dims_) known += (known.empty() ? "" : ", ") + k.name;
      if (known.empty()) known = "none";
      WEFT_CHECK_AS(kNotFound, false, "mesh ", to_string(), " has no dimension '", part, "'; it has ", known);
    }
    if (colon == part.npos) {
      for (int8_t a : d->axes) out.push_back(a);
      continue;
    }
    const std::string index = part.substr(colon + 1);
    const bool ok = !index.empty() && index.size() < 3 &&
                    std::all_of(index.begin(), index.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
                    std::stoul(index) < d->axes.size();
    WEFT_CHECK_AS(kNotFound, ok, "mesh: there is no axis '", part, "'; need ", d->name, ":0 to ", d->name, ":",
                  d->axes.size() - 1);
    out.push_back(d->axes[std::stoul(index)]);
  }
  for (size_t i = 0; i < out.size(); ++i)
    for (size_t j = i + 1; j < out.size(); ++j)
      WEFT_CHECK(out[i] != out[j], "mesh: '", names, "' lists the same axis twice");
  return out;
}

int64_t Mesh::parts(const Axes& axes) const {
  int64_t p = 1;
  for (int8_t a : axes) p *= axis_size(a);
  return p;
}

std::string Mesh::name(const Axes& axes) const {
  std::string out;
  for (size_t i = 0; i < axes.size();) {
    const Dim* best = nullptr;  // the dimension that covers most of the remaining axes
    for (const Dim& d : dims_) {
      bool here = !d.axes.empty() && d.axes.size() <= axes.size() - i;
      for (size_t k = 0; here && k < d.axes.size(); ++k) here = d.axes[k] == axes[i + k];
      if (here && (!best || d.axes.size() > best->axes.size())) best = &d;
    }
    if (!out.empty()) out += ',';
    if (best) {
      out += best->name;
      i += best->axes.size();
      continue;
    }
    for (const Dim& d : dims_) {
      if (!d.over.empty()) continue;
      for (size_t k = 0; k < d.axes.size(); ++k)
        if (d.axes[k] == axes[i]) out += str_cat(d.name, ":", k);
    }
    ++i;
  }
  return out;
}

int64_t Mesh::coordinate(int rank, const Axes& axes) const {
  int64_t c = 0;
  for (int8_t a : axes) c = c * axis_size(a) + rank / axis_stride_[static_cast<size_t>(a)] % axis_size(a);
  return c;
}

std::vector<int> Mesh::group(int rank, const Axes& axes) const {
  int base = rank;
  for (int8_t a : axes)
    base -= rank / axis_stride_[static_cast<size_t>(a)] % axis_size(a) * axis_stride_[static_cast<size_t>(a)];
  std::vector<int> out{base};
  for (int8_t a : axes) {
    std::vector<int> next;
    for (int r : out)
      for (int i = 0; i < axis_size(a); ++i) next.push_back(r + i * axis_stride_[static_cast<size_t>(a)]);
    out = std::move(next);
  }
  return out;
}

std::string Mesh::to_string() const {
  if (dims_.empty()) return "one";
  std::string s;
  for (const Dim& d : dims_)
    s += str_cat(s.empty() ? "" : ",", d.name, d.size, d.over.empty() ? "" : str_cat("(", d.over, ")"));
  return s;
}

}  // namespace weft::dist
