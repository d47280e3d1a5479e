// parse_graph: recursive descent over the text that print.cc writes. Throws weft::Error on any other text.
#include <charconv>
#include <cstring>
#include <map>
#include <unordered_map>

#include "framework/ir/graph_reader.h"
#include "framework/ir/rewrite.h"
#include "framework/ir/text_reader.h"

namespace weft {
namespace {

class Parser final : internal::TextReader, internal::GraphReader {
 public:
  Parser(std::string_view text, const OpTable& ops) : TextReader(text), ops_(ops) {}

  Ref<Graph> run() {
    keyword("graph");
    Ref<Graph> g = graph();
    skip();
    if (pos_ < text_.size()) fail("the end of the text");
    return g;
  }

 private:
  std::string place() const final { return TextReader::place(); }

  // ---- types ----
  Shape ints() {
    expect('[');
    Shape s;
    while (!take(']')) {
      if (!s.empty()) expect(',');
      if (s.size() == kMaxDims) fail(str_cat("']': at most ", kMaxDims, " entries"));
      s.push_back(integer());
    }
    return s;
  }

  TensorType type() {
    std::string_view w = word();
    if (w.empty()) fail("a type such as f32[2, 3]");
    TensorType t;
    t.dtype = dtype_named(w);
    t.shape = ints();
    check_shape(t);
    if (peek() == '@') {
      ++pos_;
      t.device = device();
    }
    return t;
  }

  Device device() {
    const std::string_view kind = word();
    const size_t begin = pos_ - kind.size();
    if (peek() == ':' && kind != "meta") {
      ++pos_;
      word();
    }
    return device_named(text_.substr(begin, pos_ - begin));
  }

  // ---- attributes ----
  AttrValue value() {
    skip();
    char c = peek();
    if (c == '"') return string();
    if (c == '[') return ints();
    std::string_view w = look();
    if (w == "true" || w == "false") return word() == "true";
    if (w == "null") return word(), Ref<Graph>();
    if (w == "graph") return word(), graph();
    if (c == '-' || std::isdigit(static_cast<unsigned char>(c)) || w == "inf" || w == "nan")
      return std::visit([](auto v) -> AttrValue { return v; }, number());
    if (w.empty()) fail("an attribute's value");
    return dtype_named(word());
  }

  Attrs attrs() {
    std::vector<Attrs::AttrEntry> entries;
    while (!take('}')) {
      if (!entries.empty()) expect(',');
      skip();
      std::string key = peek() == '"' ? string() : std::string(word());
      if (key.empty()) fail("an attribute's name");
      expect('=');
      entries.emplace_back(std::move(key), value());
    }
    return distinct(std::move(entries));
  }

  // ---- graphs ----
  struct GraphScope {
    Graph& g;
    std::unordered_map<std::string, Value> values;
    std::map<int64_t, std::pair<std::string, size_t>>
        later;  // arguments that take a position in node order: name, index
    std::vector<TensorType> argument_types;
  };

  std::string value_name() {
    skip();
    if (peek() != '%') fail("a value such as %3");
    ++pos_;
    std::string_view w = word();
    if (w.empty()) fail("a value's name after '%'");
    return std::string(w);
  }

  void define(GraphScope& s, const std::string& name, Value v) {
    if (!s.values.emplace(name, v).second) fail(str_cat("%", name, " defined again"), "each value defined once");
  }

  void add_argument(GraphScope& s, const std::string& name, size_t index) {
    Node n;
    n.op = &input_op;
    n.attrs = {{"index", static_cast<int64_t>(index)}};
    n.outputs = {s.argument_types[index]};
    Value v{s.g.add(std::move(n)), 0};
    s.g.inputs[index] = v;
    define(s, name, v);
  }
  /// Adds the arguments whose number is the next node's; with `all`, every remaining argument.
  void due_arguments(GraphScope& s, bool all) {
    while (!s.later.empty() && (all || s.later.begin()->first <= s.g.size())) {
      auto [name, index] = s.later.begin()->second;
      s.later.erase(s.later.begin());
      add_argument(s, name, index);
    }
  }

  Value use(GraphScope& s) {
    skip();
    size_t was = pos_;
    std::string name = value_name();
    auto it = s.values.find(name);
    if (it == s.values.end()) {
      due_arguments(s, true);
      it = s.values.find(name);
    }
    if (it == s.values.end()) {
      pos_ = was;
      fail(str_cat("%", name), "a value defined above");
    }
    return it->second;
  }

  Ref<Graph> graph() {
    const Level level(*this);
    auto result = make_ref<Graph>();
    GraphScope s{*result, {}, {}, {}};
    skip();
    s.g.stage = peek() == '"' ? string() : std::string(word());
    if (s.g.stage.empty()) fail("the graph's stage");
    arguments(s);
    expect('{');
    while (statement(s)) {
    }
    due_arguments(s, true);
    expect('}');
    return result;
  }

  void arguments(GraphScope& s) {
    expect('(');
    std::vector<std::string> names;
    while (!take(')')) {
      if (!names.empty()) expect(',');
      names.push_back(value_name());
      expect(':');
      s.argument_types.push_back(type());
    }
    s.g.inputs.resize(names.size());
    std::vector<size_t> first;
    for (size_t i = 0; i < names.size(); ++i) {
      int64_t number = -1;
      const char* end = names[i].data() + names[i].size();
      auto r = std::from_chars(names[i].data(), end, number);
      if (r.ec != std::errc() || r.ptr != end) {
        first.push_back(i);
      } else if (!s.later.emplace(number, std::pair(names[i], i)).second) {
        fail(str_cat("%", names[i], " defined again"), "each value defined once");
      }
    }
    for (size_t i : first) add_argument(s, names[i], i);
    due_arguments(s, false);
  }

  /// One line of the body; false after return.
  bool statement(GraphScope& s) {
    skip();
    if (peek() == '%') {
      std::vector<std::string> names;
      do names.push_back(value_name());
      while (take(','));
      expect('=');
      node(s, names);
      return true;
    }
    std::string_view w = look();
    if (w == "return") {
      word();
      skip();
      if (peek() == '%') {
        do s.g.outputs.push_back(use(s));
        while (take(','));
      }
      return false;
    }
    if (w == "cell")
      cell(s);
    else if (w == "captured")
      captured(s);
    else if (w == "write")
      write(s);
    else if (w.empty())
      fail("a value, a declaration or return");
    else
      node(s, {});
    return true;
  }

  /// "c3" or "t3" with the number that comes next.
  void numbered(char letter, size_t next) {
    skip();
    std::string want = str_cat(letter, next);
    if (word() != want) {
      fail("another name", want);
    }
  }

  void cell(GraphScope& s) {
    keyword("cell");
    numbered('c', s.g.cells.size());
    auto c = make_ref<Cell>();
    c->name = string();
    c->is_parameter = take_word("parameter");
    if (!c->is_parameter) keyword("buffer");
    c->requires_grad = c->is_parameter;
    if (take_word(c->is_parameter ? "frozen" : "requires_grad")) c->requires_grad = !c->requires_grad;
    c->type = type();
    s.g.cells.push_back(std::move(c));
  }

  void write(GraphScope& s) {
    keyword("write");
    CellWrite w;
    w.cell = static_cast<int32_t>(reference('c', s.g.cells.size(), "cells"));
    expect(',');
    w.value = use(s);
    s.g.writes.push_back(w);
  }

  int64_t reference(char letter, size_t count, std::string_view what) {
    skip();
    if (peek() != letter || !std::isdigit(static_cast<unsigned char>(peek(1)))) fail(str_cat(letter, " and a number"));
    ++pos_;
    return index(count, what);
  }

  void captured(GraphScope& s) {
    keyword("captured");
    numbered('t', s.g.captured.size());
    if (take_word("undefined")) return s.g.captured.emplace_back(), void();
    TensorType t = type();
    if (take_here('=')) {
      s.g.captured.push_back(elements(t));
      return;
    }
    skip_blanks();
    if (word_char(peek()) && take_word("hash")) word();  // the text does not contain the elements
    s.g.captured.push_back(zeros(t));
  }

  Tensor elements(const TensorType& t) {
    check_inline(t);
    Tensor x = Tensor::empty(t);
    char* p = static_cast<char*>(x.view_for_kernel().data);
    expect('[');
    int64_t n = t.shape.numel();
    for (int64_t i = 0; i < n; ++i) {
      if (i) expect(',');
      store(p + i * itemsize(t.dtype), t.dtype);
    }
    expect(']');
    return x;
  }

  void store(char* p, DType t) {
    auto put = [&](auto v) { std::memcpy(p, &v, sizeof v); };
    if (t == kBool) {
      bool on = take_word("true");
      if (!on) keyword("false");
      return put(static_cast<uint8_t>(on));
    }
    ParsedNumber number = this->number();
    if (is_integral(t)) {
      const int64_t* i = std::get_if<int64_t>(&number);
      return with_integer(t, [&]<class T>(T) {
        if (!i || *i != static_cast<T>(*i)) fail("another number", str_cat("an integer that fits ", t));
        put(static_cast<T>(*i));
      });
    }
    double d = std::visit([](auto v) { return static_cast<double>(v); }, number);
    switch (t) {
      case kFloat64:
        return put(d);
      case kFloat32:
        return put(static_cast<float>(d));
      case kBFloat16:
        return put(bfloat16(static_cast<float>(d)));
      case kFloat16:
        return put(float16(static_cast<float>(d)));
      default:
        return put(float8_from_float(static_cast<float>(d), t));
    }
  }

  // ---- nodes ----
  void node(GraphScope& s, const std::vector<std::string>& names) {
    int at = line_;
    std::string_view op_name = word();
    if (op_name.empty()) fail("an op");
    Node n;
    n.op = &op_named(op_name, ops_);
    skip_blanks();
    bool cell = is_cell(n) && peek() == 'c', captured = n.op->leaf == internal::Leaf::kCaptured && peek() == 't';
    if (cell || captured) {
      int64_t i =
          cell ? reference('c', s.g.cells.size(), "cells") : reference('t', s.g.captured.size(), "captured tensors");
      n.attrs = {{"index", i}};
      if (cell)
        n.outputs = {s.g.cells[i]->type};
      else if (s.g.captured[i].defined())
        n.outputs = {s.g.captured[i].type()};
    } else {
      if (peek() == '%') {
        do n.inputs.push_back(use(s));
        while (take_here(','));
      }
      if (take_here('{')) n.attrs = attrs();
    }
    auto marked = [&](const char* word) {
      skip_blanks();
      return word_char(peek()) && take_word(word);
    };
    n.no_grad = marked("no_grad");
    n.backward = marked("backward");
    n.recomputed = marked("recomputed");
    check_count(*n.op, "operands", n.inputs.size(), n.op->num_inputs);
    if (take_here(':')) {
      n.outputs.clear();
      do n.outputs.push_back(type());
      while (take_here(','));
    } else if (n.op->infer && !names.empty()) {
      infer(s, n, at);
    }
    check_count(*n.op, "results", n.outputs.size(), n.op->num_outputs);
    if (names.size() != n.outputs.size())
      fail(str_cat(names.size(), " names for ", n.outputs.size(), " results"), "one name for each");
    line_comment(n);
    due_arguments(s, false);
    int32_t id = s.g.add(std::move(n));
    for (size_t i = 0; i < names.size(); ++i) define(s, names[i], {id, static_cast<int32_t>(i)});
    due_arguments(s, false);
  }

  /// Infers the types that hand-written text leaves out.
  void infer(GraphScope& s, Node& n, int at) {
    std::vector<TensorType> in;
    for (Value v : n.inputs) in.push_back(s.g.type(v));
    try {
      n.outputs = infer_types(*n.op, n.attrs, in);
    } catch (const Error& e) {
      internal::fail(e.code(), str_cat("parse_graph: line ", at, ": ", e.what()));
    }
  }

  /// Reads "# model.cc:41 blocks.0/attn" after a node; other comments are ignored.
  void line_comment(Node& n) {
    skip_blanks();
    if (peek() != '#') return;
    ++pos_;
    std::string file, scope;
    uint32_t line = 0;
    bool quoted = false;
    std::string first = comment_word(&quoted);
    if (quoted && peek() == ':')
      first += ":" + comment_word(&quoted);
    else if (quoted)
      scope = std::exchange(first, "");
    size_t colon = first.find_last_of(':');
    if (colon != first.npos) {
      const char* end = first.data() + first.size();
      auto r = std::from_chars(first.data() + colon + 1, end, line);
      if (r.ec != std::errc() || r.ptr != end) line = 0;
    }
    if (line) {
      file = first.substr(0, colon);
      scope = comment_word(&quoted);
    } else if (scope.empty()) {
      scope = first;
    }
    skip_blanks();
    bool alone = pos_ >= text_.size() || peek() == '\n' || peek() == '\r';
    while (pos_ < text_.size() && peek() != '\n') ++pos_;
    if (!alone || (!line && scope.find(':') != scope.npos && !quoted)) return;
    if (line) n.line = {intern(file), line};
    n.scope = intern(scope);
  }
  std::string comment_word(bool* quoted) {
    skip_blanks();
    *quoted = peek() == '"';
    if (*quoted) return string();
    if (peek() == ':') ++pos_;
    size_t begin = pos_;
    while (pos_ < text_.size() && !std::isspace(static_cast<unsigned char>(peek()))) ++pos_;
    return std::string(text_.substr(begin, pos_ - begin));
  }

  const OpTable& ops_;
};

}  // namespace

Ref<Graph> parse_graph(std::string_view text, const OpTable& ops) { return Parser(text, ops).run(); }

}  // namespace weft
