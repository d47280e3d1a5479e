// JSON: the nlohmann library, used strictly. Include this only in .cc files; it is a large header. parse_json rejects
// duplicate keys, deep nesting, bad UTF-8 and anything after the value.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "framework/base/error.h"

namespace weft::io {

/// The result of parsing: objects are sorted by key. Whole numbers stay exact 64-bit integers.
using Json = nlohmann::json;
/// For writing: objects keep the order of insertion.
using OrderedJson = nlohmann::ordered_json;

inline constexpr int kMaxJsonDepth = 64;

/// Any bytes as a text of JSON, and back: UTF-8 is itself, and other bytes are U+0000, "bytes:", and a character of
/// U+0000 to U+00FF for each byte. Paths and values of flags may have any bytes.
std::string json_text(std::string_view bytes);
std::string bytes_of_json(std::string text);

/// Parses one JSON value; throws InvalidArgument "WHAT: ..." with line and column on anything else.
Json parse_json(std::string_view text, std::string_view what, int max_depth = kMaxJsonDepth);

/// Text on one line, or indented by `indent` spaces. Doubles round-trip; NaN and infinities become null; bytes that are
/// not UTF-8 become U+FFFD.
std::string write_json(const Json& value, int indent = -1);
std::string write_json(const OrderedJson& value, int indent = -1);

/// Member `key` of an object; throws "WHAT: ..." if `object` is not an object or has no such member.
const Json& json_member(const Json& object, std::string_view key, std::string_view what);

/// Member `key` as int64_t, double, bool or std::string; throws, naming the actual type, if it has another type.
template <class T>
T json_get(const Json& object, std::string_view key, std::string_view what);

}  // namespace weft::io
