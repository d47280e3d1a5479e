// Records (fields.h) as objects of JSON. Include this only in .cc files, as json.h.
#pragma once
#include <algorithm>
#include <map>
#include <vector>

#include "framework/base/one_line.h"
#include "framework/io/fields/fields.h"
#include "framework/io/json.h"

namespace weft::io {

using TextMap = std::map<std::string, std::string>;

template <class R>
void add_fields(const R& record, OrderedJson& object);

/// A record as an object, a list as an array, and other values as numbers, true, false or texts (json_text). A uint64_t
/// is a text, because many readers of JSON keep 53 bits.
template <class T>
OrderedJson json_of(const T& v) {
  OrderedJson json;
  if constexpr (Record<T>) {
    add_fields(v, json = OrderedJson::object());
  } else if constexpr (std::is_same_v<T, TextMap>) {
    json = OrderedJson::object();
    for (const auto& [name, text] : v) json[json_text(name)] = json_text(text);
  } else if constexpr (List<T>) {
    json = OrderedJson::array();
    for (const auto& one : v) json.push_back(json_of(one));
  } else if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, uint64_t>) {
    json = v;
  } else {
    json = json_text(text_of(v));
  }
  return json;
}

/// Adds the fields of a record to an object, in their order.
template <class R>
void add_fields(const R& record, OrderedJson& object) {
  const NewValue<R> fresh(record);
  const auto add = [&]<class T>(const char* name, const T& v, const Field& f = {}) {
    if constexpr (List<T> || std::is_same_v<T, TextMap>) {
      if (f.in == In::kIfSet && v.empty()) return;
    } else if constexpr (!Record<T>) {
      if (f.in == In::kIfSet && same(v, fresh(v))) return;
    }
    if (f.in != In::kRead) object[name] = json_of(v);
  };
  visit(record, add);
}

/// Sets the fields of a record that an object has. `more`: members that the caller reads. Throws InvalidArgument
/// "WHAT: ..." with the member, the value and the valid values; `hint` follows the list of valid members.
template <class R>
void read_fields(R& record, const Json& object, const std::string& what, std::vector<std::string_view> more = {},
                 std::string_view hint = {}) {
  WEFT_CHECK(object.is_object(), what, " is ", object.type_name(), "; need an object");
  const auto name_it = [&](const char* name, const auto&, const Field& = {}) { more.push_back(name); };
  visit(record, name_it);
  for (const auto& [name, value] : object.items()) {
    if (std::find(more.begin(), more.end(), name) != more.end()) continue;
    std::string all;
    for (std::string_view one : more) all += str_cat(all.empty() ? "" : ", ", one);
    internal::fail(Code::kInvalidArgument,
                   str_cat(what, ": got \"", one_line(name, 40), "\"; need members of ", all, hint));
  }
  const auto read = [&]<class T>(const char* name, T& v, Field f = {}) {
    const auto need = [&](const std::string& values) {
      if (!values.empty())
        internal::fail(Code::kInvalidArgument,
                       str_cat(what, ": \"", name, "\" is ", object.at(name).dump(), "; need ", values));
    };
    if (f.in != In::kNeeded && !object.contains(name)) return;
    const Json& json = json_member(object, name, what);
    if constexpr (Record<T>) {
      read_fields(v, json, str_cat(what, ": ", name), {}, hint);
    } else if constexpr (std::is_same_v<T, TextMap>) {
      const std::string place = str_cat(what, ": \"", name, "\"");
      WEFT_CHECK(json.is_object(), place, " is ", json.type_name(), "; need an object");
      v.clear();
      for (const auto& [key, value] : json.items())
        v[bytes_of_json(key)] = bytes_of_json(json_get<std::string>(json, key, place));
    } else if constexpr (List<T>) {
      WEFT_CHECK(json.is_array(), what, ": \"", name, "\" is ", json.type_name(), "; need an array");
      v.clear();
      for (const Json& one : json) {
        const std::string place = str_cat(what, ": ", name, " ", v.size());
        read_fields(v.emplace_back(), one, place, {}, hint);
      }
    } else if constexpr (std::is_same_v<T, int>) {
      const int64_t n = json_get<int64_t>(object, name, what);
      f.least = std::max<double>(f.least, INT32_MIN), f.most = std::min<double>(f.most, INT32_MAX);
      need(unfit(n, f));
      v = static_cast<int>(n);
    } else if constexpr (std::is_same_v<T, uint64_t> || Named<T>) {
      need(set_text(json_get<std::string>(object, name, what), v));
    } else {
      v = json_get<T>(object, name, what);
      if constexpr (std::is_same_v<T, std::string>) v = bytes_of_json(std::move(v));
      need(unfit(v, f));
    }
  };
  fields(read, record);
}

}  // namespace weft::io
