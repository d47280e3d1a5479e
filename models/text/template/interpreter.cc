#include "models/text/template/interpreter.h"

#include <cmath>

#include "framework/base/error.h"
#include "framework/base/one_line.h"
#include "framework/io/utf8.h"
#include "models/text/template/unicode.h"

namespace weft::text::jinja {
namespace {

// Each entity has the mark of its character.
MarkedText as_html(const MarkedText& t) {
  MarkedText html;
  t.for_each_part([&](std::string_view part, bool from_user) {
    for (const char& c : part) {
      const std::string_view entity = c == '&'    ? "&amp;"
                                      : c == '<'  ? "&lt;"
                                      : c == '>'  ? "&gt;"
                                      : c == '\'' ? "&#39;"
                                      : c == '"'  ? "&#34;"
                                                  : std::string_view(&c, 1);
      html.append(entity, from_user);
    }
  });
  return html;
}

// Characters [begin, end) of a text.
MarkedText characters(const MarkedText& t, int64_t begin, int64_t end) {
  const std::string_view s = t.bytes();
  size_t at = 0, first = 0;
  for (int64_t i = 0; i < end; ++i) {
    if (i == begin) first = at;
    at += io::first_character(s.substr(at)).size;
  }
  return begin < end ? t.part(first, at) : MarkedText();
}

}  // namespace

// Levels of nested calls of exec and eval; a level takes a few hundred bytes of the stack.
class Interpreter::Level {
 public:
  Level(Interpreter& i, const TemplateNode& n) : interpreter_(i) {
    i.heap.line = n.line;
    i.heap.charge(1);
    constexpr int kMost = 2000;
    if (++i.depth_ > kMost) i.heap.fail(str_cat("got more than ", kMost, " nested evaluations; need fewer"));
  }
  ~Level() { --interpreter_.depth_; }

 private:
  Interpreter& interpreter_;
};

// A scope inside of another one, which is current while this object lives.
class Interpreter::Inner {
 public:
  Inner(Interpreter& i, Scope* parent) : interpreter_(i), before_(i.scope_), scope_(std::make_unique<Scope>()) {
    scope_->parent = parent;
    i.scope_ = scope_.get();
  }
  explicit Inner(Interpreter& i) : Inner(i, i.scope_) {}
  ~Inner() {
    interpreter_.scope_ = before_;
    if (scope_->kept) interpreter_.kept_.push_back(std::move(scope_));
  }

 private:
  Interpreter& interpreter_;
  Scope* before_;
  std::unique_ptr<Scope> scope_;
};

void Interpreter::define(std::string_view name, Value value) {
  for (auto& [key, old] : scope_->variables)
    if (key == name) {
      old = std::move(value);
      return;
    }
  heap.charge(1 + static_cast<int64_t>(scope_->variables.size()) / 16);
  scope_->variables.emplace_back(name, std::move(value));
}

MarkedText Interpreter::run(const TemplateNode& root) {
  MarkedText out;
  out_ = &out;
  exec(root);
  return out;
}

// ---- statements ----

Interpreter::Flow Interpreter::exec(const TemplateNode& n) {
  Level level(*this, n);
  switch (n.kind) {
    case NodeKind::block:
      return exec_block(n);
    case NodeKind::data:
      out_->append(n.text, false);
      break;
    case NodeKind::output:
      heap.print(eval(*n.kids[0]), *out_);
      break;
    case NodeKind::if_else:
      return exec_if(n);
    case NodeKind::for_loop:
      return exec_for(n);
    case NodeKind::set:
      assign(*n.kids[0], eval(*n.kids[1]));
      break;
    case NodeKind::set_block:
    case NodeKind::filter_block: {
      MarkedText text;
      if (const Flow f = captured(*n.kids[1], text); f != Flow::next) return f;
      if (n.kind == NodeKind::set_block)
        assign(*n.kids[0], with_value(heap.text(std::move(text)), *n.kids[2]));
      else
        heap.print(with_value(heap.text(std::move(text)), *n.kids[0]), *out_);
      break;
    }
    case NodeKind::macro:
      for (Scope* s = scope_; s; s = s->parent) s->kept = true;
      define(n.text, heap.function({.name = {}, .self = {}, .macro = &n, .scope = scope_}));
      break;
    case NodeKind::break_loop:
      return Flow::broken;
    case NodeKind::continue_loop:
      return Flow::continued;
    default:
      WEFT_BUG_IF(true, "template: node ", static_cast<int>(n.kind), " is no statement");
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::exec_block(const TemplateNode& n) {
  for (const NodePtr& kid : n.kids)
    if (const Flow f = exec(*kid); f != Flow::next) return f;
  return Flow::next;
}

Interpreter::Flow Interpreter::exec_if(const TemplateNode& n) {
  for (size_t i = 0; i + 1 < n.kids.size(); i += 2)
    if (truth(eval(*n.kids[i]))) return exec(*n.kids[i + 1]);
  return n.kids.size() % 2 ? exec(*n.kids.back()) : Flow::next;
}

Interpreter::Flow Interpreter::exec_for(const TemplateNode& n) {
  std::vector<Value> items = elements(eval(*n.kids[1]));
  if (n.kids.size() > 4) {
    std::vector<Value> kept;
    for (Value& v : items) {
      Inner inner(*this);
      assign(*n.kids[0], v);
      if (truth(eval(*n.kids[4]))) kept.push_back(std::move(v));
    }
    items = std::move(kept);
  }
  if (items.empty()) {
    if (!n.kids[3]) return Flow::next;
    Inner inner(*this);
    return exec(*n.kids[3]);
  }
  const List* list = heap.list(std::move(items));
  Loop* loop = heap.loop(list);
  for (const int64_t count = list->items.size(); loop->index < count; ++loop->index) {
    Inner inner(*this);
    define("loop", loop);
    assign(*n.kids[0], list->items[loop->index]);
    if (exec(*n.kids[2]) == Flow::broken) break;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::captured(const TemplateNode& block, MarkedText& text) {
  MarkedText* before = std::exchange(out_, &text);
  Inner inner(*this);
  const Flow flow = exec(block);
  out_ = before;
  return flow;
}

void Interpreter::assign(const TemplateNode& target, Value value) {
  if (target.kind == NodeKind::name) return define(target.text, std::move(value));
  if (target.kind == NodeKind::attribute) {
    Dict* d = as_object<Dict>(eval(*target.kids[0]));
    if (!d || !d->is_namespace) heap.fail(str_cat("'", target.kids[0]->text, "' is not a namespace; need a namespace"));
    if (Value* old = heap.find(*d, target.text))
      *old = std::move(value);
    else
      heap.set(*d, heap.text(target.text), std::move(value));
    return;
  }
  const std::vector<Value> parts = elements(value);
  if (parts.size() != target.kids.size())
    heap.fail(str_cat("got ", parts.size(), " values for ", target.kids.size(), " names; need equal numbers"));
  for (size_t i = 0; i < parts.size(); ++i) assign(*target.kids[i], parts[i]);
}

Value Interpreter::with_value(Value value, const TemplateNode& filters) {
  Value before = std::exchange(value_, std::move(value));
  Value result = eval(filters);
  value_ = std::move(before);
  return result;
}

// ---- expressions ----

Value Interpreter::eval(const TemplateNode& n) {
  Level level(*this, n);
  switch (n.kind) {
    case NodeKind::text:
      return heap.text(n.text);
    case NodeKind::integer:
      return n.integer;
    case NodeKind::real:
      return n.real;
    case NodeKind::boolean:
      return n.integer != 0;
    case NodeKind::none:
      return None{};
    case NodeKind::name:
      return lookup(n);
    case NodeKind::value:
      return value_;
    case NodeKind::list:
    case NodeKind::tuple:
    case NodeKind::dict:
      return eval_container(n);
    case NodeKind::negative:
    case NodeKind::positive:
      return signed_number(n);
    case NodeKind::not_:
      return !truth(eval(*n.kids[0]));
    case NodeKind::and_:
    case NodeKind::or_: {
      Value v = eval(*n.kids[0]);
      for (size_t i = 1; i < n.kids.size() && truth(v) == (n.kind == NodeKind::and_); ++i) v = eval(*n.kids[i]);
      return v;
    }
    case NodeKind::arithmetic:
      return eval_arithmetic(n);
    case NodeKind::compare:
      return eval_compare(n);
    case NodeKind::choose:
      if (truth(eval(*n.kids[1]))) return eval(*n.kids[0]);
      return n.kids.size() > 2 ? eval(*n.kids[2]) : Value();
    case NodeKind::attribute:
      return attribute(eval(*n.kids[0]), n.text);
    case NodeKind::item: {
      const Value object = eval(*n.kids[0]);
      return item(object, eval(*n.kids[1]));
    }
    case NodeKind::slice:
      return eval_slice(n);
    case NodeKind::call:
      return eval_call(n);
    case NodeKind::filter:
    case NodeKind::test: {
      Value value = eval(*n.kids[0]);
      const Arguments a = arguments(n);
      heap.line = n.line;
      if (n.kind == NodeKind::test) return test(n.text, value, a);
      return filter(n.text, std::move(value), a);
    }
    default:
      WEFT_BUG_IF(true, "template: node ", static_cast<int>(n.kind), " is no expression");
  }
  return {};
}

Value Interpreter::lookup(const TemplateNode& n) {
  for (const Scope* s = scope_; s; s = s->parent) {
    heap.charge(static_cast<int64_t>(s->variables.size()) / 16);
    for (const auto& [name, value] : s->variables)
      if (name == n.text) return value;
  }
  for (const char* name : {"namespace", "raise_exception", "strftime_now", "range", "dict"})
    if (n.text == name) return heap.function({.name = n.text});
  return Undefined{&n.text};
}

Value Interpreter::eval_container(const TemplateNode& n) {
  if (n.kind != NodeKind::dict) {
    std::vector<Value> items;
    for (const NodePtr& kid : n.kids) items.push_back(eval(*kid));
    return heap.list(std::move(items), n.kind == NodeKind::tuple);
  }
  Dict* d = heap.dict();
  for (size_t i = 0; i < n.kids.size(); i += 2) {
    Value key = eval(*n.kids[i]);
    heap.set(*d, std::move(key), eval(*n.kids[i + 1]));
  }
  return d;
}

Value Interpreter::signed_number(const TemplateNode& n) {
  const Value v = eval(*n.kids[0]);
  const bool negative = n.kind == NodeKind::negative;
  int64_t room;
  if (const int64_t* i = as_integer(v, room)) return negative ? integers('-', 0, *i) : Value(*i);
  if (const double* d = as<double>(v)) return negative ? -*d : *d;
  heap.fail(str_cat("got ", kind_of(v), " after a sign; need a number"));
}

Value Interpreter::eval_arithmetic(const TemplateNode& n) {
  if (n.ops[0] == '~') {
    MarkedText joined;
    for (const NodePtr& kid : n.kids) heap.print(eval(*kid), joined);
    return heap.text(std::move(joined));
  }
  Value v = eval(*n.kids[0]);
  for (size_t i = 0; i < n.ops.size(); ++i) {
    const Value w = eval(*n.kids[i + 1]);
    heap.line = n.line;
    v = binary(n.ops[i], v, w);
  }
  return v;
}

Value Interpreter::binary(char op, const Value& a, const Value& b) {
  int64_t room_a, room_b;
  const int64_t *i = as_integer(a, room_a), *j = as_integer(b, room_b);
  const double *x = as<double>(a), *y = as<double>(b);
  if ((i || x) && (j || y)) {
    if (i && j && op != '/' && !(op == 'p' && *j < 0)) return integers(op, *i, *j);
    return reals(op, x ? *x : static_cast<double>(*i), y ? *y : static_cast<double>(*j));
  }
  const MarkedText *s = as_text(a), *t = as_text(b);
  const List *k = as_object<List>(a), *l = as_object<List>(b);
  if (op == '+' && s && t) {
    MarkedText joined;
    joined.set_html(s->html() || t->html());
    for (const MarkedText* part : {s, t}) {
      if (part->html() == joined.html())
        joined.append(*part);
      else
        heap.charge_written(*part), joined.append(as_html(*part));
    }
    return heap.text(std::move(joined));
  }
  if (op == '+' && k && l && k->tuple == l->tuple) {
    heap.charge(static_cast<int64_t>(k->items.size() + l->items.size()));
    std::vector<Value> items = k->items;
    items.insert(items.end(), l->items.begin(), l->items.end());
    return heap.list(std::move(items), k->tuple);
  }
  if (op == '*' && (s || k) && j) return repeated(a, *j);
  if (op == '*' && (t || l) && i) return repeated(b, *i);
  if (op == '%' && s) return percent(*s, l && l->tuple ? l->items : std::vector<Value>{b});
  for (const Value* v : {&a, &b})
    if (const Undefined* u = as<Undefined>(*v); u && u->name)
      heap.fail(str_cat("'", one_line(*u->name, 80), "' is undefined"));
  const std::string_view shown = op == 'f' ? "//" : op == 'p' ? "**" : std::string_view(&op, 1);
  heap.fail(str_cat("cannot compute ", kind_of(a), " ", shown, " ", kind_of(b)));
}

Value Interpreter::repeated(const Value& v, int64_t times) {
  times = std::max<int64_t>(times, 0);
  if (const List* l = as_object<List>(v)) {
    if (const auto size = static_cast<int64_t>(l->items.size()); size > 0) {
      heap.charge(std::min<int64_t>(times, 1 << 30) * std::min<int64_t>(size, 1 << 30));
    } else {
      times = 0;
    }
    std::vector<Value> items;
    for (int64_t k = 0; k < times; ++k) items.insert(items.end(), l->items.begin(), l->items.end());
    return heap.list(std::move(items), l->tuple);
  }
  const MarkedText& one = *as_text(v);
  MarkedText text, block;  // a block has about 4 KiB
  const int64_t size = static_cast<int64_t>(one.size()),
                in_block = std::max<int64_t>(1, 4096 / std::max<int64_t>(1, size));
  for (int64_t k = 0; k < in_block; ++k) block.append(one);
  if (size == 0) times = 0;
  for (; times >= in_block; times -= in_block) text.append(block);
  for (; times > 0; --times) text.append(one);
  return heap.text(std::move(text));
}

Value Interpreter::integers(char op, int64_t a, int64_t b) {
  int64_t r = 0;
  bool overflow = false;
  switch (op) {
    case '+':
      overflow = __builtin_add_overflow(a, b, &r);
      break;
    case '-':
      overflow = __builtin_sub_overflow(a, b, &r);
      break;
    case '*':
      overflow = __builtin_mul_overflow(a, b, &r);
      break;
    case 'p':
      r = 1;
      if (a == 0 || a == 1) return b == 0 ? int64_t{1} : a;
      if (a == -1) return b % 2 ? int64_t{-1} : int64_t{1};
      for (int64_t k = 0; k < b && !overflow; ++k) overflow = __builtin_mul_overflow(r, a, &r);
      break;
    default: {  // // and %
      if (b == 0) heap.fail("division by 0");
      if (b == -1) {
        if (op == '%') return int64_t{0};
        overflow = __builtin_sub_overflow(int64_t{0}, a, &r);
        break;
      }
      const int64_t quotient = a / b - (a % b != 0 && (a < 0) != (b < 0));
      r = op == '%' ? a - quotient * b : quotient;
    }
  }
  if (overflow) heap.fail("a whole number has more than 64 bits; need a smaller one");
  return r;
}

Value Interpreter::reals(char op, double a, double b) {
  if (op == '+') return a + b;
  if (op == '-') return a - b;
  if (op == '*') return a * b;
  if (op == 'p') return std::pow(a, b);
  if (b == 0) heap.fail("division by 0");
  if (op == '/') return a / b;
  if (op == 'f') return std::floor(a / b);
  const double r = std::fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

Value Interpreter::eval_compare(const TemplateNode& n) {
  Value a = eval(*n.kids[0]);
  for (size_t i = 0; i < n.ops.size(); ++i) {
    Value b = eval(*n.kids[i + 1]);
    heap.line = n.line;
    bool holds = false;
    switch (n.ops[i]) {
      case '<':
        holds = heap.less(a, b);
        break;
      case '>':
        holds = heap.less(b, a);
        break;
      case 'l':
        holds = heap.less(a, b) || heap.equal(a, b);
        break;
      case 'g':
        holds = heap.less(b, a) || heap.equal(a, b);
        break;
      case 'e':
        holds = heap.equal(a, b);
        break;
      case 'n':
        holds = !heap.equal(a, b);
        break;
      case 'i':
        holds = contains(b, a);
        break;
      default:
        holds = !contains(b, a);
    }
    if (!holds) return false;
    a = std::move(b);
  }
  return true;
}

Value Interpreter::eval_slice(const TemplateNode& n) {
  const Value object = eval(*n.kids[0]);
  Value bound[3];
  for (int i = 0; i < 3; ++i) bound[i] = n.kids[i + 1] ? eval(*n.kids[i + 1]) : Value(None{});
  heap.line = n.line;
  const List* l = as_object<List>(object);
  if (!l && !as_text(object)) heap.fail(str_cat("cannot take a part of ", kind_of(object), "; need a text or a list"));
  const MarkedText* t = as_text(object);
  if (t) heap.charge_characters(*t);
  const auto size = static_cast<int64_t>(l ? l->items.size() : count_characters(t->bytes()));
  constexpr int64_t kMost = int64_t{1} << 62;
  const int64_t step = integer(bound[2], 1, -kMost, kMost);
  if (step == 0) heap.fail("the step of a slice is 0; need another number");
  const auto place = [&](const Value& v, int64_t otherwise) {
    int64_t i = integer(v, otherwise, -kMost, kMost);
    if (i < 0 && !is_none(v)) i += size;
    return step > 0 ? std::clamp<int64_t>(i, 0, size) : std::clamp<int64_t>(i, -1, size - 1);
  };
  const int64_t begin = place(bound[0], step > 0 ? 0 : size - 1), end = place(bound[1], step > 0 ? size : -1);
  if (t && step == 1) return heap.text(characters(*t, begin, std::max(begin, end)));
  const std::vector<Value> split = l ? std::vector<Value>() : elements(object);
  std::vector<Value> part;
  for (int64_t i = begin; step > 0 ? i < end : i > end; i += std::clamp(step, -size - 1, size + 1))
    part.push_back(l ? l->items[i] : split[i]);
  if (l) return heap.list(std::move(part), l->tuple);
  MarkedText text;
  for (const Value& v : part) text.append(*as_text(v));
  return heap.text(std::move(text));
}

// ---- calls ----

Arguments Interpreter::arguments(const TemplateNode& n) {
  Arguments a{.values = {}, .names = n.names};
  for (size_t i = 1; i < n.kids.size(); ++i) a.values.push_back(eval(*n.kids[i]));
  return a;
}

Value Interpreter::eval_call(const TemplateNode& n) {
  const TemplateNode& callee = *n.kids[0];
  if (callee.kind == NodeKind::attribute) {
    const Value self = eval(*callee.kids[0]);
    if (has_method(self, callee.text)) {
      const Arguments a = arguments(n);
      heap.line = n.line;
      return method(callee.text, self, a);
    }
    const Value f = attribute(self, callee.text);
    if (is_undefined(f)) heap.fail(str_cat(kind_of(self), " has no method '", one_line(callee.text, 80), "'"));
    return call(f, arguments(n));
  }
  const Value f = eval(callee);
  if (const Undefined* u = as<Undefined>(f); u && u->name)
    heap.fail(str_cat("function '", one_line(*u->name, 80), "' is not known"));
  const Arguments a = arguments(n);
  heap.line = n.line;
  return call(f, a);
}

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
  const Function* f = as_object<Function>(callee);
  if (!f) heap.fail(str_cat("cannot call ", kind_of(callee), "; need a function"));
  if (f->macro) return call_macro(*f, arguments);
  return is_undefined(f->self) ? function(f->name, arguments) : method(f->name, f->self, arguments);
}

Value Interpreter::call_macro(const Function& f, const Arguments& a) {
  const TemplateNode& m = *f.macro;
  if (++calls_ > kMostNesting)
    heap.fail(str_cat("got more than ", kMostNesting, " nested calls of macros; need fewer"));
  const size_t count = m.names.size(), positional = a.positional(), defaults = m.kids.size() - 1;
  if (positional > count)
    heap.fail(str_cat("macro '", m.text, "' got ", positional, " arguments; need at most ", count));
  std::vector<const Value*> given(count);
  for (size_t i = 0; i < positional; ++i) given[i] = &a.values[i];
  for (size_t i = 0; i < a.names.size(); ++i) {
    const size_t p = std::find(m.names.begin(), m.names.end(), a.names[i]) - m.names.begin();
    if (p == count || given[p])
      heap.fail(
          str_cat("macro '", m.text, "' got '", a.names[i], "' ", p == count ? "; it has no such parameter" : "twice"));
    given[p] = &a.values[positional + i];
  }
  Inner inner(*this, f.scope);
  for (size_t i = 0; i < count; ++i) {
    const bool has_default = i + defaults >= count;
    define(m.names[i], given[i]      ? *given[i]
                       : has_default ? eval(*m.kids[1 + i - (count - defaults)])
                                     : Value(Undefined{&m.names[i]}));
  }
  MarkedText text;
  captured(*m.kids[0], text);
  --calls_;
  return heap.text(std::move(text));
}

}  // namespace weft::text::jinja
