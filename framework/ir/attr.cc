#include "framework/ir/attr.h"

#include <algorithm>
#include <bit>

#include "framework/base/hash.h"
#include "framework/ir/equal.h"
#include "framework/ir/graph.h"

namespace weft {
namespace {

template <class T>
const char* kind_name() {
  if constexpr (std::is_same_v<T, int64_t>) return "an integer";
  if constexpr (std::is_same_v<T, double>) return "a double";
  if constexpr (std::is_same_v<T, bool>) return "a bool";
  if constexpr (std::is_same_v<T, DType>) return "a dtype";
  if constexpr (std::is_same_v<T, std::string>) return "a string";
  if constexpr (std::is_same_v<T, Shape>) return "a list of integers";
  if constexpr (std::is_same_v<T, Ref<Graph>>) return "a graph";
}

const char* kind_name(const AttrValue& v) {
  return std::visit([]<class T>(const T&) { return kind_name<T>(); }, v);
}

bool equal(const AttrValue& a, const AttrValue& b) {
  if (a.index() != b.index()) return false;
  if (const double* x = std::get_if<double>(&a))  // equal bits: NaN equals itself, -0 differs from 0
    return std::bit_cast<uint64_t>(*x) == std::bit_cast<uint64_t>(std::get<double>(b));
  if (const Ref<Graph>* x = std::get_if<Ref<Graph>>(&a)) {
    const Ref<Graph>& y = std::get<Ref<Graph>>(b);
    if (*x == y) return true;
    return *x && y && internal::graphs_equal(**x, *y, internal::CapturedBy::kIdentity);
  }
  return a == b;
}

uint64_t hash_value(const AttrValue& v) {
  return std::visit(
      []<class T>(const T& x) -> uint64_t {
        if constexpr (std::is_same_v<T, double>)
          return std::bit_cast<uint64_t>(x);
        else if constexpr (std::is_same_v<T, std::string>)
          return hash_text(x);
        else if constexpr (std::is_same_v<T, Shape>)
          return hash_bytes(x.data(), x.size() * sizeof(int64_t));
        else if constexpr (std::is_same_v<T, Ref<Graph>>)
          return x ? structural_hash(*x) : 0;
        else
          return static_cast<uint64_t>(x);
      },
      v);
}

}  // namespace

Attrs::Data::~Data() = default;

Attrs::Attrs(std::initializer_list<AttrEntry> entries) : Attrs(std::vector<AttrEntry>(entries)) {}

Attrs::Attrs(std::vector<AttrEntry> entries) {
  if (entries.empty()) return;
  std::sort(entries.begin(), entries.end(), [](const AttrEntry& a, const AttrEntry& b) { return a.first < b.first; });
  for (size_t i = 1; i < entries.size(); ++i)
    WEFT_CHECK(entries[i].first != entries[i - 1].first, "attrs: got '", entries[i].first,
               "' twice; need distinct names");
  data_ = make_ref<Data>();
  data_->entries = std::move(entries);
}

const AttrValue* Attrs::find(std::string_view key) const {
  if (!data_) return nullptr;
  for (const AttrEntry& e : data_->entries)
    if (e.first == key) return &e.second;
  return nullptr;
}

template <class T>
const T& Attrs::get(std::string_view key) const {
  const AttrValue* v = find(key);
  if (!v) {
    std::vector<std::string> names;
    for (const AttrEntry& e : entries()) names.push_back(e.first);
    internal::fail(Code::kNotFound, str_cat("attrs: no attribute '", key, "'; got ", names));
  }
  const T* x = std::get_if<T>(v);
  WEFT_CHECK(x, "attrs: '", key, "' is ", kind_name(*v), "; need ", kind_name<T>());
  if constexpr (std::is_same_v<T, Ref<Graph>>) WEFT_CHECK(*x, "attrs: '", key, "' is null; need a graph");
  return *x;
}
template const int64_t& Attrs::get<int64_t>(std::string_view) const;
template const double& Attrs::get<double>(std::string_view) const;
template const bool& Attrs::get<bool>(std::string_view) const;
template const DType& Attrs::get<DType>(std::string_view) const;
template const std::string& Attrs::get<std::string>(std::string_view) const;
template const Shape& Attrs::get<Shape>(std::string_view) const;
template const Ref<Graph>& Attrs::get<Ref<Graph>>(std::string_view) const;

Attrs Attrs::with(std::string key, AttrValue value) const {
  std::vector<AttrEntry> e(entries().begin(), entries().end());
  auto it = std::find_if(e.begin(), e.end(), [&](const AttrEntry& x) { return x.first == key; });
  if (it != e.end()) {
    it->second = std::move(value);
  } else {
    e.emplace_back(std::move(key), std::move(value));
  }
  return Attrs(std::move(e));
}

Attrs Attrs::without(std::string_view key) const {
  if (!has(key)) return *this;
  std::vector<AttrEntry> e(entries().begin(), entries().end());
  std::erase_if(e, [&](const AttrEntry& x) { return x.first == key; });
  return Attrs(std::move(e));
}

std::span<const Attrs::AttrEntry> Attrs::entries() const {
  if (!data_) return {};
  return data_->entries;
}

bool operator==(const Attrs& a, const Attrs& b) {
  if (a.data_ == b.data_) return true;
  auto x = a.entries(), y = b.entries();
  return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](const Attrs::AttrEntry& p, const Attrs::AttrEntry& q) {
    return p.first == q.first && equal(p.second, q.second);
  });
}

uint64_t Attrs::hash() const {
  uint64_t h = 0;
  for (const AttrEntry& e : entries())
    h = hash_combine(hash_combine(hash_text(e.first, h), e.second.index()), hash_value(e.second));
  return h;
}

}  // namespace weft
