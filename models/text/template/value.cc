#include "models/text/template/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "framework/base/error.h"
#include "framework/io/utf8.h"
#include "models/text/template/node.h"

namespace weft::text::jinja {

std::string kind_of(const Value& v) {
  static constexpr const char* kKinds[] = {"undefined", "none",   "a boolean", "a whole number", "a number",
                                           "a text",    "a list", "a mapping", "a loop",         "a function"};
  return kKinds[v.index()];
}

bool truth(const Value& v) {
  if (const bool* b = as<bool>(v)) return *b;
  if (const int64_t* i = as<int64_t>(v)) return *i != 0;
  if (const double* d = as<double>(v)) return *d != 0;
  if (const MarkedText* t = as_text(v)) return t->size() > 0;
  if (const List* l = as_object<List>(v)) return !l->items.empty();
  if (const Dict* d = as_object<Dict>(v)) return d->is_namespace || !d->items.empty();
  return !is_undefined(v) && !is_none(v);
}

const int64_t* as_integer(const Value& v, int64_t& room) {
  if (const bool* b = as<bool>(v)) return room = *b, &room;
  return as<int64_t>(v);
}

std::string real_text(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v < 0 ? "-inf" : "inf";
  char buffer[64];
  const double size = std::fabs(v);
  const bool fixed = v == 0 || (size >= 1e-4 && size < 1e16);
  const auto r = std::to_chars(buffer, buffer + sizeof buffer, v,
                               fixed ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer, r.ptr);
  return fixed && text.find('.') == text.npos ? text + ".0" : text;
}

void Heap::fail(const std::string& what) const {
  internal::fail(Code::kInvalidArgument, str_cat(file_, ": line ", line, ": ", what));
}
void Heap::too_many() const {
  internal::fail(Code::kResourceExhausted,
                 str_cat(file_, ": line ", line, ": got more than ", kMostSteps, " steps; need a template with fewer"));
}
void Heap::check_depth(int depth) const {
  if (depth > kMostNesting) fail(str_cat("got more than ", kMostNesting, " nested values; need fewer"));
}

Value Heap::text(MarkedText t) {
  charge(static_cast<int64_t>(t.size()) / 256);
  if ((text_ += t.cost()) > kMostText)
    internal::fail(Code::kResourceExhausted,
                   str_cat(file_, ": line ", line, ": made more than ", kMostText >> 20, " MiB of text; need less"));
  return std::make_shared<const MarkedText>(std::move(t));
}

List* Heap::list(std::vector<Value> items, bool tuple) {
  charge(static_cast<int64_t>(items.size()));
  return &lists_.emplace_back(List{std::move(items), tuple});
}

bool Heap::equal(const Value& a, const Value& b, int depth) {
  charge(1);
  check_depth(depth);
  const MarkedText *s = as_text(a), *t = as_text(b);
  if (s && t) {
    charge(static_cast<int64_t>(std::min(s->size(), t->size())) / 256);
    return s->bytes() == t->bytes();
  }
  int64_t room_a, room_b;
  const int64_t *i = as_integer(a, room_a), *j = as_integer(b, room_b);
  const double *x = as<double>(a), *y = as<double>(b);
  if ((i || x) && (j || y)) {
    if (i && j) return *i == *j;
    return (x ? *x : static_cast<double>(*i)) == (y ? *y : static_cast<double>(*j));
  }
  if (a.index() != b.index()) return false;
  if (is_undefined(a) || is_none(a)) return true;
  if (const List* p = as_object<List>(a)) {
    const List* q = as_object<List>(b);
    if (p->tuple != q->tuple || p->items.size() != q->items.size()) return false;
    for (size_t k = 0; k < p->items.size(); ++k)
      if (!equal(p->items[k], q->items[k], depth + 1)) return false;
    return true;
  }
  Dict *p = as_object<Dict>(a), *q = as_object<Dict>(b);
  if (!p || p->is_namespace || q->is_namespace)
    return p == q && as_object<Loop>(a) == as_object<Loop>(b) && as_object<Function>(a) == as_object<Function>(b);
  if (p->items.size() != q->items.size()) return false;
  for (const auto& [key, value] : p->items) {
    const Value* other = find(*q, key);
    if (!other || !equal(value, *other, depth + 1)) return false;
  }
  return true;
}

bool Heap::less(const Value& a, const Value& b, int depth) {
  charge(1);
  check_depth(depth);
  const MarkedText *s = as_text(a), *t = as_text(b);
  if (s && t) {
    charge(static_cast<int64_t>(std::min(s->size(), t->size())) / 256);
    return s->bytes() < t->bytes();
  }
  int64_t room_a, room_b;
  const int64_t *i = as_integer(a, room_a), *j = as_integer(b, room_b);
  const double *x = as<double>(a), *y = as<double>(b);
  if (i && j) return *i < *j;
  if ((i || x) && (j || y)) return (x ? *x : static_cast<double>(*i)) < (y ? *y : static_cast<double>(*j));
  const List *p = as_object<List>(a), *q = as_object<List>(b);
  if (!p || !q || p->tuple != q->tuple) fail(str_cat("cannot order ", kind_of(a), " and ", kind_of(b)));
  for (size_t k = 0; k < p->items.size() && k < q->items.size(); ++k)
    if (!equal(p->items[k], q->items[k], depth + 1)) return less(p->items[k], q->items[k], depth + 1);
  return p->items.size() < q->items.size();
}

Value* Heap::find(Dict& d, const Value& key) {
  if (const MarkedText* t = as_text(key)) return find(d, t->bytes());
  if (as_object<List>(key) && !as_object<List>(key)->tuple) fail("a list cannot be a key");
  if (as_object<Dict>(key)) fail("a mapping cannot be a key");
  for (auto& [k, value] : d.items)
    if (equal(k, key)) return &value;
  return nullptr;
}

Value* Heap::find(Dict& d, std::string_view key) {
  charge(static_cast<int64_t>(d.items.size() / 16 + key.size() / 256));
  for (auto& [k, value] : d.items)
    if (const MarkedText* t = as_text(k); t && t->bytes() == key) return &value;
  return nullptr;
}

void Heap::set(Dict& d, Value key, Value value) {
  charge(1);
  if (Value* old = find(d, key))
    *old = std::move(value);
  else
    d.items.emplace_back(std::move(key), std::move(value));
}

namespace {

constexpr char kHex[] = "0123456789abcdef";

// repr() of a text.
void quote(const MarkedText& t, MarkedText& to) {
  const std::string& s = t.bytes();
  const char mark = s.find('\'') != s.npos && s.find('"') == s.npos ? '"' : '\'';
  to.append(std::string_view(&mark, 1), false);
  for (size_t i = 0; i < s.size();) {
    const size_t n = io::first_character(std::string_view(s).substr(i)).size;
    const auto c = static_cast<unsigned char>(s[i]);
    if (n > 1 || (c >= 0x20 && c < 0x7F && c != '\\' && c != static_cast<unsigned char>(mark))) {
      to.append(t, i, i + n);
    } else {
      std::string escaped = "\\";
      if (c == '\n' || c == '\r' || c == '\t')
        escaped += c == '\n' ? 'n' : c == '\r' ? 'r' : 't';
      else if (c == '\\' || c == static_cast<unsigned char>(mark))
        escaped += static_cast<char>(c);
      else
        escaped += {'x', kHex[c >> 4], kHex[c & 15]};
      to.append(escaped, t.from_user(i));
    }
    i += n;
  }
  to.append(std::string_view(&mark, 1), false);
}

void json_quote(const MarkedText& t, bool ascii, MarkedText& to) {
  static constexpr std::string_view kFrom = "\"\\\n\r\t\b\f", kTo = "\"\\nrtbf";
  const std::string& s = t.bytes();
  to.append("\"", false);
  for (size_t i = 0; i < s.size();) {
    const auto [c, n] = io::first_character(std::string_view(s).substr(i));
    const size_t k = kFrom.find(s[i]);
    const auto unit = [](uint32_t u) {
      return std::string{'\\', 'u', kHex[u >> 12 & 15], kHex[u >> 8 & 15], kHex[u >> 4 & 15], kHex[u & 15]};
    };
    if (k != kFrom.npos) {
      to.append(std::string{'\\', kTo[k]}, t.from_user(i));
    } else if (c < 0x20) {
      to.append(unit(c), t.from_user(i));
    } else if (ascii && c >= 0x80) {
      to.append(c < 0x10000 ? unit(c) : unit(0xD7C0 + (c >> 10)) + unit(0xDC00 | (c & 0x3FF)), t.from_user(i));
    } else {
      to.append(t, i, i + n);
    }
    i += n;
  }
  to.append("\"", false);
}

std::string number_text(const Value& v) {
  if (const bool* b = as<bool>(v)) return *b ? "True" : "False";
  if (const int64_t* i = as<int64_t>(v)) return str_cat(*i);
  return real_text(*as<double>(v));
}

}  // namespace

void Heap::print(const Value& v, MarkedText& to, bool quoted, int depth) {
  charge(1);
  check_depth(depth);
  if (const MarkedText* t = as_text(v)) {
    if (!quoted) {
      charge(static_cast<int64_t>(t->size()) / 256);
      return to.append(*t);
    }
    charge_written(*t);
    return quote(*t, to);
  }
  if (is_undefined(v)) return to.append(quoted ? "Undefined" : "", false);
  if (is_none(v)) return to.append("None", false);
  if (const List* l = as_object<List>(v)) {
    to.append(l->tuple ? "(" : "[", false);
    for (size_t i = 0; i < l->items.size(); ++i) {
      if (i) to.append(", ", false);
      print(l->items[i], to, true, depth + 1);
    }
    if (l->tuple && l->items.size() == 1) to.append(",", false);
    return to.append(l->tuple ? ")" : "]", false);
  }
  if (const Dict* d = as_mapping(v)) {
    to.append("{", false);
    for (size_t i = 0; i < d->items.size(); ++i) {
      if (i) to.append(", ", false);
      print(d->items[i].first, to, true, depth + 1);
      to.append(": ", false);
      print(d->items[i].second, to, true, depth + 1);
    }
    return to.append("}", false);
  }
  if (v.index() > 5) fail(str_cat("cannot print ", kind_of(v)));
  to.append(number_text(v), false);
}

MarkedText Heap::str(const Value& v) {
  MarkedText t;
  print(v, t);
  return t;
}

void Heap::json(const Value& v, const JsonStyle& style, MarkedText& to, int depth) {
  charge(1);
  check_depth(depth);
  if (const MarkedText* t = as_text(v)) {
    charge_written(*t);
    return json_quote(*t, style.ascii, to);
  }
  if (is_none(v)) return to.append("null", false);
  if (const bool* b = as<bool>(v)) return to.append(*b ? "true" : "false", false);
  if (const double* d = as<double>(v); d && !std::isfinite(*d))
    return to.append(std::isnan(*d) ? "NaN" : *d < 0 ? "-Infinity" : "Infinity", false);
  if (v.index() == 3 || v.index() == 4) return to.append(number_text(v), false);
  const auto new_line = [&](int level) {
    if (style.indent >= 0) to.append("\n" + std::string(style.indent * level, ' '), false);
  };
  const auto each = [&](size_t count, const char* open, const char* close, const auto& item) {
    to.append(open, false);
    for (size_t i = 0; i < count; ++i) {
      if (i) to.append(style.item, false);
      new_line(depth + 1);
      item(i);
    }
    if (count) new_line(depth);
    to.append(close, false);
  };
  if (const List* l = as_object<List>(v))
    return each(l->items.size(), "[", "]", [&](size_t i) { json(l->items[i], style, to, depth + 1); });
  const Dict* d = as_mapping(v);
  if (!d) fail(str_cat("tojson: got ", kind_of(v), "; need a value that JSON has"));
  std::vector<const std::pair<Value, Value>*> items;
  for (const auto& item : d->items) items.push_back(&item);
  if (style.sorted)
    std::stable_sort(items.begin(), items.end(), [&](auto* a, auto* b) { return less(a->first, b->first); });
  each(items.size(), "{", "}", [&](size_t i) {
    const Value& key = items[i]->first;
    if (as_text(key)) {
      json(key, style, to, depth + 1);
    } else {
      if (key.index() > 4 || is_undefined(key)) fail(str_cat("tojson: got ", kind_of(key), " as a key; need a text"));
      to.append("\"", false);
      json(key, style, to, depth + 1);
      to.append("\"", false);
    }
    to.append(style.key, false);
    json(items[i]->second, style, to, depth + 1);
  });
}

}  // namespace weft::text::jinja
