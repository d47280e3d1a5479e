// Damaged command lines of the trainers: each is accepted, or refused with one line on standard error that names the
// flag. Nothing is trained.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>

#include "framework/base/one_line.h"
#include "framework/base/switches.h"
#include "framework/testing/fuzz.h"
#include "models/gpt/config.h"
#include "models/train/options.h"

namespace weft::train {
namespace {

/// Collects the output to `stderr`. The descriptor stays, for the reports of sanitizers.
class Captured {
 public:
  Captured() : before_(stderr) { stderr = ::open_memstream(&text_, &size_); }
  ~Captured() {
    std::fclose(stderr);
    stderr = before_;
    std::free(text_);
  }
  /// The text since the last call.
  std::string take() {
    std::fflush(stderr);
    const std::string s(text_, size_);
    ::rewind(stderr);
    return s;
  }

 private:
  std::FILE* before_;
  char* text_ = nullptr;
  size_t size_ = 0;
};

TEST(OptionsFuzz, DamagedCommandLines) {
  const std::vector<std::string> seeds = {
      "--config\ngpt_tiny\n--data\nsynthetic\n--batch_size\n4\n--seq_len\n16\n--steps\n24\n--lr\n0.01\n--seed\n7",
      "--mesh\ndp2,tp2\n--batch_size=8\n--zero=2\n--forbid=allgather@dp:activations,allreduce@tp\n--show_plan",
      "--mesh=fsdp2,tp2,ep4(fsdp,tp)\n--batch_size=4\n--verify_numerics\n--numerics\neager\n--timeout\n90.5",
      "--mesh=dp2,cp2\n--cp\nring\n--cp_layout=headtail\n--seq_len=64\n--microbatches=2\n--batch_size=8\n--keep=0",
      "--dtype\nbf16\n--checkpoint_every\n100\n--eval_every=-1\n--warmup=0\n--sample\n0\n--threads=2\n--nocompile",
      "--config=gpt_tiny\n--set\nlayers=1,dropout=0.5\n--set=ffn=64\n--data=synthetic\n--microbatches=3",
      "--config=gpt_base\n--memory_budget=1000000000\n--weft_cache\noff\n--weft_debug=0\n--metrics=m.jsonl\n--"
      "resume"};
  TrainOptions all;
  std::vector<std::string> names;
  for (const Flag& flag : train_flags(all)) names.push_back("--" + flag.name);
  std::vector<std::string_view> words = {
      "\n",           "--",   "=",       "-",         "--no",       "true",        "false",
      "auto",         "list", "cuda:1",  "dp2",       "dp1048576",  "ep4(dp,tp)",  "tp3",
      "cp2",          "f16",  "heads=3", "synthetic", "--weft_isa", "--threads=2", "--plan=no.plan",
      "allgather@dp", "*@*",  "@",       ","};
  words.insert(words.end(), names.begin(), names.end());

  std::ostringstream help;
  std::streambuf* const out = std::cout.rdbuf(help.rdbuf());
  {
    Captured err;
    std::vector<std::pair<const char*, std::string>> switches;
    for (const weft::internal::Switch& s : all_switches()) switches.emplace_back(s.name, switch_value(s.name));
    auto read = [&](const std::string& text) {
      for (const auto& [name, value] : switches) set_switch(name, value);  // switches that the input before set
      std::vector<std::string> args{"train"};
      for (size_t at = 0; at <= text.size();) {
        const size_t end = std::min(text.find('\n', at), text.size());
        args.push_back(text.substr(at, end - at));
        at = end + 1;
      }
      std::vector<char*> argv;
      for (std::string& a : args) argv.push_back(a.data());
      TrainOptions o;
      const int code = run_program(static_cast<int>(argv.size()), argv.data(), "Trains.", train_flags(o), [&] {
        settle(gpt::family(), o);
        return 0;
      });
      help.str("");
      std::string line = err.take();
      if (code == 0) {
        EXPECT_EQ(line, "");
        return;
      }
      ASSERT_TRUE(line.starts_with("train: ") && line.back() == '\n') << line;
      line = line.substr(7, line.size() - 8);
      // Code 1: a file that a flag names cannot be read.
      EXPECT_TRUE(code == 2 || code == 1) << code;
      EXPECT_TRUE(code == 1 || line.starts_with("WEFT_") || line.find("--") != line.npos) << line;
      EXPECT_EQ(line, one_line(line));
      throw Error(Code::kInvalidArgument, line);  // the rest is checked as it is of other messages
    };
    weft::testing::fuzz(
        {.seeds = seeds,
         .damage = [&](std::string& s, weft::testing::FuzzRandom& r) { weft::testing::damage_text(s, r, words); },
         .read = read,
         .names = ""});
  }
  std::cout.rdbuf(out);
}

TEST(Options, ALearningRateThatNoParameterHolds) {
  Captured err;
  std::vector<std::string> args{"train", "--lr=1e300"};
  std::vector<char*> argv;
  for (std::string& a : args) argv.push_back(a.data());
  TrainOptions o;
  EXPECT_EQ(run_program(2, argv.data(), "Trains.", train_flags(o), [] { return 0; }), 2);
  EXPECT_NE(err.take().find("--lr"), std::string::npos);
}

}  // namespace
}  // namespace weft::train
