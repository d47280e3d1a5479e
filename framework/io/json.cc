#include "framework/io/json.h"

#include <set>
#include <vector>

namespace weft::io {
namespace {

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

}  // namespace

Json parse_json(std::string_view text, std::string_view what, int max_depth) {
  std::vector<std::set<std::string>> keys;  // of the open objects, outermost first; arrays have an empty set
  auto callback = [&](int depth, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      WEFT_CHECK(depth < max_depth, what, ": JSON nested deeper than ", max_depth);
      keys.emplace_back();
    } else if (event == Event::object_end || event == Event::array_end) {
      keys.pop_back();
    } else if (event == Event::key) {
      const std::string& key = parsed.get_ref<const std::string&>();
      WEFT_CHECK(keys.back().insert(key).second, what, ": key \"", key, "\" appears twice in one object");
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), callback);
  } catch (const Json::exception& e) {
    weft::internal::fail(Code::kInvalidArgument, str_cat(what, ": not valid JSON: ", plain_message(e.what())));
  }
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
