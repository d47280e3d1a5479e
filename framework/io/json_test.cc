// Tests JSON: exact numbers, order, and one sentence for text that is not JSON.
#include "framework/io/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "framework/base/testing/error_of.h"

namespace weft::io {
namespace {

using ::testing::HasSubstr;
using weft::testing::error_of;

std::string message(std::string_view text) {
  return error_of([&] { parse_json(text, "t.json"); });
}

TEST(Json, NumbersAreExact) {
  Json j = parse_json(
      R"({"min": -9223372036854775808, "max": 9223372036854775807, "pi": 3.141592653589793, "t": true})", "t");
  EXPECT_EQ(json_get<int64_t>(j, "min", "t"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(json_get<int64_t>(j, "max", "t"), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(json_get<double>(j, "pi", "t"), 3.141592653589793);
  EXPECT_TRUE(json_get<bool>(j, "t", "t"));
  for (double v : {0.1, 1e-310, 1.7976931348623157e308, -0.0, 1.0 / 3}) {
    double back = parse_json(write_json(Json(v)), "t").get<double>();
    EXPECT_EQ(back, v);
    EXPECT_EQ(std::signbit(back), std::signbit(v));
  }
}

TEST(Json, Writing) {
  OrderedJson j;
  j["step"] = 3;
  j["loss"] = 0.5;
  j["aux"] = std::nan("");
  j["text"] = "a\"\n\xff";
  EXPECT_EQ(write_json(j), "{\"step\":3,\"loss\":0.5,\"aux\":null,\"text\":\"a\\\"\\n\xEF\xBF\xBD\"}");
  EXPECT_EQ(write_json(parse_json("{\"b\":1,\"a\":2}", "t")), "{\"a\":2,\"b\":1}");
}

TEST(Json, Unicode) {
  EXPECT_EQ(parse_json(R"("\u00e9\ud83d\ude00")", "t").get<std::string>(), "\xC3\xA9\xF0\x9F\x98\x80");
  EXPECT_THAT(message("\"\\ud800\""), HasSubstr("t.json: not valid JSON"));
  EXPECT_THAT(message("\"\xff\""), HasSubstr("t.json: not valid JSON"));
}

TEST(Json, TextsKeepAnyBytes) {
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  for (const std::string& bytes :
       {std::string("caf\xC3\xA9"), std::string("caf\xE9.txt"), all, std::string(), std::string("\0bytes:x", 8),
        std::string("\xED\xA0\x80"), std::string("\xC3"), std::string("a\0b", 3)}) {
    Json j;
    j["path"] = json_text(bytes);
    const Json back = parse_json(write_json(j), "t");
    EXPECT_EQ(bytes_of_json(json_get<std::string>(back, "path", "t")), bytes);
  }
  EXPECT_EQ(json_text("caf\xC3\xA9"), "caf\xC3\xA9");   // UTF-8 is not escaped
  const std::string other("\0bytes:\xE2\x82\xAC", 10);  // not from json_text
  EXPECT_EQ(bytes_of_json(other), other);
}

TEST(Json, Refusals) {
  for (const char* bad : {"", "{", "[1,]", "{'a':1}", "1 2", "nul", "01", "+1", "{\"a\" 1}", "// x\n1", "NaN", "1e999"})
    EXPECT_THAT(message(bad), HasSubstr("t.json: not valid JSON: ")) << bad;
  EXPECT_EQ(message(R"({"a": {"b": 1, "b": 2}})"), "t.json: key \"b\" appears twice in one object");
  EXPECT_EQ(message(R"([{"a": 1}, {"a": {"a": 2}}])"), "");
  EXPECT_EQ(message(std::string(64, '[') + std::string(64, ']')), "");
  EXPECT_EQ(message(std::string(65, '[') + std::string(65, ']')), "t.json: JSON nested deeper than 64");
  EXPECT_EQ(message(std::string(1'000'000, '[')), "t.json: JSON nested deeper than 64");
}

TEST(Json, TypedMembers) {
  Json j = parse_json(R"({"a": "x", "n": 1.5, "big": 18446744073709551615})", "t");
  EXPECT_EQ(error_of([&] { json_get<int64_t>(j, "a", "cfg"); }),
            "cfg: \"a\" is string; need a whole number of at most 64 bits");
  EXPECT_THAT(error_of([&] { json_get<int64_t>(j, "n", "cfg"); }), HasSubstr("need a whole number"));
  EXPECT_THAT(error_of([&] { json_get<int64_t>(j, "big", "cfg"); }), HasSubstr("need a whole number"));
  EXPECT_EQ(error_of([&] { json_get<std::string>(j, "q", "cfg"); }), "cfg: \"q\" is missing");
  EXPECT_THAT(error_of([&] { json_get<bool>(j["a"], "q", "cfg"); }), HasSubstr("got string; need an object"));
  EXPECT_EQ(json_get<std::string>(j, "a", "cfg"), "x");
}

}  // namespace
}  // namespace weft::io
