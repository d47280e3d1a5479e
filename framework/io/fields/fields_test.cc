// One record in every format: its bytes and texts, inputs that readers refuse, and values that are left out.
#include "framework/io/fields/fields.h"

#include <gtest/gtest.h>

#include "framework/base/testing/error_of.h"
#include "framework/io/fields/byte_fields.h"
#include "framework/io/fields/json_fields.h"
#include "framework/io/fields/text_fields.h"

namespace weft::io {

enum class Colour : uint8_t { kRed, kGreen };
static const char* to_string(Colour c) { return c == Colour::kRed ? "red" : "green"; }
static int count_of(Colour) { return 2; }

struct Point {
  double x = 0;
  int32_t at = -1;
};
template <class V>
void fields(V& v, Point& p) {
  v("x", p.x, at(1)), v("at", p.at, if_set(2));
}

struct Drawing {
  std::string name;
  Colour colour = Colour::kRed;
  DType dtype = kFloat32;
  bool filled = true;
  int64_t count = 3;
  std::vector<Point> points;
};
template <class V>
void fields(V& v, Drawing& d) {
  v("name", d.name, at(7)), v("colour", d.colour, at(2)), v("dtype", d.dtype, if_set(3));
  v("filled", d.filled, if_set(4)), v("count", d.count, {.least = 1, .most = 9, .number = 5});
  v("points", d.points, at(1));
}

struct Order {
  std::vector<int32_t> order;
};
template <class V>
void fields(V& v, Order& o) {
  v("order", o.order, at(6));
}

namespace {

using testing::error_of;

Drawing made() { return {"a \"b\"\n", Colour::kGreen, kBFloat16, false, 4, {{0.5, -1}, {-2, 300}}}; }
Drawing fresh() { return {.name = "n"}; }

Drawing from_json(const std::string& text) {
  Drawing d;
  read_fields(d, parse_json(text, "file"), "file", {}, ", in pixels");
  return d;
}
template <class R = Drawing>
R from_bytes(const std::string& bytes) {
  R record;
  BytePlace place("drawing", bytes);
  read_bytes(record, bytes, place);
  return record;
}

TEST(Fields, Json) {
  const std::string text = write_json(json_of(made()));
  EXPECT_EQ(text, R"({"name":"a \"b\"\n","colour":"green","dtype":"bf16","filled":false,"count":4,)"
                  R"("points":[{"x":0.5},{"x":-2.0,"at":300}]})");
  EXPECT_EQ(write_json(json_of(fresh())), R"({"name":"n","colour":"red","count":3,"points":[]})");
}

TEST(Fields, Bytes) {
  Drawing d = made();
  d.points[1].x = 2;
  const std::string bytes = to_bytes(d);
  const Drawing back = from_bytes(bytes);
  EXPECT_EQ(to_bytes(back), bytes);
  EXPECT_EQ(write_json(json_of(back)), write_json(json_of(d)));
  // Fields by number; a field with the value of a new record is left out; unknown fields are skipped.
  EXPECT_EQ(to_bytes(fresh()), "\x3a\x01n\xc0\x3e\x01");
  EXPECT_EQ(from_bytes(std::string("\x40\x07\x4a\x01z\x55zzzz\x3a\x01m\xc0\x3e\x01")).name, "m");
  EXPECT_EQ(to_bytes(Order{{1, 200}}), std::string("\x32\x03\x01\xc8\x01\xc0\x3e\x01"));
  EXPECT_EQ(from_bytes<Order>(to_bytes(Order{{-1, 200}})).order, (std::vector<int32_t>{-1, 200}));
  // A list of integers may be one field for each.
  EXPECT_EQ(from_bytes<Order>("\x30\x05\x30\x06\xc0\x3e\x01").order, (std::vector<int32_t>{5, 6}));
}

TEST(Fields, BytesAreRefused) {
  const std::string all = "drawing: got ",
                    rest = " bytes that are no complete record; need all bytes that were written";
  EXPECT_EQ(error_of([] { from_bytes("{}"); }), all + "2" + rest);
  EXPECT_EQ(error_of([] { from_bytes("\x3a\x09n\xc0\x3e\x01"); }), all + "6" + rest);
  EXPECT_EQ(error_of([] { from_bytes("\x12\x04gr\\n\xc0\x3e\x01"); }),
            "drawing: colour: got \"gr\\\\n\"; need one of red, green");
  Drawing d = fresh();
  d.points = {{}, {-1}};
  EXPECT_EQ(error_of([&] { from_bytes(to_bytes(d)); }),
            "drawing: points 1: x: got -1.0; need a finite number, 0 or more");
  d.points = {{1, -2}};
  EXPECT_EQ(error_of([&] { from_bytes(to_bytes(d)); }), "drawing: points 0: at: got -2; need -1 or more");
  d.points = {{1e31}};
  EXPECT_NE(error_of([&] { from_bytes(to_bytes(d)); }), "");
  d = fresh();
  d.count = -3;
  EXPECT_EQ(error_of([&] { from_bytes(to_bytes(d)); }), "drawing: count: got -3; need 0 or more");
}

TEST(Fields, JsonIsRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"[]", "file is array; need an object"},
      {R"({"colour": "red", "count": 1, "points": []})", "file: \"name\" is missing"},
      {R"({"nam": 1})", "file: got \"nam\"; need members of name, colour, dtype, filled, count, points, in pixels"},
      {R"({"name": "", "colour": "blue"})", "file: \"colour\" is \"blue\"; need one of red, green"},
      {R"({"name": "", "colour": "red", "count": 10})", "file: \"count\" is 10; need a whole number from 1 to 9"},
      {R"({"name": "", "colour": "red", "count": 1.5})", "file: \"count\" is number; need a whole number"},
      {R"({"name": "", "colour": "red", "count": 1, "points": 3})", "file: \"points\" is number; need an array"},
      {R"({"name": "", "colour": "red", "count": 1, "points": [{"x": 1}, {"at": 2}]})",
       "file: points 1: \"x\" is missing"},
      {R"({"name": "", "colour": "red", "count": 1, "points": [{"x": 1, "at": 2147483648}]})",
       "file: points 0: \"at\" is 2147483648; need a whole number from -2147483648 to 2147483647"},
  };
  for (const auto& [text, error] : cases)
    EXPECT_EQ(error_of([&, &text = text] { from_json(text); }).find(error), 0u)
        << error_of([&, &text = text] { from_json(text); });
}

TEST(Fields, Text) {
  TextFieldWriter writer;
  writer.line("drawing");
  Drawing d = made();
  fields(writer, d);
  const std::string text = writer.text();
  EXPECT_EQ(text,
            "drawing name \"a \\\"b\\\"\\n\" colour green dtype bf16 filled 0 count 4\npoints 2\n   x 0.5 at -1\n"
            "   x -2.0 at 300\n");
  const auto read = [](const std::string& s) {
    TextFieldReader reader(s);
    Drawing back;
    reader.line("drawing");
    fields(reader, back);
    reader.end();
    return back;
  };
  EXPECT_EQ(write_json(json_of(read(text))), write_json(json_of(d)));
  TextFieldWriter list;
  Order order{{1, 200}};
  fields(list, order);
  EXPECT_EQ(list.text(), " order [1, 200]\n");
  EXPECT_NE(error_of([&] { read(text + "1"); }).find("need the end of the text"), std::string::npos);
  EXPECT_NE(error_of([&] { read("drawing name \"\" colour 1"); }).find("need one of red, green"), std::string::npos);
  EXPECT_NE(error_of([&] { read("drawing\ntitle 3"); }).find("line 2: got \"title\"; need 'name'"), std::string::npos);
}

TEST(Fields, ValuesAsTexts) {
  uint64_t seed = 0;
  EXPECT_EQ(set_text("18446744073709551615", seed), "");
  EXPECT_EQ(text_of(seed), "18446744073709551615");
  EXPECT_EQ(set_text("-1", seed), "a whole number, 0 or more");
  bool on = true;
  EXPECT_EQ(set_text("no", on), "true or false");
  EXPECT_EQ(unfit(int64_t{-1}, kNotNegative), "a whole number, 0 or more");
  EXPECT_EQ(unfit(0.0, kPositive), "a number above 0");
  EXPECT_EQ(unfit(std::string("c"), {.words = "a,b"}), "one of a,b");
  EXPECT_EQ(unfit(1.0, {.least = 0, .most = 1, .below = true}), "a number from 0 to less than 1");
}

}  // namespace
}  // namespace weft::io
