// Filters and tests.
#include <algorithm>
#include <charconv>

#include "framework/base/one_line.h"
#include "framework/io/utf8.h"
#include "models/text/template/interpreter.h"
#include "models/text/template/unicode.h"

namespace weft::text::jinja {
namespace {

using In = Interpreter;
using Filter = Value (*)(In&, const Value&, const Arguments&);

// The value that sorts and compares: of an attribute if it is given, in lower case unless `cased`.
Value key_of(In& in, const Value& v, const Value& attribute, bool cased) {
  Value key = v;
  if (!is_undefined(attribute) && !is_none(attribute)) {
    std::string_view path;
    if (as_text(attribute)) path = as_text(attribute)->bytes();
    if (path.empty()) key = in.item(v, attribute);
    while (!path.empty()) {
      const size_t dot = std::min(path.find('.'), path.size());
      key = in.item(key, in.heap.text(path.substr(0, dot)));
      path.remove_prefix(std::min(dot + 1, path.size()));
    }
  }
  return cased || !as_text(key) ? key : in.method("lower", key, {});
}

bool flag(const Value& v) { return !is_undefined(v) && truth(v); }

// The elements with their keys, in the order of the keys.
std::vector<Value> in_order(In& in, std::vector<Value> items, const Value& attribute, bool cased, bool reverse) {
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& v : items) {
    Value key = key_of(in, v, attribute, cased);
    keyed.emplace_back(std::move(key), std::move(v));
  }
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? in.heap.less(b.first, a.first) : in.heap.less(a.first, b.first);
  });
  std::vector<Value> sorted;
  for (auto& [key, v] : keyed) sorted.push_back(std::move(v));
  return sorted;
}

Value join(In& in, const Value& v, const Arguments& a) {
  const std::vector<Value> p = in.bind("join", a, {"d", "attribute"});
  const MarkedText separator = is_undefined(p[0]) ? MarkedText() : in.heap.str(p[0]);
  MarkedText out;
  bool first = true;
  for (const Value& item : in.elements(v)) {
    if (!first) out.append(separator);
    first = false;
    in.heap.print(key_of(in, item, p[1], true), out);
  }
  return in.heap.text(std::move(out));
}

Value length(In& in, const Value& v, const Arguments& a) {
  in.bind("length", a, {});
  if (const MarkedText* t = as_text(v)) {
    in.heap.charge_characters(*t);
    return static_cast<int64_t>(count_characters(t->bytes()));
  }
  if (const List* l = as_object<List>(v)) return static_cast<int64_t>(l->items.size());
  if (const Dict* d = as_mapping(v)) return static_cast<int64_t>(d->items.size());
  if (is_undefined(v)) return int64_t{0};
  in.heap.fail(str_cat("length: got ", kind_of(v), "; need a text, a list or a mapping"));
}

Value tojson(In& in, const Value& v, const Arguments& a) {
  const std::vector<Value> p = in.bind("tojson", a, {"ensure_ascii", "indent", "separators", "sort_keys"});
  Heap::JsonStyle style{.sorted = flag(p[3]), .ascii = flag(p[0])};
  style.indent = in.integer(p[1], -1, 0, 64);
  if (style.indent >= 0) style.item = ',';
  if (const List* l = as_object<List>(p[2]); l && l->items.size() == 2) {
    style.item = in.text(l->items[0], "tojson").bytes();
    style.key = in.text(l->items[1], "tojson").bytes();
  } else if (!is_undefined(p[2]) && !is_none(p[2])) {
    in.heap.fail("tojson: need two separators");
  }
  MarkedText out;
  in.heap.json(v, style, out);
  return in.heap.text(std::move(out));
}

Value otherwise(In& in, const Value& v, const Arguments& a) {
  const std::vector<Value> p = in.bind("default", a, {"default_value", "boolean"});
  if (!is_undefined(v) && !(flag(p[1]) && !truth(v))) return v;
  return a.values.empty() || (is_undefined(p[0]) && !a.names.empty()) ? in.heap.text("") : p[0];
}

Value items(In& in, const Value& v, const Arguments& a) {
  in.bind("items", a, {});
  if (is_undefined(v)) return in.heap.list();
  if (!as_mapping(v)) in.heap.fail(str_cat("items: got ", kind_of(v), "; need a mapping"));
  return in.method("items", v, {});
}

Value dictsort(In& in, const Value& v, const Arguments& a) {
  const std::vector<Value> p = in.bind("dictsort", a, {"case_sensitive", "by", "reverse"});
  const std::string by = is_undefined(p[1]) ? "key" : in.text(p[1], "dictsort").bytes();
  if (by != "key" && by != "value")
    in.heap.fail(str_cat("dictsort: by is '", one_line(by, 40), "'; need key or value"));
  return in.heap.list(
      in_order(in, in.elements(items(in, v, {})), by == "key" ? int64_t{0} : int64_t{1}, flag(p[0]), flag(p[2])));
}

Value sort(In& in, const Value& v, const Arguments& a) {
  const std::vector<Value> p = in.bind("sort", a, {"reverse", "case_sensitive", "attribute"});
  return in.heap.list(in_order(in, in.elements(v), p[2], flag(p[1]), flag(p[0])));
}

template <bool kMost>
Value extreme(In& in, const Value& v, const Arguments& a) {
  const std::vector<Value> p = in.bind(kMost ? "max" : "min", a, {"case_sensitive", "attribute"});
  Value best, best_key;
  bool first = true;
  for (Value& item : in.elements(v)) {
    Value key = key_of(in, item, p[1], flag(p[0]));
    if (first || (kMost ? in.heap.less(best_key, key) : in.heap.less(key, best_key))) {
      best = std::move(item);
      best_key = std::move(key);
    }
    first = false;
  }
  return best;
}

Value unique(In& in, const Value& v, const Arguments& a) {
  const std::vector<Value> p = in.bind("unique", a, {"case_sensitive", "attribute"});
  std::vector<Value> kept, keys;
  for (Value& item : in.elements(v)) {
    Value key = key_of(in, item, p[1], flag(p[0]));
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& k) { return in.heap.equal(k, key); })) continue;
    kept.push_back(std::move(item));
    keys.push_back(std::move(key));
  }
  return in.heap.list(std::move(kept));
}

Arguments rest(const Arguments& a, size_t begin) {
  Arguments r = a;
  r.values.erase(r.values.begin(), r.values.begin() + static_cast<ptrdiff_t>(std::min(begin, a.positional())));
  return r;
}

// The elements that select and map read: none of a value that is false.
std::vector<Value> some_elements(In& in, const Value& v) { return truth(v) ? in.elements(v) : std::vector<Value>(); }

// select, reject, selectattr and rejectattr.
template <bool kAttribute, bool kWanted>
Value select(In& in, const Value& v, const Arguments& a) {
  if (kAttribute && a.positional() == 0) in.heap.fail("selectattr: need the name of an attribute");
  const size_t at = kAttribute;  // argument with the name of the test
  const bool tested = a.positional() > at;
  std::string name;
  if (tested) name = in.text(a.values[at], "select").bytes();
  const Arguments given = rest(a, at + 1);
  std::vector<Value> all = some_elements(in, v), kept;
  for (Value& item : all) {
    Value key = item;
    if constexpr (kAttribute) key = key_of(in, item, a.values[0], true);
    if ((tested ? in.test(name, key, given) : truth(key)) == kWanted) kept.push_back(std::move(item));
  }
  return in.heap.list(std::move(kept));
}

Value map(In& in, const Value& v, const Arguments& a) {
  std::vector<Value> made;
  const std::vector<Value> all = some_elements(in, v);
  if (a.names.empty() || a.positional() > 0) {
    if (a.values.empty()) in.heap.fail("map: need the name of a filter or attribute=");
    const std::string name = in.text(a.values[0], "map").bytes();
    const Arguments given = rest(a, 1);
    for (const Value& item : all) made.push_back(in.filter(name, item, given));
  } else {
    const std::vector<Value> p = in.bind("map", a, {"attribute", "default"});
    for (const Value& item : all) {
      Value key = key_of(in, item, p[0], true);
      made.push_back(is_undefined(key) ? p[1] : std::move(key));
    }
  }
  return in.heap.list(std::move(made));
}

Value indent(In& in, const Value& v, const Arguments& a) {
  const std::vector<Value> p = in.bind("indent", a, {"width", "first", "blank"});
  const MarkedText margin = as_text(p[0]) ? *as_text(p[0]) : MarkedText(std::string(in.integer(p[0], 4, 0, 1000), ' '));
  const MarkedText all = in.heap.str(v);
  const std::string& s = all.bytes();
  in.heap.charge_characters(all);
  MarkedText out;
  for (size_t begin = 0; begin <= s.size();) {
    const size_t end = std::min(s.find('\n', begin), s.size());
    if (begin > 0) out.append(all, begin - 1, begin);
    if (begin == 0 ? flag(p[1]) : end > begin || flag(p[2])) out.append(margin);
    out.append(all, begin, end);
    begin = end + 1;
  }
  return in.heap.text(std::move(out));
}

// The number that a text begins and ends with, as int() and float() of Python; false if there is none.
template <class T>
bool parse(std::string_view s, T& number) {
  while (!s.empty() && is_space(io::first_character(s.substr(0, 1)).code)) s.remove_prefix(1);
  while (!s.empty() && is_space(io::first_character(s.substr(s.size() - 1)).code)) s.remove_suffix(1);
  if (s.size() > 1 && s[0] == '+' && s[1] != '-') s.remove_prefix(1);
  const auto r = std::from_chars(s.data(), s.data() + s.size(), number);
  return r.ec == std::errc() && r.ptr == s.data() + s.size();
}

Value to_integer(In& in, const Value& v, const Arguments& a) {
  const std::vector<Value> p = in.bind("int", a, {"default"});
  const Value fallback = is_undefined(p[0]) ? Value(int64_t{0}) : p[0];
  int64_t room;
  if (const int64_t* i = as_integer(v, room)) return *i;
  double d;
  if (const MarkedText* t = as_text(v)) {
    in.heap.charge_characters(*t);
    if (parse(t->bytes(), room)) return room;
    in.heap.charge_characters(*t);
    if (!parse(t->bytes(), d)) return fallback;
  } else if (as<double>(v)) {
    d = *as<double>(v);
  } else {
    return fallback;
  }
  return d > -9e18 && d < 9e18 ? Value(static_cast<int64_t>(d)) : fallback;
}

Value to_real(In& in, const Value& v, const Arguments& a) {
  const std::vector<Value> p = in.bind("float", a, {"default"});
  int64_t room;
  double d;
  if (const int64_t* i = as_integer(v, room)) return static_cast<double>(*i);
  if (as<double>(v)) return v;
  if (const MarkedText* t = as_text(v)) {
    in.heap.charge_characters(*t);
    if (parse(t->bytes(), d)) return d;
  }
  return is_undefined(p[0]) ? Value(0.0) : p[0];
}

template <bool kLast>
Value end_of(In& in, const Value& v, const Arguments& a) {
  in.bind(kLast ? "last" : "first", a, {});
  const std::vector<Value> all = in.elements(v);
  if (all.empty()) return {};
  return kLast ? all.back() : all.front();
}

Value reverse(In& in, const Value& v, const Arguments& a) {
  in.bind("reverse", a, {});
  std::vector<Value> all = in.elements(v);
  std::reverse(all.begin(), all.end());
  if (!as_text(v)) return in.heap.list(std::move(all));
  MarkedText text;
  for (const Value& c : all) text.append(*as_text(c));
  return in.heap.text(std::move(text));
}

// title of Jinja, where a word begins after blanks and -({[< alone; the method of Python begins a word after each
// character that is not a letter.
Value title(In& in, const Value& v, const Arguments& a) {
  in.bind("title", a, {});
  const MarkedText all = in.heap.str(v);
  const std::string_view s = all.bytes();
  MarkedText out;
  for (size_t begin = 0, at = 0; begin < s.size(); begin = at) {
    for (bool ends = false; at < s.size() && !ends;) {
      const auto [c, n] = io::first_character(s.substr(at));
      ends = is_space(c) || std::string_view("-({[<").find(s[at]) != std::string_view::npos;
      at += n;
    }
    out.append(*as_text(in.method("capitalize", in.heap.text(all.part(begin, at)), {})));
  }
  return in.heap.text(std::move(out));
}

// A filter that prints its value and calls the method of the text with this name.
template <const char* const& kName>
Value as_method(In& in, const Value& v, const Arguments& a) {
  return in.method(kName, in.heap.text(in.heap.str(v)), a);
}
constexpr const char *kStrip = "strip", *kLower = "lower", *kUpper = "upper", *kCapitalize = "capitalize",
                     *kReplace = "replace";

constexpr std::pair<std::string_view, Filter> kFilters[] = {
    {"capitalize", as_method<kCapitalize>},
    {"count", length},
    {"d", otherwise},
    {"default", otherwise},
    {"dictsort", dictsort},
    {"first", end_of<false>},
    {"float", to_real},
    {"format", [](In& in, const Value& v, const Arguments& a) { return in.percent(in.text(v, "format"), a.values); }},
    {"indent", indent},
    {"int", to_integer},
    {"items", items},
    {"join", join},
    {"last", end_of<true>},
    {"length", length},
    {"list",
     [](In& in, const Value& v, const Arguments& a) -> Value {
       in.bind("list", a, {});
       return in.heap.list(in.elements(v));
     }},
    {"lower", as_method<kLower>},
    {"map", map},
    {"max", extreme<true>},
    {"min", extreme<false>},
    {"reject", select<false, false>},
    {"rejectattr", select<true, false>},
    {"replace", as_method<kReplace>},
    {"reverse", reverse},
    {"safe",
     [](In& in, const Value& v, const Arguments& a) -> Value {
       in.bind("safe", a, {});
       MarkedText text = in.heap.str(v);
       text.set_html(true);
       return in.heap.text(std::move(text));
     }},
    {"select", select<false, true>},
    {"selectattr", select<true, true>},
    {"sort", sort},
    {"string",
     [](In& in, const Value& v, const Arguments& a) -> Value {
       in.bind("string", a, {});
       return as_text(v) ? v : in.heap.text(in.heap.str(v));
     }},
    {"title", title},
    {"tojson", tojson},
    {"trim", as_method<kStrip>},
    {"unique", unique},
    {"upper", as_method<kUpper>},
};

bool is_sequence(const Value& v) { return as_text(v) || as_object<List>(v) || as_mapping(v) || is_undefined(v); }

}  // namespace

Value Interpreter::filter(const std::string& name, Value value, const Arguments& arguments) {
  heap.charge(1);
  for (const auto& [key, function] : kFilters)
    if (key == name) return function(*this, value, arguments);
  heap.fail(str_cat("filter '", one_line(name, 80), "' is not known"));
}

bool Interpreter::test(const std::string& name, const Value& v, const Arguments& a) {
  heap.charge(1);
  const auto is = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const auto other = [&] { return bind(name, a, {"other"})[0]; };
  if (is({"eq", "equalto", "==", "sameas"})) {
    const Value o = other();
    return heap.equal(v, o) && (name != "sameas" || v.index() == o.index());
  }
  if (is({"ne", "!="})) return !heap.equal(v, other());
  if (is({"lt", "lessthan", "<"})) return heap.less(v, other());
  if (is({"gt", "greaterthan", ">"})) return heap.less(other(), v);
  if (is({"le", "<="})) return !heap.less(other(), v);
  if (is({"ge", ">="})) return !heap.less(v, other());
  if (name == "in") return contains(other(), v);
  if (name == "divisibleby") return truth(binary('%', v, other())) == false;
  bind(name, a, {});
  if (name == "defined") return !is_undefined(v);
  if (name == "undefined") return is_undefined(v);
  if (name == "none") return is_none(v);
  if (name == "string") return as_text(v);
  if (name == "mapping") return as_mapping(v);
  if (is({"iterable", "sequence"})) return is_sequence(v);
  if (name == "boolean") return as<bool>(v);
  if (name == "true") return as<bool>(v) && *as<bool>(v);
  if (name == "false") return as<bool>(v) && !*as<bool>(v);
  if (name == "integer") return as<int64_t>(v);
  if (name == "float") return as<double>(v);
  if (name == "number") return as<bool>(v) || as<int64_t>(v) || as<double>(v);
  if (is({"odd", "even"})) return truth(binary('%', v, int64_t{2})) == (name == "odd");
  if (name == "callable") return as_object<Function>(v);
  heap.fail(str_cat("test '", one_line(name, 80), "' is not known"));
}

}  // namespace weft::text::jinja
