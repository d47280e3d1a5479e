#include "framework/cuda/libraries/dynamic_library.h"

#include <gtest/gtest.h>

#include "framework/cuda/libraries/library_places.h"

namespace weft::cuda {
namespace {

// The C library is the one shared library that every test machine has.
TEST(DynamicLibrary, OpensTheFirstThatExistsAndFillsTheTable) {
  DynamicLibrary library = {"libweft_no_such.so.7", "libm.so.6"};
  ASSERT_TRUE(library.open()) << library.why_not();
  EXPECT_EQ(library.name(), "libm.so.6");
  EXPECT_EQ(library.why_not(), "");
  EXPECT_EQ(library.path()[0], '/') << library.path();
  double (*cosine)(double) = nullptr;
  const WantedSymbol table[] = {{"cos", reinterpret_cast<void**>(&cosine)}};
  EXPECT_EQ(library.fill(table), "");
  ASSERT_NE(cosine, nullptr);
  EXPECT_EQ(cosine(0.0), 1.0);
}

TEST(DynamicLibrary, NamesWhatIsMissing) {
  DynamicLibrary library = {"libm.so.6"};
  void *a = nullptr, *b = &a, *c = &a;
  const WantedSymbol one[] = {{"cos", &a}, {"weft_no_such_function", &b}};
  EXPECT_EQ(library.fill(one), "libm.so.6 lacks weft_no_such_function");
  EXPECT_NE(a, nullptr);
  EXPECT_EQ(b, nullptr);
  const WantedSymbol two[] = {{"weft_first", &b}, {"weft_second", &c}, {"weft_third", &b}};
  EXPECT_EQ(library.fill(two), "libm.so.6 lacks weft_first and 2 more");
}

TEST(DynamicLibrary, SaysWhyNoneOpened) {
  DynamicLibrary one = {"libweft_no_such.so.7"};
  EXPECT_FALSE(one.open());
  EXPECT_EQ(one.why_not(), "libweft_no_such.so.7 was not found");
  EXPECT_EQ(one.path(), "");
  EXPECT_EQ(one.find("cos"), nullptr);
  void* target = &one;
  const WantedSymbol table[] = {{"cos", &target}};
  EXPECT_EQ(one.fill(table), "libweft_no_such.so.7 was not found");
  EXPECT_EQ(target, nullptr);

  DynamicLibrary two = {"libweft_a.so", "libweft_b.so"};
  EXPECT_EQ(two.why_not(), "none of libweft_a.so, libweft_b.so was found");
}

TEST(DynamicLibrary, AFileThatIsNoLibraryIsNamedAsSuch) {
  DynamicLibrary library = {"/proc/self/status"};
  EXPECT_FALSE(library.open());
  EXPECT_EQ(library.why_not().rfind("/proc/self/status cannot be opened (", 0), 0u) << library.why_not();
}

TEST(LibraryPlaces, WhatADriverRunsComesFirst) {
  const std::vector<std::string> any = library_places("nvrtc", ""), old = library_places("nvrtc", "", 12);
  ASSERT_GE(any.size(), 3u);
  EXPECT_EQ(any[0], "libnvrtc.so.13");
  EXPECT_EQ(old[0], "libnvrtc.so.12");
  EXPECT_EQ(any.size(), old.size());
  bool newer = false;  // from the first of a newer major on, all are newer
  for (const std::string& p : old) {
    const bool is = p.find(".so.13") != std::string::npos;
    EXPECT_TRUE(is || !newer) << p;
    newer |= is;
  }
  EXPECT_EQ(library_places("nvrtc", "/x/libnvrtc.so.13", 12), (std::vector<std::string>{"/x/libnvrtc.so.13"}));
}

}  // namespace
}  // namespace weft::cuda
