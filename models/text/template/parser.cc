// The grammar of Jinja, by recursive descent. The nesting of the text is limited, and with it the stack.
#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/one_line.h"
#include "models/text/template/lexer.h"
#include "models/text/template/node.h"

namespace weft::text::jinja {
namespace {

using Token = TemplateToken;
using Node = std::unique_ptr<TemplateNode>;
using Words = std::initializer_list<std::string_view>;

bool is_in(std::string_view word, Words words) { return std::find(words.begin(), words.end(), word) != words.end(); }

class Parser {
 public:
  Parser(std::vector<Token> tokens, const std::string& file) : file_(file), tokens_(std::move(tokens)) {}

  NodePtr run() { return block({}); }

 private:
  struct Level {
    explicit Level(Parser& p) : parser(p) {
      if (++p.level_ > kMostNesting) p.fail(str_cat("got more than ", kMostNesting, " nested parts; need fewer"));
    }
    ~Level() { --parser.level_; }
    Parser& parser;
  };

  const Token& now() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token take() { return tokens_[now().kind == Token::end ? at_ : at_++]; }
  [[noreturn]] void fail(const std::string& what) const {
    internal::fail(Code::kInvalidArgument, str_cat(file_, ": line ", now().line, ": ", what));
  }
  static std::string shown(const Token& t) {
    switch (t.kind) {
      case Token::data:
        return "text";
      case Token::begin_block:
        return "'{%'";
      case Token::end_block:
        return "'%}'";
      case Token::begin_output:
        return "'{{'";
      case Token::end_output:
        return "'}}'";
      case Token::end:
        return "the end";
      default:
        return str_cat("'", one_line(t.text, 40), "'");
    }
  }
  bool is_op(std::string_view op) const { return now().kind == Token::op && now().text == op; }
  bool is_name(std::string_view name) const { return now().kind == Token::name && now().text == name; }
  bool skip_op(std::string_view op) { return is_op(op) && (++at_, true); }
  bool skip_name(std::string_view name) { return is_name(name) && (++at_, true); }
  void need_op(std::string_view op) {
    if (!skip_op(op)) fail(str_cat("got ", shown(now()), "; need '", op, "'"));
  }
  void need_end() {
    if (now().kind != Token::end_block) fail(str_cat("got ", shown(now()), "; need '%}'"));
    ++at_;
  }
  std::string need_name() {
    if (now().kind != Token::name) fail(str_cat("got ", shown(now()), "; need a name"));
    return take().text;
  }

  Node make(NodeKind kind, std::string text = {}) const {
    Node n = std::make_unique<TemplateNode>();
    n->kind = kind;
    n->line = now().line;
    n->text = std::move(text);
    return n;
  }
  void add(Node& to, NodePtr kid) const {
    if (kid) {
      if (kid->height >= kMostNesting) fail(str_cat("got more than ", kMostNesting, " nested parts; need fewer"));
      to->height = std::max<uint8_t>(to->height, kid->height + 1);
    }
    to->kids.push_back(std::move(kid));
  }
  template <class... Kids>
  Node make(NodeKind kind, std::string text, NodePtr first, Kids... rest) const {
    Node n = make(kind, std::move(text));
    n->line = first->line;
    add(n, std::move(first));
    (add(n, std::move(rest)), ...);
    return n;
  }

  // ---- statements ----

  // Statements up to a tag that begins with one of `ends`; its name is the next token.
  NodePtr block(Words ends) {
    Level level(*this);
    Node all = make(NodeKind::block);
    while (true) {
      if (now().kind == Token::data) {
        Node data = make(NodeKind::data);
        data->text = take().text;
        add(all, std::move(data));
      } else if (now().kind == Token::begin_output) {
        ++at_;
        add(all, make(NodeKind::output, {}, tuple(true)));
        if (now().kind != Token::end_output) fail(str_cat("got ", shown(now()), "; need '}}'"));
        ++at_;
      } else if (now().kind == Token::begin_block) {
        ++at_;
        if (now().kind == Token::name && is_in(now().text, ends)) return all;
        statement(all);
      } else {
        if (ends.size()) fail(str_cat("got ", shown(now()), "; need '", *(ends.end() - 1), "'"));
        return all;
      }
    }
  }
  // The rest of a tag, a block, and its end.
  NodePtr body(std::string_view end) {
    need_end();
    NodePtr b = block({end});
    ++at_;
    need_end();
    return b;
  }

  void statement(Node& all) {
    const Token word = now();
    const std::string name = need_name();
    if (name == "if") return add(all, if_else());
    if (name == "for") return add(all, for_loop());
    if (name == "set") return add(all, set());
    if (name == "macro") return add(all, macro());
    if (name == "filter") {
      Node n = make(NodeKind::filter_block);
      add(n, filters(make(NodeKind::value), true));
      add(n, body("endfilter"));
      return add(all, std::move(n));
    }
    if (name == "generation") return add(all, body("endgeneration"));
    if (name == "break" || name == "continue") {
      if (!loops_) fail(str_cat("'", name, "' outside of a loop"));
      add(all, make(name == "break" ? NodeKind::break_loop : NodeKind::continue_loop));
      return need_end();
    }
    --at_;
    fail(str_cat("got the statement '", name,
                 "'; need break, continue, filter, for, generation, if, macro, raw or set"));
  }

  NodePtr if_else() {
    Node n = make(NodeKind::if_else);
    while (true) {
      add(n, tuple(false));
      need_end();
      add(n, block({"elif", "else", "endif"}));
      const std::string word = take().text;
      if (word == "elif") continue;
      if (word == "else") add(n, body("endif"));
      if (word == "endif") need_end();
      return n;
    }
  }

  NodePtr for_loop() {
    Node n = make(NodeKind::for_loop);
    add(n, target(false));
    if (!skip_name("in")) fail(str_cat("got ", shown(now()), "; need 'in'"));
    add(n, tuple(false));
    NodePtr condition = skip_name("if") ? expression() : nullptr;
    if (is_name("recursive")) fail("recursive loops are not known; need a macro");
    need_end();
    ++loops_;
    add(n, block({"else", "endfor"}));
    --loops_;
    if (take().text == "else") {
      add(n, body("endfor"));
    } else {
      add(n, nullptr);
      need_end();
    }
    if (condition) add(n, std::move(condition));
    return n;
  }

  NodePtr set() {
    Node n = make(NodeKind::set);
    add(n, target(true));
    if (skip_op("=")) {
      add(n, tuple(true));
      need_end();
      return n;
    }
    n->kind = NodeKind::set_block;
    NodePtr value = filters(make(NodeKind::value), false);
    add(n, body("endset"));
    add(n, std::move(value));
    return n;
  }

  NodePtr macro() {
    Node n = make(NodeKind::macro);
    n->text = need_name();
    need_op("(");
    std::vector<NodePtr> defaults;
    while (!is_op(")")) {
      if (!n->names.empty()) need_op(",");
      n->names.push_back(need_name());
      if (skip_op("="))
        defaults.push_back(expression());
      else if (!defaults.empty())
        fail("a parameter without default value follows one with a default value");
    }
    need_op(")");
    const int loops = std::exchange(loops_, 0);
    add(n, body("endmacro"));
    loops_ = loops;
    for (NodePtr& d : defaults) add(n, std::move(d));
    return n;
  }

  // Names to set: one, or several with commas; with attributes of namespaces if `attributes`.
  NodePtr target(bool attributes) {
    Node n = make(NodeKind::tuple);
    const bool parens = skip_op("(");
    bool many = parens;
    do {
      Node one = make(NodeKind::name);
      one->text = need_name();
      if (is_in(one->text, {"true", "false", "none", "True", "False", "None"}))
        fail(str_cat("cannot set '", one->text, "'"));
      if (attributes && skip_op(".")) {
        Node attribute = make(NodeKind::attribute, need_name(), std::move(one));
        one = std::move(attribute);
      }
      add(n, std::move(one));
      many = many || is_op(",");
    } while (skip_op(",") && now().kind == Token::name && !is_name("in"));
    if (parens) need_op(")");
    if (many) return n;
    return std::move(n->kids[0]);
  }

  // ---- expressions ----

  // One expression, or several with commas. `choices`: with "a if b else c".
  NodePtr tuple(bool choices) {
    const auto one = [&] { return choices ? expression() : or_chain(); };
    NodePtr first = one();
    if (!is_op(",")) return first;
    Node n = make(NodeKind::tuple, {}, std::move(first));
    while (skip_op(",")) {
      if (is_op(")") || is_op("]") || is_op("=") || now().kind == Token::end_block || now().kind == Token::end_output)
        break;
      add(n, one());
    }
    return n;
  }

  NodePtr expression() {
    Level level(*this);
    NodePtr e = or_chain();
    while (skip_name("if")) {
      Node n = make(NodeKind::choose, {}, std::move(e), or_chain());
      if (skip_name("else")) add(n, expression());
      e = std::move(n);
    }
    return e;
  }

  // A chain of operands with one of `words` between them.
  template <class Next>
  NodePtr chain(NodeKind kind, std::string_view word, const Next& operand) {
    NodePtr first = operand();
    if (!is_name(word)) return first;
    Node n = make(kind, {}, std::move(first));
    while (skip_name(word)) add(n, operand());
    return n;
  }
  NodePtr or_chain() {
    return chain(NodeKind::or_, "or", [&] { return chain(NodeKind::and_, "and", [&] { return not_chain(); }); });
  }
  NodePtr not_chain() {
    Level level(*this);
    if (!is_name("not")) return compare();
    ++at_;
    return make(NodeKind::not_, {}, not_chain());
  }

  char compare_op() {
    static constexpr std::pair<std::string_view, char> kOps[] = {{"==", 'e'}, {"!=", 'n'}, {"<=", 'l'},
                                                                 {">=", 'g'}, {"<", '<'},  {">", '>'}};
    for (const auto& [op, code] : kOps)
      if (skip_op(op)) return code;
    if (skip_name("in")) return 'i';
    if (is_name("not") && next().kind == Token::name && next().text == "in") return at_ += 2, 'o';
    return 0;
  }
  NodePtr compare() {
    NodePtr first = sum();
    char op = compare_op();
    if (!op) return first;
    Node n = make(NodeKind::compare, {}, std::move(first));
    for (; op; op = compare_op()) {
      n->ops += op;
      add(n, sum());
    }
    return n;
  }

  struct Operator {
    std::string_view text;
    char code;
  };
  template <class Next>
  NodePtr arithmetic(std::initializer_list<Operator> operators, const Next& operand) {
    NodePtr first = operand();
    const auto op = [&]() -> char {
      for (const Operator& o : operators)
        if (skip_op(o.text)) return o.code;
      return 0;
    };
    char code = op();
    if (!code) return first;
    Node n = make(NodeKind::arithmetic, {}, std::move(first));
    for (; code; code = op()) {
      n->ops += code;
      add(n, operand());
    }
    return n;
  }
  NodePtr sum() {
    const auto power = [&] { return arithmetic({{"**", 'p'}}, [&] { return unary(true); }); };
    const auto product = [&] { return arithmetic({{"*", '*'}, {"//", 'f'}, {"/", '/'}, {"%", '%'}}, power); };
    const auto joined = [&] { return arithmetic({{"~", '~'}}, product); };
    return arithmetic({{"+", '+'}, {"-", '-'}}, joined);
  }

  NodePtr unary(bool with_filters) {
    Level level(*this);
    NodePtr e;
    if (skip_op("-"))
      e = make(NodeKind::negative, {}, unary(false));
    else if (skip_op("+"))
      e = make(NodeKind::positive, {}, unary(false));
    else
      e = primary();
    e = postfix(std::move(e));
    return with_filters ? filters_and_tests(std::move(e)) : std::move(e);
  }

  NodePtr primary() {
    Node n = make(NodeKind::none);
    const Token t = take();
    switch (t.kind) {
      case Token::name:
        if (is_in(t.text, {"true", "True", "false", "False"})) {
          n->kind = NodeKind::boolean;
          n->integer = t.text == "true" || t.text == "True";
        } else if (t.text != "none" && t.text != "None") {
          n->kind = NodeKind::name;
          n->text = t.text;
        }
        return n;
      case Token::string:
        n->kind = NodeKind::text;
        n->text = t.text;
        while (now().kind == Token::string) n->text += take().text;
        return n;
      case Token::integer:
      case Token::real: {
        const char *begin = t.text.data(), *end = begin + t.text.size();
        n->kind = t.kind == Token::real ? NodeKind::real : NodeKind::integer;
        const auto r =
            t.kind == Token::real ? std::from_chars(begin, end, n->real) : std::from_chars(begin, end, n->integer);
        if (r.ec != std::errc()) --at_, fail(str_cat("the number ", one_line(t.text, 40), " is too large"));
        return n;
      }
      case Token::op:
        if (t.text == "(") return parens(std::move(n));
        if (t.text == "[") return list(std::move(n));
        if (t.text == "{") return dict(std::move(n));
        break;
      default:
        break;
    }
    if (t.kind != Token::end) --at_;
    fail(str_cat("got ", shown(t), "; need an expression"));
  }
  NodePtr parens(Node n) {
    n->kind = NodeKind::tuple;
    if (skip_op(")")) return n;
    NodePtr e = tuple(true);
    need_op(")");
    return e;
  }
  NodePtr list(Node n) {
    n->kind = NodeKind::list;
    while (!is_op("]")) {
      if (!n->kids.empty()) need_op(",");
      if (is_op("]")) break;
      add(n, expression());
    }
    need_op("]");
    return n;
  }
  NodePtr dict(Node n) {
    n->kind = NodeKind::dict;
    while (!is_op("}")) {
      if (!n->kids.empty()) need_op(",");
      if (is_op("}")) break;
      add(n, expression());
      need_op(":");
      add(n, expression());
    }
    need_op("}");
    return n;
  }

  NodePtr postfix(NodePtr e) {
    while (true) {
      if (skip_op(".")) {
        if (now().kind == Token::integer) {
          NodePtr key = primary();
          e = make(NodeKind::item, {}, std::move(e), std::move(key));
        } else {
          e = make(NodeKind::attribute, need_name(), std::move(e));
        }
      } else if (skip_op("[")) {
        e = subscript(std::move(e));
      } else if (is_op("(")) {
        e = call(std::move(e));
      } else {
        return e;
      }
    }
  }
  NodePtr subscript(NodePtr e) {
    NodePtr part[3];
    if (!is_op(":")) part[0] = tuple(true);
    if (skip_op("]")) return make(NodeKind::item, {}, std::move(e), std::move(part[0]));
    for (int i = 1; i < 3 && skip_op(":"); ++i)
      if (!is_op(":") && !is_op("]")) part[i] = expression();
    need_op("]");
    Node n = make(NodeKind::slice, {}, std::move(e));
    for (NodePtr& p : part) add(n, std::move(p));
    return n;
  }

  // "(a, b, c=d)", added to a node whose kids are the value or the callee.
  void arguments(Node& n) {
    need_op("(");
    for (bool first = true; !is_op(")"); first = false) {
      if (!first) need_op(",");
      if (is_op(")")) break;
      if (is_op("*") || is_op("**")) fail("arguments from a list or mapping are not known; need single arguments");
      if (now().kind == Token::name && next().kind == Token::op && next().text == "=") {
        n->names.push_back(take().text);
        ++at_;
      } else if (!n->names.empty()) {
        fail("an argument without name follows one with a name");
      }
      add(n, expression());
    }
    need_op(")");
  }

  NodePtr call(NodePtr callee) {
    Node n = make(NodeKind::call, {}, std::move(callee));
    arguments(n);
    return n;
  }
  NodePtr filter(NodePtr e) {
    Node n = make(NodeKind::filter, need_name(), std::move(e));
    n->line = tokens_[at_ - 1].line;
    if (is_op("(")) arguments(n);
    return n;
  }
  // "a | b | c"; `inner`: the first has no bar.
  NodePtr filters(NodePtr e, bool inner) {
    while (inner || skip_op("|")) {
      e = filter(std::move(e));
      inner = false;
    }
    return e;
  }
  NodePtr filters_and_tests(NodePtr e) {
    while (true) {
      if (skip_op("|")) {
        e = filter(std::move(e));
      } else if (skip_name("is")) {
        e = test(std::move(e));
      } else if (is_op("(")) {
        e = call(std::move(e));
      } else {
        return e;
      }
    }
  }
  NodePtr test(NodePtr e) {
    const bool negated = skip_name("not");
    Node n = make(NodeKind::test, need_name(), std::move(e));
    n->line = tokens_[at_ - 1].line;
    if (is_op("(")) {
      arguments(n);
    } else if ((now().kind == Token::name && !is_in(now().text, {"else", "or", "and", "if", "is", "in", "not"})) ||
               now().kind == Token::string || now().kind == Token::integer || now().kind == Token::real || is_op("[") ||
               is_op("{")) {
      add(n, postfix(primary()));
    }
    if (!negated) return n;
    return make(NodeKind::not_, {}, std::move(n));
  }

  const std::string& file_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int level_ = 0, loops_ = 0;
};

}  // namespace

NodePtr parse_template(std::string_view source, const std::string& name) {
  return Parser(template_tokens(source, name), name).run();
}

}  // namespace weft::text::jinja
