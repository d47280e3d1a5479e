// The measured rates of this machine have the order of every machine's rates; no number of seconds is asserted.
#include "compiler/cost/machine/rates.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <regex>

#include "compiler/cost/machine/kept_rates.h"
#include "compiler/cost/machine/machine_file.h"
#include "compiler/cost/machine/memory_rates.h"
#include "framework/base/switches.h"
#include "framework/base/testing/error_of.h"
#include "framework/base/thread_pool.h"
#include "framework/io/file.h"

namespace weft {
namespace {

using testing::error_of;

TEST(Rates, AreThoseOfAMachine) {
  for (int threads : {1, 2, 3, 48}) {
    ThreadPool pool(threads);
    const ScopedPool here(pool);
    const std::vector<MemoryRate> rates = measured_memory_rates(1);
    check_rates({.bytes = 1, .flops = 1, .products = 1, .products16 = 1, .memory_rates = rates});
    EXPECT_NEAR(rates.back().bytes, 128 << 20, 1 << 20) << threads;
  }
  const Machine m = measured_cpu(1);
  check_rates(m);
  EXPECT_EQ(m.bytes, m.memory_rates.back().copy);
  EXPECT_GT(m.launch, 0);
  Machine small = m;
  small.product_shares = measured_product_shares(m.launch, 1);
  check_rates(small);
  EXPECT_EQ(small.product_shares.front().side, 16);
  EXPECT_EQ(small.product_shares.back().side, 512);
}

TEST(Rates, TheFasterOfTwoIsFasterInEachRate) {
  const Machine a{.bytes = 2, .flops = 1, .products = 5, .products16 = 4, .launch = 3, .memory_rates = {{8, 1, 2, 3}}},
      b{.bytes = 1, .flops = 3, .products = 4, .products16 = 6, .launch = 2, .memory_rates = {{8, 3, 2, 1}}};
  const Machine m = faster_of(a, b);
  EXPECT_EQ(machine_to_json(m),
            machine_to_json(
                {.bytes = 2, .flops = 3, .products = 5, .products16 = 6, .launch = 2, .memory_rates = {{8, 3, 2, 3}}}));
  EXPECT_EQ(error_of([&] { faster_of(a, {}); }), "faster_of: got rates of 1 and 0 working sets; need the same sets");
}

TEST(Rates, AFileReplacesTheMeasurement) {
  const std::string path = str_cat(std::getenv("TEST_TMPDIR"), "/machine.json");
  std::ofstream(path) << R"({"name": "written", "like": "cpu", "bytes": 123e9})";
  set_switch("WEFT_MACHINE", path);
  EXPECT_EQ(rates_of(Device::cpu()).bytes, 123e9);
  EXPECT_EQ(rates_of(Device::cpu()).name, "written");
  set_switch("WEFT_MACHINE", "");
}

// Rates that a machine of these threads can have.
Machine possible(int threads) {
  Machine m{.bytes = 12e9, .flops = 1.0 / 3 * 1e11, .products = 2e11, .products16 = 5e11, .launch = 1.25e-6};
  for (const int64_t bytes : working_sets(threads))
    m.memory_rates.push_back({static_cast<double>(bytes), 3e9, 2e9, 1e9});
  m.memory_rates.back().copy = m.bytes;
  return m;
}

struct KeptRates : ::testing::Test {
  KeptRates() {
    set_switch("WEFT_CACHE", str_cat(std::getenv("TEST_TMPDIR"), "/",
                                     ::testing::UnitTest::GetInstance()->current_test_info()->name()));
  }
  ~KeptRates() override { set_switch("WEFT_CACHE", ""); }
  static std::string text(int threads) {
    const std::optional<internal::KeptRates> m = internal::kept_rates(threads);
    return m ? machine_to_json(m->rates) : "none";
  }
};

TEST_F(KeptRates, AreThoseThatWereMeasured) {
  EXPECT_EQ(text(3), "none");
  internal::keep_rates({possible(3)}, 3);
  EXPECT_EQ(text(3), machine_to_json(possible(3)));
  EXPECT_EQ(text(2), "none");                                       // another number of threads
  EXPECT_EQ(read_machine(internal::rates_path(3)).products, 2e11);  // a machine file as any other
  Machine again = possible(3);
  again.products = 3e11;
  internal::keep_rates({again}, 3);
  EXPECT_EQ(text(3), machine_to_json(again));
}

// rates_of() measures nothing: no machine has these rates.
TEST_F(KeptRates, ReplaceTheMeasurement) {
  EXPECT_FALSE(known_rates(Device::cpu()));
  internal::keep_rates({possible(threads_alone())}, threads_alone());
  EXPECT_EQ(known_rates(Device::cpu()).value().products, 2e11);
  EXPECT_EQ(rates_of(Device::cpu()).products, 2e11);
  EXPECT_EQ(rates_of(Device::cpu()).launch, 1.25e-6);
}

// Other processes only slow a measurement down: it is repeated, and the faster rates count, until it was not disturbed.
TEST_F(KeptRates, AreMeasuredAgainIfOtherProcessesRan) {
  int calls = 0;
  const auto rates = [&](double products, bool disturbed) {
    return internal::kept_or_measured(2,
                                      [&] {
                                        ++calls;
                                        internal::KeptRates measured{possible(2), disturbed};
                                        measured.rates.products = products;
                                        return measured;
                                      })
        .products;
  };
  EXPECT_EQ(rates(2e11, true), 2e11);
  EXPECT_EQ(rates(1e11, true), 2e11);
  EXPECT_EQ(rates(3e11, true), 3e11);
  EXPECT_EQ(internal::kept_rates(2).value().rates.products, 3e11);
  EXPECT_TRUE(internal::kept_rates(2)->disturbed);
  EXPECT_EQ(rates(2e11, false), 3e11);
  EXPECT_FALSE(internal::kept_rates(2)->disturbed);
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(rates(9e11, false), 3e11);
  EXPECT_EQ(calls, 4);
}

TEST_F(KeptRates, AFileThatLiesDoesNotCount) {
  internal::keep_rates({possible(2)}, 2);
  const std::string path = internal::rates_path(2), good = io::read_file(path);
  const auto with = [&](const std::string& pattern, const std::string& by) {
    std::string text = std::regex_replace(good, std::regex(pattern), by, std::regex_constants::format_first_only);
    EXPECT_NE(text, good) << pattern;
    return text;
  };
  EXPECT_NE(text(2), "none");
  for (const std::string& bad :
       {std::string(), std::string("[]"), std::string(100, '\0'), good.substr(0, good.size() / 2),
        good + std::string(1 << 17, ' '), with("2 threads", "3 threads"), with("version ", "version 9"),
        with("200000000000\\.0", "0.5"), with("200000000000\\.0", "-1"), with("200000000000\\.0", "1e300"),
        with("200000000000\\.0", "\"fast\""), with("12000000000\\.0", "11000000000.0"),
        with("\"memory_rates\"", "\"rates\""), with("\"launch\": [^,]*", "\"launch\": 5"),
        with("\"bytes\": 32768", "\"bytes\": 32000")}) {
    std::ofstream(path) << bad;
    EXPECT_EQ(text(2), "none") << bad.substr(0, 2000);
  }
  std::ofstream(path) << good;
  EXPECT_NE(text(2), "none");
}

TEST_F(KeptRates, AreNotKeptInAnUnsafeFolderOrWithoutOne) {
  const std::string folder = switch_value("WEFT_CACHE");
  io::make_folders(folder);
  ASSERT_EQ(::chmod(folder.c_str(), 0777), 0);
  for (const std::string& cache : {folder, std::string("off")}) {
    set_switch("WEFT_CACHE", cache);
    EXPECT_FALSE(internal::keeps_rates()) << cache;
    internal::keep_rates({possible(2)}, 2);
    EXPECT_EQ(text(2), "none") << cache;
  }
  EXPECT_EQ(io::list_folder(folder).size(), 0u);
}

}  // namespace
}  // namespace weft
