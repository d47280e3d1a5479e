// Executes the nodes of a template.
#pragma once
#include <span>

#include "models/text/template/node.h"
#include "models/text/template/value.h"

namespace weft::text::jinja {

struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<std::string_view, Value>> variables;
  bool kept = false;  // a macro refers to it
};

/// The arguments of a call. The last ones may have names.
struct Arguments {
  std::vector<Value> values;
  std::span<const std::string> names = {};
  /// The number of arguments without a name.
  size_t positional() const { return values.size() - names.size(); }
};

class Interpreter {
 public:
  Interpreter(const std::string& file, int64_t now) : heap(file), now_(now) {}

  /// Sets a variable of the template.
  void define(std::string_view name, Value value);
  MarkedText run(const TemplateNode& root);

  Value filter(const std::string& name, Value value, const Arguments& arguments);
  bool test(const std::string& name, const Value& value, const Arguments& arguments);
  /// A method of a text, list or mapping; false if `self` has none of this name.
  bool has_method(const Value& self, std::string_view name) const;
  Value method(const std::string& name, const Value& self, const Arguments& arguments);
  Value function(const std::string& name, const Arguments& arguments);

  /// The arguments in the order of `parameters`; missing ones are undefined. `what` is named in errors.
  std::vector<Value> bind(const std::string& what, const Arguments& arguments,
                          std::initializer_list<std::string_view> parameters) const;
  /// The elements of a list, the characters of a text, the keys of a mapping. Throws for other values.
  std::vector<Value> elements(const Value& v);
  bool contains(const Value& in, const Value& what);
  /// object.name and object[key]; undefined if there is none.
  Value attribute(const Value& object, const std::string& name);
  Value item(const Value& object, const Value& key);
  /// "format % values" of Python with %s, %r, %d and %%.
  Value percent(const MarkedText& format, const std::vector<Value>& values);

  /// The integer, or `otherwise` if v is undefined or none. Throws for other values and outside [least, most].
  int64_t integer(const Value& v, int64_t otherwise, int64_t least, int64_t most) const;
  /// The text of an argument; throws for other values.
  const MarkedText& text(const Value& v, const char* what) const;

  Heap heap;

 private:
  enum class Flow : uint8_t { next, broken, continued };
  class Level;
  class Inner;

  Flow exec(const TemplateNode& n);
  Flow exec_block(const TemplateNode& n);
  Flow exec_if(const TemplateNode& n);
  Flow exec_for(const TemplateNode& n);
  /// Executes a block whose text is appended to `text`.
  Flow captured(const TemplateNode& block, MarkedText& text);
  void assign(const TemplateNode& target, Value value);
  Value with_value(Value value, const TemplateNode& filters);

  Value eval(const TemplateNode& n);
  Value eval_container(const TemplateNode& n);
  Value eval_arithmetic(const TemplateNode& n);
  Value eval_compare(const TemplateNode& n);
  Value eval_slice(const TemplateNode& n);
  Value eval_call(const TemplateNode& n);
  Value signed_number(const TemplateNode& n);
  Value lookup(const TemplateNode& n);
  Arguments arguments(const TemplateNode& n);
  Value call(const Value& callee, const Arguments& arguments);
  Value call_macro(const Function& f, const Arguments& arguments);
  Value binary(char op, const Value& a, const Value& b);
  Value integers(char op, int64_t a, int64_t b);
  Value reals(char op, double a, double b);
  Value repeated(const Value& v, int64_t times);

  const int64_t now_;
  int depth_ = 0, calls_ = 0;
  MarkedText* out_ = nullptr;
  Value value_;  // value of NodeKind::value
  Scope globals_;
  Scope* scope_ = &globals_;
  std::vector<std::unique_ptr<Scope>> kept_;
};

}  // namespace weft::text::jinja
