// Values of a template, and the interpreter's limits.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "models/text/template/marked_text.h"

namespace weft::text::jinja {

struct TemplateNode;
struct Scope;
struct List;
struct Dict;
struct Loop;
struct Function;

struct Undefined {
  const std::string* name = nullptr;  // name of the missing variable or attribute, if it is in the template's text
};
struct None {};
using Text = std::shared_ptr<const MarkedText>;

/// Lists, mappings, loops and functions belong to the interpreter and live as long as it: they may refer to each other.
using Value = std::variant<Undefined, None, bool, int64_t, double, Text, List*, Dict*, Loop*, Function*>;

struct List {
  std::vector<Value> items;
  bool tuple = false;
};
struct Dict {
  std::vector<std::pair<Value, Value>> items;  // in order of insertion
  bool is_namespace = false;
};
/// The variable `loop`.
struct Loop {
  const List* list;
  int64_t index = 0;
};
struct Function {
  std::string name;                     // name of a global function or a method; a macro has its own
  Value self;                           // object of a method
  const TemplateNode* macro = nullptr;  // if set: with its scope
  Scope* scope = nullptr;
};

template <class T>
const T* as(const Value& v) {
  return std::get_if<T>(&v);
}
inline const MarkedText* as_text(const Value& v) {
  const Text* t = std::get_if<Text>(&v);
  return t ? t->get() : nullptr;
}
template <class T>
T* as_object(const Value& v) {
  T* const* p = std::get_if<T*>(&v);
  return p ? *p : nullptr;
}
/// A mapping; nullptr for other values and namespaces.
inline Dict* as_mapping(const Value& v) {
  Dict* d = as_object<Dict>(v);
  return d && !d->is_namespace ? d : nullptr;
}
inline bool is_undefined(const Value& v) { return std::holds_alternative<Undefined>(v); }
inline bool is_none(const Value& v) { return std::holds_alternative<None>(v); }

/// The kind of a value for errors: "a list", "undefined".
std::string kind_of(const Value& v);
bool truth(const Value& v);
/// A whole number or a boolean as a number.
const int64_t* as_integer(const Value& v, int64_t& room);
/// The text of a number as Python writes it.
std::string real_text(double v);

/// Owns the objects of one rendering, counts its steps, and knows the line for errors.
class Heap {
 public:
  explicit Heap(const std::string& file) : file_(file) {}

  int32_t line = 1;
  [[noreturn]] void fail(const std::string& what) const;
  /// Counts steps: one for each node, each element of a list that is made or read, each 256 bytes of text that are
  /// copied or compared, each 32 bytes that are read character by character, and each 8 bytes that are written
  /// character by character.
  void charge(int64_t steps) {
    if ((steps_ += steps) > kMostSteps) too_many();
  }
  void charge_characters(const MarkedText& t) { charge(static_cast<int64_t>(t.size()) / 32); }
  void charge_written(const MarkedText& t) { charge(static_cast<int64_t>(t.size()) / 8); }

  Value text(MarkedText t);
  Value text(std::string_view bytes) { return text(MarkedText(bytes)); }
  List* list(std::vector<Value> items = {}, bool tuple = false);
  Dict* dict() { return &dicts_.emplace_back(); }
  Loop* loop(const List* list) { return &loops_.emplace_back(Loop{list}); }
  Function* function(Function f) { return &functions_.emplace_back(std::move(f)); }

  /// Equality and order as in Python. less() throws for values without an order.
  bool equal(const Value& a, const Value& b, int depth = 0);
  bool less(const Value& a, const Value& b, int depth = 0);
  /// The value of a key; nullptr if there is none.
  Value* find(Dict& d, const Value& key);
  Value* find(Dict& d, std::string_view key);
  void set(Dict& d, Value key, Value value);

  /// Appends str(v) or, if `quoted`, repr(v).
  void print(const Value& v, MarkedText& to, bool quoted = false, int depth = 0);
  MarkedText str(const Value& v);
  /// Appends json.dumps(v, ensure_ascii=False). `indent`: -1 for one line.
  struct JsonStyle {
    int64_t indent = -1;
    std::string item = ", ", key = ": ";
    bool sorted = false, ascii = false;
  };
  void json(const Value& v, const JsonStyle& style, MarkedText& to, int depth = 0);

 private:
  [[noreturn]] void too_many() const;
  void check_depth(int depth) const;

  static constexpr int64_t kMostSteps = 1'000'000, kMostText = 48 << 20;
  const std::string& file_;
  int64_t steps_ = 0, text_ = 0;
  std::deque<List> lists_;
  std::deque<Dict> dicts_;
  std::deque<Loop> loops_;
  std::deque<Function> functions_;
};

}  // namespace weft::text::jinja
