// Text of messages and amounts, errors, counted handles, small vectors, hashes.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <thread>

#include "framework/base/error.h"
#include "framework/base/hash.h"
#include "framework/base/origin.h"
#include "framework/base/parse_number.h"
#include "framework/base/ref.h"
#include "framework/base/small_vec.h"
#include "framework/base/testing/error_of.h"
#include "framework/base/units.h"

namespace weft {
namespace {

TEST(Cat, JoinsAnything) {
  EXPECT_EQ(str_cat("a", 1, ' ', -2L, ' ', 3u, ' ', 0.5, ' ', true), "a1 -2 3 0.5 true");
  EXPECT_EQ(str_cat(std::vector<int64_t>{1, 2}, std::vector<std::string>{}), "[1, 2][]");
  EXPECT_EQ(str_cat(NAN, ' ', -INFINITY, ' ', 1e300), "nan -inf 1e+300");
  EXPECT_EQ(str_cat(INT64_MIN, ' ', UINT64_MAX), "-9223372036854775808 18446744073709551615");
}

TEST(Formatted, HasAnyLength) {
  EXPECT_EQ(formatted("%-4s%.2f s", "a", 0.125), "a   0.12 s");
  EXPECT_EQ(formatted("%s", std::string(5000, 'x').c_str()), std::string(5000, 'x'));
}

TEST(Error, MessagesAreLazyAndCarryACode) {
  int built = 0;
  auto text = [&] { return ++built; };
  WEFT_CHECK(true, text());
  EXPECT_EQ(built, 0);
  try {
    WEFT_CHECK_AS(kOutOfRange, 1 > 2, "op: got ", text());
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kOutOfRange);
    EXPECT_STREQ(e.what(), "op: got 1");
  }
  try {
    WEFT_BUG_IF(built == 1, "impossible");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::kInternal);
    EXPECT_NE(std::string(e.what()).find("base_test.cc"), std::string::npos);
  }
}

struct Counted : RefCounted {
  explicit Counted(int* alive) : alive(alive) { ++*alive; }
  ~Counted() override { --*alive; }
  int* alive;
};

TEST(Error, MessagesAreOneLineOfLimitedLength) {
  const auto message = [](const std::string& name) {
    return testing::error_of([&] { WEFT_CHECK(false, "tensor '", name, "' is missing"); });
  };
  EXPECT_EQ(message("a\nb\t\x1b[2J\x7f\xc3\xa9"), "tensor 'a\\nb\\t\\x1b[2J\\x7f\xc3\xa9' is missing");
  const std::string s = message(std::string(100'000, '\n'));
  EXPECT_EQ(s.size(), 4000u);
  EXPECT_TRUE(s.starts_with("tensor '\\n\\n") && s.ends_with("\\n' is missing")) << s;
  // A message with another before it.
  const std::string file = Error(Code::kDataLoss, "f.json: " + s + "\n").what();
  EXPECT_EQ(file.size(), 4000u);
  EXPECT_TRUE(file.starts_with("f.json: tensor '") && file.ends_with("is missing\\n")) << file;
}

TEST(Error, TheLineIsNamedOnce) {
  const auto message = [](const std::string& text) -> std::string {
    const internal::LineScope here(SourceLine("model.cc", 3));
    try {
      WEFT_CHECK(false, text);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(message("wrong"), "wrong; at model.cc:3");
  EXPECT_EQ(message("wrong at model.cc:3; need 2"), "wrong at model.cc:3; need 2");
  EXPECT_EQ(message("not as at model.cc:31"), "not as at model.cc:31; at model.cc:3");
}

TEST(Ref, LastHandleDeletes) {
  int alive = 0;
  {
    Ref<Counted> a = make_ref<Counted>(&alive), b = a, c;
    EXPECT_EQ(a->use_count(), 2);
    c = b;
    b = b;
    EXPECT_EQ(a->use_count(), 3);
    c = std::move(a);
    EXPECT_FALSE(a);
    EXPECT_EQ(c->use_count(), 2);
    Ref<RefCounted> base = c;
    c = nullptr;
    b = nullptr;
    EXPECT_EQ(alive, 1);
  }
  EXPECT_EQ(alive, 0);
}

TEST(Ref, ThreadsShareOneCount) {
  int alive = 0;
  Ref<Counted> a = make_ref<Counted>(&alive);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([a] {
      for (int i = 0; i < 10000; ++i) Ref<Counted> copy = a;
    });
  for (std::thread& t : threads) t.join();
  threads.clear();
  EXPECT_EQ(a->use_count(), 1);
  a = nullptr;
  EXPECT_EQ(alive, 0);
}

TEST(SmallVec, BehavesAsVector) {
  std::mt19937 random(1);
  using Item = std::shared_ptr<int>;  // asan and use_count() check construction and destruction
  Item item = std::make_shared<int>(7);
  {
    SmallVec<Item, 3> a;
    std::vector<Item> b;
    for (int i = 0; i < 2000; ++i) {
      switch (random() % 6) {
        case 0:
        case 1:
          a.push_back(item), b.push_back(item);
          break;
        case 2:
          if (!b.empty()) a.pop_back(), b.pop_back();
          break;
        case 3: {
          size_t n = random() % 8;
          a.resize(n), b.resize(n);
          break;
        }
        case 4: {
          SmallVec<Item, 3> copy = a;
          a = std::move(copy);
          break;
        }
        default: {
          SmallVec<Item, 3> moved = std::move(a);
          a = moved;
        }
      }
      ASSERT_EQ(a.size(), b.size());
      for (size_t k = 0; k < b.size(); ++k) ASSERT_EQ(a[k], b[k]);
    }
  }
  EXPECT_EQ(item.use_count(), 1);
  EXPECT_EQ((SmallVec<int, 2>{1, 2, 3}), (SmallVec<int, 2>{1, 2, 3}));
  EXPECT_FALSE((SmallVec<int, 2>{1, 2}) == (SmallVec<int, 2>{1, 3}));
}

TEST(ParseNumber, TheWholeTextIsANumberOfTheRange) {
  EXPECT_EQ(parse_number("65535", 1, 65535), 65535);
  EXPECT_EQ(parse_number<int64_t>("-3", -3, 0), -3);
  EXPECT_EQ(parse_number<int16_t>("-32768"), -32768);
  EXPECT_EQ(parse_number<double>("-2.5e3"), -2500);
  EXPECT_EQ(parse_number<double>("inf"), HUGE_VAL);
  EXPECT_FALSE(parse_number<double>("1e999"));
  EXPECT_FALSE(parse_number<int16_t>("32768"));
  for (const char* bad : {"", "0", "65536", "70000", "4294967297", "99999999999999999999", "1a", " 1", "+1", "1.0"})
    EXPECT_FALSE(parse_number(bad, 1, 65535)) << bad;
}

TEST(Hash, IsTheSameInEveryProcessAndSeesOrder) {
  EXPECT_EQ(hash_text("weft"), hash_text(std::string("we") + "ft"));
  EXPECT_NE(hash_text("ab"), hash_text("ba"));
  EXPECT_NE(hash_text(""), hash_text(std::string_view("\0", 1)));
  EXPECT_NE(hash_combine(hash_combine(0, 1), 2), hash_combine(hash_combine(0, 2), 1));
  EXPECT_NE(hash_combine(0, 0), 0u);
}

TEST(Units, AmountsOfAnySizeKeepTheirDigits) {
  EXPECT_EQ(seconds_text(0.000619), "619 us");
  EXPECT_EQ(seconds_text(2), "2 s");
  EXPECT_EQ(seconds_text(0), "0 us");
  EXPECT_EQ(seconds_text(1e6), "1000000 s");
  EXPECT_EQ(seconds_text(1.5e30), "1.5e+30 s");
  EXPECT_EQ(seconds_text(5.1234e299), "5.12e+299 s");
  EXPECT_EQ(seconds_text(1e-9), "0.001 us");
  EXPECT_EQ(seconds_text(1e-300), "1e-294 us");
  EXPECT_EQ(bytes_text(283000), "283 KB");
  EXPECT_EQ(bytes_text(1.05e300), "1.05e+285 PB");
  EXPECT_EQ(flops_text(INFINITY), "inf PFLOP");
}

}  // namespace
}  // namespace weft
