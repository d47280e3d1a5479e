// Attributes, methods and functions.
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "framework/base/one_line.h"
#include "framework/io/utf8.h"
#include "models/text/template/interpreter.h"
#include "models/text/template/unicode.h"

namespace weft::text::jinja {
namespace {

using In = Interpreter;
using Method = Value (*)(In&, const Value& self, const Arguments&);

// The place of `what` in `s` from `at`; npos if there is none. Takes linear time for all texts.
size_t find_text(std::string_view s, std::string_view what, size_t at) {
  if (at > s.size()) return s.npos;
  const void* p = memmem(s.data() + at, s.size() - at, what.data(), what.size());
  return p ? static_cast<const char*>(p) - s.data() : s.npos;
}

template <bool kLeft, bool kRight>
Value strip(In& in, const Value& self, const Arguments& a) {
  const std::vector<Value> p = in.bind("strip", a, {"chars"});
  const MarkedText& t = *as_text(self);
  const std::string_view s = t.bytes();
  const std::string* set = is_undefined(p[0]) || is_none(p[0]) ? nullptr : &in.text(p[0], "strip").bytes();
  in.heap.charge_characters(t);
  size_t compared = 0;
  const auto goes = [&](std::string_view c) {
    if (!set) return is_space(io::first_character(c).code);
    in.heap.charge(static_cast<int64_t>((compared += set->size()) / 16));
    compared %= 16;
    for (size_t i = 0; i < set->size();) {
      const size_t n = io::first_character(std::string_view(*set).substr(i)).size;
      if (std::string_view(*set).substr(i, n) == c) return true;
      i += n;
    }
    return false;
  };
  size_t begin = 0, end = s.size();
  while (kLeft && begin < end) {
    const size_t n = io::first_character(s.substr(begin)).size;
    if (!goes(s.substr(begin, n))) break;
    begin += n;
  }
  while (kRight && begin < end) {
    const size_t n = io::last_character(s.substr(begin, end - begin)).size;
    if (!goes(s.substr(end - n, n))) break;
    end -= n;
  }
  return begin == 0 && end == s.size() ? self : in.heap.text(t.part(begin, end));
}

// Cuts at runs of blanks.
Value split_blanks(In& in, const MarkedText& t, int64_t most) {
  in.heap.charge_characters(t);
  const std::string_view s = t.bytes();
  std::vector<Value> parts;
  size_t i = 0;
  const auto skip = [&](bool blanks) {
    i += io::leading(s.substr(i), [&](uint32_t c) { return is_space(c) == blanks; });
  };
  for (skip(true); i < s.size(); skip(true)) {
    const size_t begin = i;
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
      parts.push_back(in.heap.text(t.part(begin, s.size())));
      break;
    }
    skip(false);
    parts.push_back(in.heap.text(t.part(begin, i)));
  }
  return in.heap.list(std::move(parts));
}

template <bool kFromRight>
Value split(In& in, const Value& self, const Arguments& a) {
  const std::vector<Value> p = in.bind("split", a, {"sep", "maxsplit"});
  const MarkedText& t = *as_text(self);
  const std::string_view s = t.bytes();
  const int64_t most = in.integer(p[1], -1, -1, int64_t{1} << 62);
  in.heap.charge(static_cast<int64_t>(s.size()) / 256);
  if (is_undefined(p[0]) || is_none(p[0])) {
    if (kFromRight && most >= 0) in.heap.fail("rsplit: need a separator for maxsplit");
    return split_blanks(in, t, most);
  }
  const std::string& separator = in.text(p[0], "split").bytes();
  if (separator.empty()) in.heap.fail("split: the separator is empty; need a text");
  std::vector<size_t> cuts;
  if (kFromRight) {
    in.heap.charge(static_cast<int64_t>(s.size() / 32 * (separator.size() / 16 + 1)));  // rfind may compare all
    for (size_t end = s.size(); most < 0 || static_cast<int64_t>(cuts.size()) < most;) {
      if (end < separator.size()) break;
      const size_t at = s.rfind(separator, end - separator.size());
      if (at == s.npos) break;
      in.heap.charge(1);
      cuts.push_back(at);
      end = at;
    }
    std::reverse(cuts.begin(), cuts.end());
  } else {
    for (size_t at = 0; most < 0 || static_cast<int64_t>(cuts.size()) < most; at += separator.size()) {
      at = find_text(s, separator, at);
      if (at == s.npos) break;
      in.heap.charge(1);
      cuts.push_back(at);
    }
  }
  std::vector<Value> parts;
  size_t begin = 0;
  for (size_t cut : cuts) {
    parts.push_back(in.heap.text(t.part(begin, cut)));
    begin = cut + separator.size();
  }
  parts.push_back(in.heap.text(t.part(begin, s.size())));
  return in.heap.list(std::move(parts));
}

Value splitlines(In& in, const Value& self, const Arguments& a) {
  in.bind("splitlines", a, {});
  const MarkedText& t = *as_text(self);
  in.heap.charge_characters(t);
  const std::string& s = t.bytes();
  std::vector<Value> lines;
  for (size_t begin = 0; begin < s.size();) {
    const size_t end = std::min(s.find_first_of("\r\n\v\f", begin), s.size());
    lines.push_back(in.heap.text(t.part(begin, end)));
    begin = end + 1 + (s.compare(end, 2, "\r\n") == 0);
  }
  return in.heap.list(std::move(lines));
}

template <bool kEnd>
Value begins(In& in, const Value& self, const Arguments& a) {
  const Value what = in.bind(kEnd ? "endswith" : "startswith", a, {"prefix"})[0];
  const std::string& s = as_text(self)->bytes();
  const auto fits = [&](const Value& v) {
    const std::string& w = in.text(v, kEnd ? "endswith" : "startswith").bytes();
    in.heap.charge(static_cast<int64_t>(w.size()) / 256);
    return kEnd ? s.ends_with(w) : s.starts_with(w);
  };
  const List* any = as_object<List>(what);
  return any ? std::any_of(any->items.begin(), any->items.end(), fits) : fits(what);
}

Value replace(In& in, const Value& self, const Arguments& a) {
  const std::vector<Value> p = in.bind("replace", a, {"old", "new", "count"});
  const MarkedText &t = *as_text(self), &old = in.text(p[0], "replace"), &with = in.text(p[1], "replace");
  const std::string_view s = t.bytes();
  in.heap.charge(static_cast<int64_t>(s.size()) / 256);
  const int64_t most = in.integer(p[2], -1, -1, int64_t{1} << 62);
  MarkedText out;
  size_t begin = 0, from = 0;
  for (int64_t done = 0; most < 0 || done < most; ++done) {
    const size_t at = find_text(s, old.bytes(), from);
    if (at == s.npos) break;
    if (done % 4 == 0) in.heap.charge(1);
    out.append(t, begin, at);
    out.append(with);
    begin = at + old.size();
    from = begin;
    if (old.size() == 0) {  // between all characters
      if (begin == s.size()) break;
      from += io::first_character(s.substr(begin)).size;
    }
  }
  out.append(t, begin, s.size());
  return in.heap.text(std::move(out));
}

// `change` maps a code point and the code point before it.
template <class Change>
Value with_case(In& in, const Value& self, const Arguments& a, const Change& change) {
  in.bind("upper", a, {});
  const MarkedText& t = *as_text(self);
  in.heap.charge_written(t);
  const std::string_view s = t.bytes();
  MarkedText out;
  std::string changed;
  uint32_t before = 0;
  for (size_t i = 0; i < s.size();) {
    const auto [c, n] = io::first_character(s.substr(i));
    const uint32_t to = change(c, before);
    if (to == c) {
      out.append(t, i, i + n);
    } else {
      changed.clear();
      io::append_character(changed, to);
      out.append(changed, t.from_user(i));
    }
    before = c;
    i += n;
  }
  return in.heap.text(std::move(out));
}
Value upper(In& in, const Value& self, const Arguments& a) {
  return with_case(in, self, a, [](uint32_t c, uint32_t) { return to_upper(c); });
}
Value lower(In& in, const Value& self, const Arguments& a) {
  return with_case(in, self, a, [](uint32_t c, uint32_t) { return to_lower(c); });
}
Value title(In& in, const Value& self, const Arguments& a) {
  return with_case(in, self, a, [](uint32_t c, uint32_t before) {
    return to_upper(before) != to_lower(before) ? to_lower(c) : to_upper(c);
  });
}
Value capitalize(In& in, const Value& self, const Arguments& a) {
  return with_case(in, self, a, [](uint32_t c, uint32_t before) { return before ? to_lower(c) : to_upper(c); });
}

// str.format with {}, {0} and {name}.
Value format(In& in, const Value& self, const Arguments& a) {
  const MarkedText& t = *as_text(self);
  in.heap.charge_written(t);
  const std::string& s = t.bytes();
  const size_t positional = a.positional();
  MarkedText out;
  size_t next = 0;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] != '{' && s[i] != '}') {
      out.append(t, i, i + 1);
      continue;
    }
    if (i + 1 < s.size() && s[i + 1] == s[i]) {
      out.append(t, i, i + 1);
      ++i;
      continue;
    }
    const size_t end = s[i] == '{' ? s.find('}', i) : s.npos;
    if (end == s.npos) in.heap.fail("format: a bracket is alone; need '{}'");
    const std::string field = s.substr(i + 1, end - i - 1);
    size_t k = a.values.size();
    if (field.find_first_not_of("0123456789") == field.npos && field.size() < 6)
      k = field.empty() ? next++ : std::stoul(field);
    else
      k = positional + (std::find(a.names.begin(), a.names.end(), field) - a.names.begin());
    if (k >= a.values.size() || (field.find_first_not_of("0123456789") == field.npos && k >= positional))
      in.heap.fail(str_cat("format: no argument for '{", one_line(field, 40), "}'"));
    in.heap.print(a.values[k], out);
    i = end;
  }
  return in.heap.text(std::move(out));
}

Value find(In& in, const Value& self, const Arguments& a) {
  const std::string& what = in.text(in.bind("find", a, {"sub"})[0], "find").bytes();
  const std::string_view s = as_text(self)->bytes();
  in.heap.charge_characters(*as_text(self));
  const size_t at = find_text(s, what, 0);
  return at == s.npos ? int64_t{-1} : static_cast<int64_t>(count_characters(s.substr(0, at)));
}

Value count(In& in, const Value& self, const Arguments& a) {
  const std::string& what = in.text(in.bind("count", a, {"sub"})[0], "count").bytes();
  if (what.empty()) in.heap.fail("count: the text is empty; need a character or more");
  const std::string_view s = as_text(self)->bytes();
  in.heap.charge(static_cast<int64_t>(s.size()) / 256);
  int64_t n = 0;
  for (size_t at = 0; (at = find_text(s, what, at)) != s.npos; at += what.size())
    if (n++ % 8 == 0) in.heap.charge(1);
  return n;
}

constexpr std::pair<std::string_view, Method> kTextMethods[] = {
    {"capitalize", capitalize},
    {"count", count},
    {"endswith", begins<true>},
    {"find", find},
    {"format", format},
    {"join",
     [](In& in, const Value& self, const Arguments& a) {
       return in.filter("join", in.bind("join", a, {"iterable"})[0], {.values = {self}});
     }},
    {"lower", lower},
    {"lstrip", strip<true, false>},
    {"replace", replace},
    {"rsplit", split<true>},
    {"rstrip", strip<false, true>},
    {"split", split<false>},
    {"splitlines", splitlines},
    {"startswith", begins<false>},
    {"strip", strip<true, true>},
    {"title", title},
    {"upper", upper},
};

// ---- lists and mappings ----

Value append(In& in, const Value& self, const Arguments& a) {
  in.heap.charge(1);
  as_object<List>(self)->items.push_back(in.bind("append", a, {"object"})[0]);
  return None{};
}

Value pop_item(In& in, const Value& self, const Arguments& a) {
  List& l = *as_object<List>(self);
  const auto size = static_cast<int64_t>(l.items.size());
  if (size == 0) in.heap.fail("pop: the list is empty");
  int64_t i = in.integer(in.bind("pop", a, {"index"})[0], -1, -size, size - 1);
  if (i < 0) i += size;
  in.heap.charge(size / 16);
  Value v = std::move(l.items[i]);
  l.items.erase(l.items.begin() + i);
  return v;
}

constexpr std::pair<std::string_view, Method> kListMethods[] = {{"append", append}, {"pop", pop_item}};

Value get(In& in, const Value& self, const Arguments& a) {
  const std::vector<Value> p = in.bind("get", a, {"key", "default"});
  const Value* v = in.heap.find(*as_object<Dict>(self), p[0]);
  return v ? *v : a.values.size() > 1 ? p[1] : Value(None{});
}

Value pop_key(In& in, const Value& self, const Arguments& a) {
  const std::vector<Value> p = in.bind("pop", a, {"key", "default"});
  Dict& d = *as_object<Dict>(self);
  Value* found = in.heap.find(d, p[0]);
  if (!found && a.values.size() < 2) in.heap.fail("pop: the mapping has no such key");
  if (!found) return p[1];
  in.heap.charge(static_cast<int64_t>(d.items.size()) / 16);
  Value v = std::move(*found);
  std::erase_if(d.items, [&](const auto& item) { return &item.second == found; });
  return v;
}

enum class Of : uint8_t { keys, values, items };
template <Of kOf>
Value all_of(In& in, const Value& self, const Arguments& a) {
  in.bind("items", a, {});
  std::vector<Value> all;
  for (const auto& [key, value] : as_object<Dict>(self)->items)
    all.push_back(kOf == Of::keys ? key : kOf == Of::values ? value : in.heap.list({key, value}, true));
  return in.heap.list(std::move(all));
}

constexpr std::pair<std::string_view, Method> kDictMethods[] = {{"get", get},
                                                                {"items", all_of<Of::items>},
                                                                {"keys", all_of<Of::keys>},
                                                                {"pop", pop_key},
                                                                {"values", all_of<Of::values>}};

Method find_method(const Value& self, std::string_view name) {
  const auto in = [&](const auto& table) -> Method {
    for (const auto& [key, function] : table)
      if (key == name) return function;
    return nullptr;
  };
  if (as_text(self)) return in(kTextMethods);
  if (const List* l = as_object<List>(self)) return l->tuple ? nullptr : in(kListMethods);
  if (as_mapping(self)) return in(kDictMethods);
  return nullptr;
}

Value loop_attribute(In& in, const Loop& loop, const std::string& name) {
  const auto count = static_cast<int64_t>(loop.list->items.size());
  const auto item = [&](int64_t i) { return i >= 0 && i < count ? loop.list->items[i] : Value(); };
  if (name == "index") return loop.index + 1;
  if (name == "index0") return loop.index;
  if (name == "revindex") return count - loop.index;
  if (name == "revindex0") return count - loop.index - 1;
  if (name == "first") return loop.index == 0;
  if (name == "last") return loop.index == count - 1;
  if (name == "length") return count;
  if (name == "previtem") return item(loop.index - 1);
  if (name == "nextitem") return item(loop.index + 1);
  in.heap.fail(str_cat("'loop.", one_line(name, 80), "' is not known"));
}

}  // namespace

bool Interpreter::has_method(const Value& self, std::string_view name) const { return find_method(self, name); }

Value Interpreter::method(const std::string& name, const Value& self, const Arguments& arguments) {
  heap.charge(1);
  return find_method(self, name)(*this, self, arguments);
}

Value Interpreter::attribute(const Value& object, const std::string& name) {
  if (const Loop* l = as_object<Loop>(object)) return loop_attribute(*this, *l, name);
  if (const Undefined* u = as<Undefined>(object))
    heap.fail(str_cat(u->name ? str_cat("'", one_line(*u->name, 80), "'") : "a value", " is undefined; it has no '",
                      one_line(name, 80), "'"));
  if (has_method(object, name)) return heap.function({.name = name, .self = object});
  if (Dict* d = as_object<Dict>(object))
    if (const Value* v = heap.find(*d, name)) return *v;
  return Undefined{&name};
}

Value Interpreter::item(const Value& object, const Value& key) {
  if (is_undefined(object)) return attribute(object, as_text(key) ? as_text(key)->bytes() : "item");
  if (Dict* d = as_object<Dict>(object)) {
    if (const Value* v = heap.find(*d, key)) return *v;
  }
  int64_t room;
  const int64_t* i = as_integer(key, room);
  if (const List* l = as_object<List>(object); l && i) {
    const auto size = static_cast<int64_t>(l->items.size()), at = *i < 0 ? *i + size : *i;
    return at >= 0 && at < size ? l->items[at] : Value();
  }
  if (const MarkedText* t = as_text(object); t && i) {
    const std::string_view s = t->bytes();
    heap.charge_characters(*t);
    int64_t left = *i < 0 ? *i + static_cast<int64_t>(count_characters(s)) : *i;
    if (left < 0) return {};
    for (size_t at = 0; at < s.size();) {
      const size_t n = io::first_character(s.substr(at)).size;
      if (left-- == 0) return heap.text(t->part(at, at + n));
      at += n;
    }
  }
  // As in Jinja, a key that is missing may name a method.
  if (const MarkedText* name = as_text(key); name && has_method(object, name->bytes()))
    return heap.function({.name = name->bytes(), .self = object});
  return {};
}

std::vector<Value> Interpreter::elements(const Value& v) {
  std::vector<Value> all;
  if (const List* l = as_object<List>(v)) {
    heap.charge(static_cast<int64_t>(l->items.size()));
    return l->items;
  }
  if (const Dict* d = as_mapping(v)) {
    heap.charge(static_cast<int64_t>(d->items.size()));
    for (const auto& [key, value] : d->items) all.push_back(key);
    return all;
  }
  if (const MarkedText* t = as_text(v)) {
    for (size_t i = 0; i < t->size();) {
      const size_t n = io::first_character(std::string_view(t->bytes()).substr(i)).size;
      heap.charge(1);
      all.push_back(heap.text(t->part(i, i + n)));
      i += n;
    }
    return all;
  }
  if (!is_undefined(v)) heap.fail(str_cat("got ", kind_of(v), "; need a list, a mapping or a text"));
  return all;
}

bool Interpreter::contains(const Value& in, const Value& what) {
  if (const MarkedText* t = as_text(in)) {
    const std::string& w = text(what, "in").bytes();
    heap.charge(static_cast<int64_t>(t->size() + w.size()) / 256);
    return find_text(t->bytes(), w, 0) != std::string::npos;
  }
  if (const List* l = as_object<List>(in))
    return std::any_of(l->items.begin(), l->items.end(), [&](const Value& v) { return heap.equal(v, what); });
  if (Dict* d = as_mapping(in)) return heap.find(*d, what);
  if (is_undefined(in)) return false;
  heap.fail(str_cat("got ", kind_of(in), " after 'in'; need a text, a list or a mapping"));
}

// ---- functions ----

Value Interpreter::function(const std::string& name, const Arguments& a) {
  if (name == "raise_exception")
    heap.fail(str_cat("the template refuses: ", one_line(heap.str(bind(name, a, {"message"})[0]).bytes(), 400)));
  if (name == "strftime_now") {
    const std::string format = text(bind(name, a, {"format"})[0], "strftime_now").bytes();
    const time_t now = now_;
    tm parts;
    gmtime_r(&now, &parts);
    char buffer[400];
    if (format.size() > 200) heap.fail("strftime_now: the format has more than 200 bytes; need fewer");
    return heap.text(std::string_view(buffer, strftime(buffer, sizeof buffer, format.c_str(), &parts)));
  }
  if (name == "range") {
    const std::vector<Value> p = bind(name, a, {"start", "stop", "step"});
    constexpr int64_t kMost = int64_t{1} << 40;
    const bool one = a.values.size() < 2;
    const int64_t begin = one ? 0 : integer(p[0], 0, -kMost, kMost), end = integer(p[one ? 0 : 1], 0, -kMost, kMost),
                  step = integer(p[2], 1, -kMost, kMost);
    if (step == 0) heap.fail("range: the step is 0; need another number");
    const int64_t distance = step > 0 ? end - begin : begin - end, size = std::abs(step);
    const int64_t count = distance > 0 ? (distance + size - 1) / size : 0;
    heap.charge(count);
    std::vector<Value> numbers;
    for (int64_t i = 0; i < count; ++i) numbers.push_back(begin + i * step);
    return heap.list(std::move(numbers));
  }
  Dict* d = heap.dict();  // namespace, dict
  d->is_namespace = name == "namespace";
  const size_t positional = a.positional();
  if (positional > 1 || (positional == 1 && !as_object<Dict>(a.values[0])))
    heap.fail(str_cat(name, ": got ", kind_of(a.values[0]), "; need names with values"));
  if (positional)
    for (const auto& [key, value] : as_object<Dict>(a.values[0])->items) heap.set(*d, key, value);
  for (size_t i = 0; i < a.names.size(); ++i) heap.set(*d, heap.text(a.names[i]), a.values[positional + i]);
  return d;
}

Value Interpreter::percent(const MarkedText& format, const std::vector<Value>& values) {
  heap.charge_written(format);
  const std::string& s = format.bytes();
  MarkedText out;
  size_t next = 0;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] != '%') {
      out.append(format, i, i + 1);
      continue;
    }
    const char kind = ++i < s.size() ? s[i] : ' ';
    if (kind == '%') {
      out.append("%", format.from_user(i));
      continue;
    }
    int64_t room;
    if (kind != 's' && kind != 'r' && kind != 'd') heap.fail("a format after '%' is not known; need s, r, d or %");
    if (next >= values.size()) heap.fail("'%' has too few values; need one for each format");
    const Value& v = values[next++];
    if (kind == 'd' && !as_integer(v, room)) heap.fail(str_cat("'%d' got ", kind_of(v), "; need a whole number"));
    heap.print(kind == 'd' ? Value(room = *as_integer(v, room)) : v, out, kind == 'r');
  }
  if (next < values.size()) heap.fail("'%' has too many values; need one for each format");
  return heap.text(std::move(out));
}

// ---- arguments ----

std::vector<Value> Interpreter::bind(const std::string& what, const Arguments& a,
                                     std::initializer_list<std::string_view> parameters) const {
  const size_t positional = a.positional();
  if (positional > parameters.size())
    heap.fail(str_cat(what, ": got ", positional, " arguments; need at most ", parameters.size()));
  std::vector<Value> values(parameters.size());
  std::vector<bool> given(parameters.size());
  for (size_t i = 0; i < a.values.size(); ++i) {
    const bool named = i >= positional;
    const size_t p =
        named ? std::find(parameters.begin(), parameters.end(), a.names[i - positional]) - parameters.begin() : i;
    if (p == parameters.size() || given[p])
      heap.fail(str_cat(what, ": got the argument '", one_line(a.names[i - positional], 40), "'",
                        p == parameters.size() ? "; it has no such parameter" : " twice"));
    values[p] = a.values[i];
    given[p] = true;
  }
  return values;
}

int64_t Interpreter::integer(const Value& v, int64_t otherwise, int64_t least, int64_t most) const {
  if (is_undefined(v) || is_none(v)) return otherwise;
  int64_t room;
  const int64_t* i = as_integer(v, room);
  if (!i || *i < least || *i > most)
    heap.fail(str_cat("got ", i ? str_cat(*i) : kind_of(v), "; need a whole number from ", least, " to ", most));
  return *i;
}

const MarkedText& Interpreter::text(const Value& v, const char* what) const {
  const MarkedText* t = as_text(v);
  if (!t) heap.fail(str_cat(what, ": got ", kind_of(v), "; need a text"));
  return *t;
}

}  // namespace weft::text::jinja
