#include "distributed/comm/byte_stream.h"

#include <gtest/gtest.h>

namespace weft::dist::internal {
namespace {

TEST(ByteStream, ReadsWhatIsWritten) {
  ByteWriter<std::string> w;
  w.put(int32_t{-5});
  w.put_text("two words");
  w.put(2.5);
  w.append("rest");
  ByteReader r(w.bytes, "test");
  EXPECT_EQ(r.get<int32_t>(), -5);
  EXPECT_EQ(r.text(), "two words");
  EXPECT_EQ(r.get<double>(), 2.5);
  EXPECT_EQ(r.take(r.left()), "rest");
  EXPECT_EQ(r.left(), 0u);
}

TEST(ByteStream, NeverReadsBehindTheEnd) {
  ByteWriter<std::string> w;
  w.put(~uint64_t{0});  // a length
  for (size_t n = 0; n <= w.bytes.size(); ++n) {
    ByteReader r(std::string_view(w.bytes).substr(0, n), "test");
    try {
      r.text();
      ADD_FAILURE() << "read a text from " << n << " bytes";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), Code::kDataLoss);
      EXPECT_EQ(std::string(e.what()).rfind("test is malformed", 0), 0u) << e.what();
    }
  }
}

}  // namespace
}  // namespace weft::dist::internal
