#include "framework/io/json.h"

#include <vector>

#include "framework/io/utf8.h"

namespace weft::io {
namespace {

constexpr std::string_view kBytes("\0bytes:", 7);  // see json_text

/// "[json.exception.parse_error.101] parse error at line 1, column 3: syntax error ..." without the library's tag.
std::string plain_message(const char* message) {
  std::string_view s = message;
  size_t end = s.find("] ");
  return std::string(end == std::string_view::npos ? s : s.substr(end + 2));
}

[[noreturn]] void wrong_type(const Json& value, std::string_view key, std::string_view what, const char* need) {
  weft::internal::fail(Code::kInvalidArgument,
                       str_cat(what, ": \"", key, "\" is ", value.type_name(), "; need ", need));
}

/// Builds a value from the events of the parser; refuses deep nesting and repeated keys. The library's own parser with
/// a callback takes quadratic time: at the end of each member object it searches all members of the parent.
class JsonBuilder final : public nlohmann::json_sax<Json> {
 public:
  JsonBuilder(std::string_view what, int max_depth) : what_(what), max_depth_(max_depth) {}
  Json root;

  bool null() override { return add(nullptr); }
  bool boolean(bool v) override { return add(v); }
  bool number_integer(int64_t v) override { return add(v); }
  bool number_unsigned(uint64_t v) override { return add(v); }
  bool number_float(double v, const std::string&) override { return add(v); }
  bool string(std::string& v) override { return add(std::move(v)); }
  bool binary(Json::binary_t& v) override { return add(std::move(v)); }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    const auto [it, fresh] = open_.back()->emplace(name, nullptr);
    WEFT_CHECK(fresh, what_, ": key \"", name, "\" appears twice in one object");
    member_ = &*it;
    return true;
  }
  bool parse_error(size_t, const std::string&, const Json::exception& e) override {
    weft::internal::fail(Code::kInvalidArgument, str_cat(what_, ": not valid JSON: ", plain_message(e.what())));
  }

 private:
  Json& place(Json v) {
    if (open_.empty()) return root = std::move(v);
    if (!open_.back()->is_array()) return *member_ = std::move(v);
    open_.back()->push_back(std::move(v));
    return open_.back()->back();
  }
  bool add(Json v) {
    place(std::move(v));
    return true;
  }
  bool open(Json v) {
    WEFT_CHECK(static_cast<int>(open_.size()) < max_depth_, what_, ": JSON nested deeper than ", max_depth_);
    open_.push_back(&place(std::move(v)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string_view what_;
  const int max_depth_;
  std::vector<Json*> open_;  // the open objects and arrays, outermost first
  Json* member_ = nullptr;   // place of the next value of the innermost object
};

}  // namespace

std::string json_text(std::string_view bytes) {
  if (is_utf8(bytes) && !bytes.starts_with(kBytes)) return std::string(bytes);
  std::string text(kBytes);
  for (const char c : bytes) append_character(text, static_cast<unsigned char>(c));
  return text;
}

std::string bytes_of_json(std::string text) {
  if (!text.starts_with(kBytes)) return text;
  std::string bytes;
  for (size_t i = kBytes.size(); i < text.size(); ++i) {
    const auto code = static_cast<unsigned char>(text[i]);
    if (code < 0x80) {
      bytes += text[i];
    } else if ((code == 0xC2 || code == 0xC3) && i + 1 < text.size()) {
      bytes += static_cast<char>((code & 3) << 6 | (static_cast<unsigned char>(text[++i]) & 0x3F));
    } else {
      return text;  // not from json_text
    }
  }
  return bytes;
}

Json parse_json(std::string_view text, std::string_view what, int max_depth) {
  JsonBuilder builder(what, max_depth);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return std::move(builder.root);
}

std::string write_json(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}
std::string write_json(const OrderedJson& value, int indent) {
  return value.dump(indent, ' ', false, OrderedJson::error_handler_t::replace);
}

const Json& json_member(const Json& object, std::string_view key, std::string_view what) {
  WEFT_CHECK(object.is_object(), what, ": got ", object.type_name(), "; need an object with \"", key, "\"");
  auto it = object.find(key);
  WEFT_CHECK(it != object.end(), what, ": \"", key, "\" is missing");
  return *it;
}

template <>
int64_t json_get<int64_t>(const Json& object, std::string_view key, std::string_view what) {
  const Json& v = json_member(object, key, what);
  if (!v.is_number_integer() || (v.is_number_unsigned() && v.get<uint64_t>() > uint64_t{INT64_MAX}))
    wrong_type(v, key, what, "a whole number of at most 64 bits");
  return v.get<int64_t>();
}

template <>
double json_get<double>(const Json& object, std::string_view key, std::string_view what) {
  const Json& v = json_member(object, key, what);
  if (!v.is_number()) wrong_type(v, key, what, "a number");
  return v.get<double>();
}

template <>
bool json_get<bool>(const Json& object, std::string_view key, std::string_view what) {
  const Json& v = json_member(object, key, what);
  if (!v.is_boolean()) wrong_type(v, key, what, "true or false");
  return v.get<bool>();
}

template <>
std::string json_get<std::string>(const Json& object, std::string_view key, std::string_view what) {
  const Json& v = json_member(object, key, what);
  if (!v.is_string()) wrong_type(v, key, what, "a string");
  return v.get<std::string>();
}

}  // namespace weft::io
