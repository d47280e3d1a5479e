#include "models/text/template/template.h"

#include "framework/base/error.h"
#include "framework/io/json.h"
#include "models/text/template/interpreter.h"
#include "models/text/template/node.h"

namespace weft::text::jinja {
namespace {

// Whose texts a JSON value contains.
enum class Owner : uint8_t { program, messages, message, user };

Value from_json(Heap& heap, const io::OrderedJson& j, Owner owner) {
  switch (j.type()) {
    case io::OrderedJson::value_t::boolean:
      return j.get<bool>();
    case io::OrderedJson::value_t::number_integer:
      return j.get<int64_t>();
    case io::OrderedJson::value_t::number_unsigned:
      return j.get<uint64_t>() <= uint64_t{INT64_MAX} ? Value(j.get<int64_t>()) : Value(j.get<double>());
    case io::OrderedJson::value_t::number_float:
      return j.get<double>();
    case io::OrderedJson::value_t::string:
      return heap.text(MarkedText(j.get_ref<const std::string&>(), owner != Owner::program));
    case io::OrderedJson::value_t::array: {
      const Owner inner = owner == Owner::messages ? Owner::message : owner;
      std::vector<Value> items;
      for (const io::OrderedJson& item : j) items.push_back(from_json(heap, item, inner));
      return heap.list(std::move(items));
    }
    case io::OrderedJson::value_t::object: {
      Dict* d = heap.dict();
      for (const auto& [key, value] : j.items()) {
        const bool role = owner == Owner::message && key == "role";
        const Owner inner = role ? Owner::program : owner == Owner::program ? Owner::program : Owner::user;
        heap.set(*d, heap.text(MarkedText(key, owner == Owner::user)), from_json(heap, value, inner));
      }
      return d;
    }
    default:
      return None{};
  }
}

void define_all(Interpreter& in, const TemplateInput& input, const io::OrderedJson& more) {
  Heap& heap = in.heap;
  std::vector<Value> messages;
  for (const Message& m : input.messages) {
    Dict* d = heap.dict();
    heap.set(*d, heap.text("role"), heap.text(m.role));
    heap.set(*d, heap.text("content"), heap.text(MarkedText(m.content, /*from_user=*/true)));
    messages.push_back(d);
  }
  in.define("messages", heap.list(std::move(messages)));
  in.define("add_generation_prompt", input.add_generation_prompt);
  for (const auto& [name, text] : input.texts) in.define(name, heap.text(text));
  for (const auto& [name, value] : more.items())
    in.define(name, from_json(heap, value,
                              name == "messages"                       ? Owner::messages
                              : name == "tools" || name == "documents" ? Owner::user
                                                                       : Owner::program));
}

std::vector<TemplatePart> parts_of(const MarkedText& text) {
  std::vector<TemplatePart> parts;
  text.for_each_part([&](std::string_view bytes, bool from_user) { parts.push_back({std::string(bytes), from_user}); });
  return parts;
}

}  // namespace

ChatTemplate::ChatTemplate(std::string_view source, std::string name)
    : name_(std::move(name)), root_(parse_template(source, name_)) {}
ChatTemplate::~ChatTemplate() = default;

std::vector<TemplatePart> ChatTemplate::render(const TemplateInput& input) const {
  io::OrderedJson more = io::OrderedJson::object();
  if (!input.json.empty()) {
    io::parse_json(input.json, name_ + ": variables");  // checks it, but sorts its keys
    more = io::OrderedJson::parse(input.json);
  }
  WEFT_CHECK(more.is_object(), name_, ": variables: need a JSON object");
  Interpreter in(name_, input.now);
  try {
    define_all(in, input, more);
    return parts_of(in.run(*root_));
  } catch (const Error& e) {
    const std::string_view what = e.what();
    if (what.starts_with(name_ + ": ")) throw;
    throw Error(e.code(), str_cat(name_, ": line ", in.heap.line, ": ", what));
  }
}

}  // namespace weft::text::jinja
