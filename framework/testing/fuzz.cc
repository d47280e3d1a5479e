#include "framework/testing/fuzz.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "framework/base/error.h"

// A function of the sanitizers' run time; null without sanitizers.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace weft::testing {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSlower = 20;
#else
constexpr double kSlower = 1;
#endif
constexpr int kHang = 30;  // seconds

int64_t g_inputs = 0, g_only = -1;  // 0 and -1: not given
uint64_t g_seed = 1;

// ---- crashes and hangs ----
std::atomic<int64_t> g_current{-1};
char g_test[256];

void print_place(const char* what) {
  char text[512];
  const int n = std::snprintf(text, sizeof text,
                              "\nfuzz: %s at input %lld of %s; alone: --gtest_filter=%s --seed=%llu --only=%lld\n",
                              what, static_cast<long long>(g_current.load()), g_test, g_test,
                              static_cast<unsigned long long>(g_seed), static_cast<long long>(g_current.load()));
  (void)!::write(STDERR_FILENO, text, static_cast<size_t>(n));
}

constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
struct sigaction g_before[std::size(kSignals)];

// Reports the input and restores the handlers. Then the instruction runs again and has the signal's usual effect.
void on_crash(int signal) {
  print_place(strsignal(signal));
  for (size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &g_before[i], nullptr);
  if (signal == SIGABRT) ::raise(signal);
}

void on_tick(int) {
  static int64_t last = -2;
  static int same = 0;
  const int64_t now = g_current.load();
  same = now == last && now >= 0 ? same + 1 : 0;
  last = now;
  if (same < kHang) return;
  print_place("a hang");
  std::abort();
}

/// Catches signals and ticks while it exists.
class Watch {
 public:
  explicit Watch(const std::string& test) {
    std::snprintf(g_test, sizeof g_test, "%s", test.c_str());
    stack_.ss_sp = std::malloc(kStack);  // a reader that recurses too deeply has used up its own
    stack_.ss_size = kStack;
    ::sigaltstack(&stack_, &stack_before_);
    struct sigaction crash = {};
    crash.sa_handler = on_crash;
    crash.sa_flags = SA_ONSTACK;
    for (size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &crash, &g_before[i]);
    struct sigaction tick = {};
    tick.sa_handler = on_tick;
    tick.sa_flags = SA_RESTART;
    ::sigaction(SIGALRM, &tick, &tick_before_);
    const itimerval each_second{{1, 0}, {1, 0}};
    ::setitimer(ITIMER_REAL, &each_second, nullptr);
    if (__sanitizer_set_death_callback) __sanitizer_set_death_callback([] { print_place("a sanitizer's report"); });
  }
  ~Watch() {
    const itimerval never{};
    ::setitimer(ITIMER_REAL, &never, nullptr);
    ::sigaction(SIGALRM, &tick_before_, nullptr);
    for (size_t i = 0; i < std::size(kSignals); ++i) ::sigaction(kSignals[i], &g_before[i], nullptr);
    ::sigaltstack(&stack_before_, nullptr);
    std::free(stack_.ss_sp);
    if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(nullptr);
    g_current = -1;
  }

 private:
  static constexpr size_t kStack = size_t{1} << 16;
  stack_t stack_{}, stack_before_{};
  struct sigaction tick_before_;
};

// ---- one input ----
double cpu_seconds() {
  timespec t;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

std::string printable(std::string_view s, size_t most) {
  std::string out;
  for (char c : s.substr(0, most)) {
    char hex[8];
    std::snprintf(hex, sizeof hex, "\\x%02x", static_cast<unsigned char>(c));
    const bool plain = (c >= ' ' && c < 127 && c != '\\') || c == '\n';
    out += plain ? std::string(1, c) : std::string(hex);
  }
  return s.size() > most ? str_cat(out, "... (", s.size(), " bytes)") : out;
}

/// One line of limited length that names where.
void check_message(const Error& e, const std::string& names) {
  const std::string_view m = e.what();
  EXPECT_NE(e.code(), Code::kInternal) << m;
  EXPECT_GT(m.size(), 10u) << m;
  EXPECT_LE(m.size(), 4000u) << "a long message: " << printable(m, 3000);
  for (char c : m)
    if ((c >= 0 && c < ' ') || c == 127) {
      ADD_FAILURE() << "a control character in the message: " << printable(m, 1500);
      break;
    }
  EXPECT_NE(m.find(names), m.npos) << "the message does not name '" << names << "': " << m;
}

struct Outcome {
  bool valid = false;
  double seconds = 0;
};

Outcome read_one(const FuzzTarget& target, const std::string& input) {
  Outcome o;
  const double begin = cpu_seconds();
  try {
    target.read(input);
    o.valid = true;
  } catch (const Error& e) {
    check_message(e, target.names);
  } catch (const std::exception& e) {
    ADD_FAILURE() << "threw another exception than weft::Error: " << e.what();
  }
  o.seconds = cpu_seconds() - begin;
  return o;
}

/// The time limit for reading `bytes` bytes.
double seconds_allowed(const FuzzTarget& target, size_t bytes) {
  return kSlower * (target.seconds + 1e-6 * static_cast<double>(bytes));
}

std::string input_of(const FuzzTarget& target, int64_t i) {
  FuzzRandom random(g_seed * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(i));
  std::string input = target.seeds[random() % target.seeds.size()];
  if (random() % 16 == 0) {  // the beginning of one and the end of another
    const std::string& other = target.seeds[random() % target.seeds.size()];
    input = input.substr(0, random() % (input.size() + 1)) + other.substr(random() % (other.size() + 1));
  }
  target.damage(input, random);
  return input;
}

}  // namespace

void fuzz(const FuzzTarget& target) {
  const ::testing::TestInfo& test = *::testing::UnitTest::GetInstance()->current_test_info();
  Watch watch(str_cat(test.test_suite_name(), ".", test.name()));
  for (const std::string& seed : target.seeds) {
    EXPECT_TRUE(read_one(target, seed).valid) << "an undamaged input is refused: " << printable(seed, 2000);
    if (::testing::Test::HasFailure()) return;
  }
  const int64_t first = std::max<int64_t>(g_only, 0), last = g_only >= 0    ? g_only + 1
                                                             : g_inputs > 0 ? g_inputs
                                                                            : target.inputs;
  int64_t valid = 0, refused = 0;
  double longest = 0;
  for (int64_t i = first; i < last; ++i) {
    g_current = i;
    const std::string input = input_of(target, i);
    Outcome o = read_one(target, input);
    // Once more: the first time may include work that is done once.
    if (o.seconds > seconds_allowed(target, input.size())) {
      o = read_one(target, input);
      EXPECT_LE(o.seconds, seconds_allowed(target, input.size())) << "too slow for " << input.size() << " bytes";
    }
    longest = std::max(longest, o.seconds);
    ++(o.valid ? valid : refused);
    if (!::testing::Test::HasFailure()) continue;
    print_place("a failure");
    ADD_FAILURE() << "input " << i << ":\n" << printable(input, g_only >= 0 ? size_t{1} << 20 : 2000);
    return;
  }
  std::printf("fuzz: %lld inputs valid, %lld refused, the longest took %.3g s\n", static_cast<long long>(valid),
              static_cast<long long>(refused), longest);
  if (g_only >= 0) return;
  EXPECT_GT(valid, (last - first) / 200) << "nearly all inputs are refused: need less damage";
  EXPECT_GT(refused, (last - first) / 10) << "nearly all inputs are valid: need more damage";
}

FuzzFile::FuzzFile(const std::string& path) : path_(path), fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
  EXPECT_GE(fd_, 0);
  ::unlink(path.c_str());
  EXPECT_EQ(::symlink(str_cat("/proc/", static_cast<int64_t>(::getpid()), "/fd/", fd_).c_str(), path.c_str()), 0)
      << path;
}
FuzzFile::~FuzzFile() {
  ::close(fd_);
  ::unlink(path_.c_str());
}
void FuzzFile::set(std::string_view content) {
  ASSERT_EQ(::pwrite(fd_, content.data(), content.size(), 0), static_cast<ssize_t>(content.size()));
  ASSERT_EQ(::ftruncate(fd_, static_cast<off_t>(content.size())), 0);
}

}  // namespace weft::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    long long n = 0;
    if (std::sscanf(argv[i], "--inputs=%lld", &n) == 1 && n > 0) {
      weft::testing::g_inputs = n;
    } else if (std::sscanf(argv[i], "--seed=%lld", &n) == 1) {
      weft::testing::g_seed = static_cast<uint64_t>(n);
    } else if (std::sscanf(argv[i], "--only=%lld", &n) == 1 && n >= 0) {
      weft::testing::g_only = n;
    } else {
      std::fprintf(stderr, "fuzz: unknown flag %s; need --inputs=N, --seed=S or --only=I\n", argv[i]);
      return 2;
    }
  }
  return RUN_ALL_TESTS();
}
