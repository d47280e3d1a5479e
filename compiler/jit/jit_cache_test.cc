// The cache on disk: hits in other processes, damage, races, its size, and folders that it must not or cannot use.
#include <fcntl.h>
#include <signal.h>
#include <sys/statvfs.h>

#include "compiler/jit/cache.h"
#include "compiler/jit/jit.h"
#include "compiler/jit/testing/jit_test_support.h"

namespace weft::jit {
namespace {

void write_bytes(const std::string& path, const std::string& bytes) {
  int fd = ::open(path.c_str(), O_WRONLY | O_TRUNC | O_CREAT, 0600);
  ASSERT_GE(fd, 0);
  EXPECT_EQ(::write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  ::close(fd);
}

void set_age(const std::string& path, int64_t seconds) {
  timespec times[2];
  ::clock_gettime(CLOCK_REALTIME, &times[0]);
  times[0].tv_sec -= seconds;
  times[1] = times[0];
  EXPECT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

TEST(JitCache, AnotherProcessFindsTheKernels) {
  const JitOptions options{.cache = temporary("found"), .units = 2};
  EXPECT_EQ(status(options).cache, options.cache);
  EXPECT_FALSE(io::exists(options.cache)) << "looking makes no folder";
  KernelRequest request = adders(5000, 5);
  InChild r = load_in_child(request, options, 5000);
  EXPECT_EQ(r.compiled, 5) << r.to_string();
  EXPECT_TRUE(r.right);
  EXPECT_EQ(names_with(options.cache, ".so").size(), 5u);
  r = load_in_child(request, options, 5000);
  EXPECT_EQ(r.from_disk, 5) << r.to_string();
  EXPECT_EQ(r.compiled, 0);
  EXPECT_TRUE(r.right);
  // Some of these kernels and a new kernel.
  request.kernels.erase(request.kernels.begin(), request.kernels.begin() + 3);
  request.kernels.push_back(adder(5005, "adder5"));
  r = load_in_child(request, options, 5003);
  EXPECT_EQ(r.from_disk, 2) << r.to_string();
  EXPECT_EQ(r.compiled, 1);
  EXPECT_TRUE(r.right);
  EXPECT_EQ(status(options).cache_kernels, 6);
  EXPECT_GT(status(options).cache_bytes, 0);
  struct stat st;
  ASSERT_EQ(::stat(options.cache.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0700u);
}

TEST(JitCache, AnythingThatChangesTheCodeChangesTheKey) {
  const JitOptions options{.cache = temporary("keys")};
  KernelRequest request = adders(5100, 1);
  EXPECT_EQ(load_in_child(request, options, 5100).compiled, 1);
  KernelRequest other = request;
  other.prelude += "\n";
  EXPECT_EQ(load_in_child(other, options, 5100).compiled, 1);
  other = request;
  other.kernels[0].text += "\n";
  EXPECT_EQ(load_in_child(other, options, 5100).compiled, 1);
  if (best_isa() > Isa::baseline) {
    other = request;
    other.isa = best_isa();
    EXPECT_EQ(load_in_child(other, options, 5100).compiled, 1);
  }
  JitOptions with_other = options;
  with_other.compiler = fake_compiler("other_version", "exec g++ \"$@\"");
  EXPECT_EQ(load_in_child(request, with_other, 5100).compiled, 1);
  EXPECT_EQ(load_in_child(request, options, 5100).from_disk, 1);
}

TEST(JitCache, DamageIsFoundAndBuiltAgain) {
  const JitOptions options{.cache = temporary("damage"), .units = 1};
  KernelRequest request = adders(5200, 3);
  ASSERT_EQ(load_in_child(request, options, 5200).compiled, 3);
  const std::string entry = options.cache + "/" + names_with(options.cache, ".so")[1];
  const std::string good = io::read_file(entry);
  ASSERT_GT(good.size(), 200u);

  auto flipped = [&](size_t at) {
    std::string bytes = good;
    bytes[at] ^= 0x10;
    return bytes;
  };
  const std::vector<std::pair<const char*, std::string>> cases = {
      {"empty", ""},
      {"one byte", "x"},
      {"cut in the middle", good.substr(0, good.size() / 2)},
      {"last byte missing", good.substr(0, good.size() - 1)},
      {"one byte more", good + "x"},
      {"first byte", flipped(0)},
      {"code", flipped(good.size() / 2)},
      {"keys", flipped(good.size() - 32 - 20)},
      {"format", flipped(good.size() - 32)},
      {"size", flipped(good.size() - 24)},
      {"number of keys", flipped(good.size() - 16)},
      {"checksum", flipped(good.size() - 1)},
      {"text", std::string(5000, 'a')},
  };
  for (const auto& [what, bytes] : cases) {
    ASSERT_EQ(::unlink(entry.c_str()), 0);
    write_bytes(entry, bytes);
    InChild r = load_in_child(request, options, 5200);
    EXPECT_TRUE(r.right) << what << ": " << r.to_string();
    EXPECT_EQ(r.damaged, 1) << what << ": " << r.to_string();
    EXPECT_EQ(r.compiled, 1) << what;
    EXPECT_EQ(r.from_disk, 2) << what;
    r = load_in_child(request, options, 5200);
    EXPECT_EQ(r.from_disk, 3) << what << ": " << r.to_string();
  }

  // All links share the damage.
  write_bytes(options.cache + "/" + names_with(options.cache, ".so")[0], "damage of one");
  for (const std::string& name : names_with(options.cache, ".so")) write_bytes(options.cache + "/" + name, "all");
  InChild r = load_in_child(request, options, 5200);
  EXPECT_EQ(r.damaged, 3) << r.to_string();
  EXPECT_TRUE(r.right);
}

TEST(JitCache, AnEntryUnderTheNameOfAnotherIsNotBelieved) {
  const JitOptions options{.cache = temporary("swapped"), .units = 2};
  KernelRequest request = adders(5300, 2);
  ASSERT_EQ(load_in_child(request, options, 5300).compiled, 2);
  auto names = names_with(options.cache, ".so");
  ASSERT_EQ(names.size(), 2u);
  std::string a = options.cache + "/" + names[0], b = options.cache + "/" + names[1];
  ASSERT_EQ(::rename(a.c_str(), b.c_str()), 0);
  InChild r = load_in_child(request, options, 5300);
  EXPECT_EQ(r.damaged, 1) << r.to_string();
  EXPECT_EQ(r.compiled, 2);
  EXPECT_TRUE(r.right);
  // Links to other places are not followed; a folder is not an entry.
  ASSERT_EQ(::unlink(a.c_str()), 0);
  ASSERT_EQ(::symlink(b.c_str(), a.c_str()), 0);
  r = load_in_child(request, options, 5300);
  EXPECT_EQ(r.compiled, 1) << r.to_string();
  EXPECT_TRUE(r.right);
  ASSERT_EQ(::unlink(a.c_str()), 0);
  ASSERT_EQ(::mkdir(a.c_str(), 0700), 0);
  r = load_in_child(request, options, 5300);
  EXPECT_TRUE(r.right) << r.to_string();
  EXPECT_EQ(r.compiled, 1);
}

TEST(JitCache, ACheckedEntryThatIsNoLibraryIsBuiltAgain) {
  const JitOptions options{.cache = temporary("no_library"), .units = 1};
  KernelRequest request = adders(5400, 1);
  ASSERT_EQ(load_in_child(request, options, 5400).compiled, 1);
  std::string hex = names_with(options.cache, ".so")[0].substr(0, 32);
  Key key{std::stoull(hex.substr(0, 16), nullptr, 16), std::stoull(hex.substr(16), nullptr, 16)};
  ASSERT_EQ(key.hex(), hex);
  Cache cache(options.cache, true);
  write_bytes(options.cache + "/forged", "not a library");
  cache.store(options.cache + "/forged", std::span(&key, 1));
  InChild r = load_in_child(request, options, 5400);
  EXPECT_EQ(r.compiled, 1) << r.to_string();
  EXPECT_TRUE(r.right);
  EXPECT_EQ(load_in_child(request, options, 5400).from_disk, 1);
}

TEST(JitCache, ProcessesRace) {
  const JitOptions options{.cache = temporary("race")};
  KernelRequest request = adders(5500, 6);
  std::vector<Child> children;
  for (int i = 0; i < 5; ++i) children.emplace_back(request, options, 5500);
  for (Child& child : children) {
    InChild r = child.get();
    EXPECT_TRUE(r.right) << r.to_string();
    EXPECT_EQ(r.compiled + r.from_disk, 6);
    EXPECT_EQ(r.damaged, 0) << r.to_string();
  }
  EXPECT_EQ(load_in_child(request, options, 5500).from_disk, 6);
  EXPECT_EQ(names_with(options.cache, ".so").size(), 6u);
  for (const std::string& name : io::list_folder(options.cache))
    EXPECT_TRUE(contains(name, ".so") || contains(name, "compiler-")) << name;
}

TEST(JitCache, AProcessKilledInTheMiddleLeavesNothingWrong) {
  std::string mark = temporary("compiling");
  // The version of the real compiler: its kernels have the same keys.
  std::string slow = temporary("slow");
  io::write_file_atomic(
      slow, str_cat("#!/bin/sh\nif [ \"$1\" != --version ]; then touch ", mark, "; sleep 1000; fi\nexec g++ \"$@\"\n"));
  ::chmod(slow.c_str(), 0755);
  JitOptions options{.cache = temporary("killed"), .compiler = slow};
  KernelRequest request = adders(5600, 4);
  Child child(request, options, 5600);
  while (!io::exists(mark)) ::usleep(1000);
  ::kill(child.pid(), SIGKILL);
  EXPECT_EQ(child.get().signal, SIGKILL);
  auto leftovers = [&] {
    int n = 0;
    for (const std::string& name : io::list_folder(options.cache)) n += contains(name, "weft-compile");
    return n;
  };
  EXPECT_EQ(leftovers(), 2);  // the folder and its mark
  EXPECT_EQ(names_with(options.cache, ".so").size(), 0u);
  options.compiler = "g++";
  InChild r = load_in_child(request, options, 5600);
  EXPECT_TRUE(r.right) << r.to_string();
  EXPECT_EQ(r.compiled, 4);
  EXPECT_EQ(leftovers(), 0);
  // Its compiler is still asleep; end it by the path of its output.
  for (const std::string& pid : io::list_folder("/proc")) {
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    int fd = ::open(str_cat("/proc/", pid, "/cmdline").c_str(), O_RDONLY);
    char text[4096];
    ssize_t n = fd < 0 ? 0 : ::read(fd, text, sizeof text);
    if (fd >= 0) ::close(fd);
    if (n > 0 && contains(std::string(text, n), slow)) ::kill(-std::atoi(pid.c_str()), SIGKILL);
  }
}

TEST(JitCache, KilledAtAnyMoment) {
  const JitOptions options{.cache = temporary("killed_often")};
  KernelRequest request = adders(5700, 3);
  for (int i = 0; i < 12; ++i) {
    Child child(request, options, 5700);
    ::usleep(4000 * i);
    ::kill(child.pid(), SIGKILL);
    child.get();
  }
  InChild r = load_in_child(request, options, 5700);
  EXPECT_TRUE(r.right) << r.to_string();
  EXPECT_EQ(r.damaged, 0) << r.to_string();
  EXPECT_EQ(load_in_child(request, options, 5700).from_disk, 3);
}

TEST(JitCache, TheLeastRecentlyUsedGoFirst) {
  JitOptions options{.cache = temporary("bounded")};
  // Eight objects of one kernel each, the first used last.
  for (int i = 0; i < 8; ++i) {
    auto before = io::exists(options.cache) ? names_with(options.cache, ".so") : std::vector<std::string>();
    ASSERT_TRUE(load_in_child(adders(5800 + i, 1), options, 5800 + i).right);
    for (const std::string& name : names_with(options.cache, ".so"))
      if (std::find(before.begin(), before.end(), name) == before.end())
        set_age(options.cache + "/" + name, i == 0 ? 100 : 100000 - i * 1000);
  }
  CompilerStatus s = status(options);
  ASSERT_EQ(s.cache_kernels, 8);
  const int64_t each = s.cache_bytes / 8;
  // A hit makes an old object recent.
  EXPECT_EQ(load_in_child(adders(5803, 1), options, 5803).from_disk, 1);
  options.max_bytes = 3 * each + each / 2;
  EXPECT_EQ(load_in_child(adders(5808, 1), options, 5808).compiled, 1);
  s = status(options);
  EXPECT_EQ(s.cache_kernels, 3);
  EXPECT_LE(s.cache_bytes, options.max_bytes);
  for (int kept : {5800, 5803, 5808}) EXPECT_EQ(load_in_child(adders(kept, 1), options, kept).from_disk, 1) << kept;
  EXPECT_EQ(load_in_child(adders(5801, 1), options, 5801).compiled, 1);
}

TEST(JitCache, WhatThisProcessUsesStays) {
  JitOptions options{.cache = temporary("in_use"), .max_bytes = 1};
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(adds(load(adders(5900 + i, 1), options), 5900 + i));
  EXPECT_EQ(status(options).cache_kernels, 4);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(load_in_child(adders(5900 + i, 1), options, 5900 + i).from_memory, 1);
  // Another process does not use them.
  int64_t damaged = 0;
  Cache(options.cache, true).shrink(0, {});
  EXPECT_EQ(Cache(options.cache, true).find({}, damaged).size(), 0u);
  EXPECT_EQ(status(options).cache_kernels, 0);
  // Loaded functions still work.
  EXPECT_TRUE(adds(load(adders(5900, 1), options), 5900));
}

TEST(JitCache, TheCompilersVersionIsKept) {
  const JitOptions options{.cache = temporary("memo"), .compiler = "g++"};
  ASSERT_TRUE(load_in_child(adders(6000, 1), options, 6000).right);
  auto memos = names_with(options.cache, ".txt");
  if (memos.empty()) GTEST_SKIP() << "g++ is no program of its own here (a script or a launcher)";
  std::string memo = io::read_file(options.cache + "/" + memos[0]);
  EXPECT_TRUE(contains(memo, "g++")) << memo;
  for (const char* damage : {"", "0123456789abcdef\nfake version", "x"}) {
    write_bytes(options.cache + "/" + memos[0], damage);
    EXPECT_EQ(load_in_child(adders(6000, 1), options, 6000).from_disk, 1) << damage;
    EXPECT_EQ(io::read_file(options.cache + "/" + memos[0]), memo);
  }
}

// ---- folders ----

TEST(JitFolder, FoldersOpenToOthersAreRefused) {
  std::string folder = temporary("open");
  for (mode_t mode : {0777, 0770, 0755, 0710, 0702}) {
    ASSERT_TRUE(::mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST);
    ASSERT_EQ(::chmod(folder.c_str(), mode), 0);
    InChild r = load_in_child(adders(6100, 1), {.cache = folder}, 6100);
    EXPECT_TRUE(contains(r.text, folder + " is open to other users")) << r.text;
    EXPECT_TRUE(contains(r.text, "chmod 700")) << r.text;
    // A folder that the user did not name is not used and not changed.
    r = load_in_child(adders(6100, 1), {}, 6100, [&] {
      ::unsetenv("TEST_TMPDIR");
      ::setenv("XDG_CACHE_HOME", temporary("xdg").c_str(), 1);
      io::make_folders(temporary("xdg/weft"));
      if (!io::exists(temporary("xdg/weft/kernels")))
        (void)!::symlink(folder.c_str(), temporary("xdg/weft/kernels").c_str());
    });
    EXPECT_TRUE(r.right) << r.to_string();
    EXPECT_EQ(r.notes, 1);
    EXPECT_TRUE(contains(r.text, "in memory only")) << r.text;
    EXPECT_TRUE(io::list_folder(folder).empty());
  }
  ASSERT_EQ(::chmod(folder.c_str(), 0700), 0);
  // A private folder in a folder that anyone can write: another user could replace it.
  std::string outer = temporary("outer");
  io::make_folders(outer + "/inner");
  ASSERT_EQ(::chmod((outer + "/inner").c_str(), 0700), 0);
  ASSERT_EQ(::chmod(outer.c_str(), 0777), 0);
  InChild r = load_in_child(adders(6100, 1), {.cache = outer + "/inner"}, 6100);
  EXPECT_TRUE(contains(r.text, "which any user can write")) << r.text;
  ASSERT_EQ(::chmod(outer.c_str(), 01777), 0);
  r = load_in_child(adders(6100, 1), {.cache = outer + "/inner"}, 6100);
  EXPECT_TRUE(r.right) << r.to_string();
}

TEST(JitFolder, FoldersOfOthersAreRefused) {
  std::string folder = temporary("given");
  io::make_folders(folder);
  ::chmod(folder.c_str(), 0700);
  if (::chown(folder.c_str(), 12345, static_cast<gid_t>(-1)) != 0) {
    folder = "/usr";
    struct stat st;
    if (::stat("/usr", &st) != 0 || st.st_uid == ::geteuid()) GTEST_SKIP() << "no folder of another user here";
  }
  InChild r = load_in_child(adders(6200, 1), {.cache = folder}, 6200);
  EXPECT_TRUE(contains(r.text, "belongs to another user")) << r.text;
  std::string link = temporary("link_to_given");
  ASSERT_EQ(::symlink(folder.c_str(), link.c_str()), 0);
  r = load_in_child(adders(6200, 1), {.cache = link}, 6200);
  EXPECT_TRUE(contains(r.text, "belongs to another user")) << r.text;
}

TEST(JitFolder, ALinkToAFolderOfOnesOwnIsFollowed) {
  std::string folder = temporary("target"), link = temporary("link");
  ASSERT_EQ(::mkdir(folder.c_str(), 0700), 0);
  ASSERT_EQ(::symlink(folder.c_str(), link.c_str()), 0);
  EXPECT_TRUE(load_in_child(adders(6300, 1), {.cache = link}, 6300).right);
  EXPECT_EQ(names_with(folder, ".so").size(), 1u);
}

TEST(JitFolder, AFileIsNoFolder) {
  std::string path = temporary("a_file");
  write_bytes(path, "x");
  InChild r = load_in_child(adders(6400, 1), {.cache = path}, 6400);
  EXPECT_TRUE(contains(r.text, path + " is not a folder")) << r.text;
  r = load_in_child(adders(6400, 1), {.cache = path + "/below"}, 6400);
  EXPECT_TRUE(r.right) << r.to_string();
  EXPECT_TRUE(contains(r.text, "cannot be created")) << r.text;
}

TEST(JitFolder, AFolderThatCannotBeWrittenServesReaders) {
  const JitOptions options{.cache = temporary("read_only")};
  KernelRequest old = adders(6500, 2), fresh = adders(6510, 2);
  ASSERT_EQ(load_in_child(old, options, 6500).compiled, 2);
  ASSERT_EQ(::chmod(options.cache.c_str(), 0500), 0);
  // Root can write everywhere: become another user, who owns the folder.
  bool changed = ::geteuid() != 0;
  if (!changed && ::chown(options.cache.c_str(), 12345, 12345) == 0) {
    changed = true;
    for (const std::string& name : io::list_folder(options.cache))
      changed &= ::chown((options.cache + "/" + name).c_str(), 12345, 12345) == 0;
  }
  if (!changed) GTEST_SKIP() << "root that cannot give files away";
  auto become = [] {
    if (::geteuid() == 0 && (::setegid(12345) != 0 || ::seteuid(12345) != 0))
      internal::fail(Code::kUnavailable, "seteuid");
    ::setenv("TMPDIR", "/tmp", 1);
  };
  InChild r = load_in_child(old, options, 6500, become);
  if (contains(r.text, "seteuid") || contains(r.text, "cannot be created") || contains(r.text, "cannot be read"))
    GTEST_SKIP() << "another user cannot reach " << options.cache;
  EXPECT_EQ(r.from_disk, 2) << r.to_string();
  r = load_in_child(fresh, options, 6510, become);
  EXPECT_TRUE(r.right) << r.to_string();
  EXPECT_EQ(r.compiled, 2);
  EXPECT_TRUE(contains(r.text, "accepts no new kernels")) << r.text;
  EXPECT_EQ(names_with(options.cache, ".so").size(), 2u);
}

TEST(JitFolder, AFullDiskIsSaidAndWorkedAround) {
  const JitOptions options{.cache = temporary("full"), .min_free_bytes = INT64_MAX};
  InChild r = load_in_child(adders(6600, 2), options, 6600);
  EXPECT_TRUE(r.right) << r.to_string();
  EXPECT_TRUE(contains(r.text, "accepts no new kernels: the disk is full")) << r.text;
  EXPECT_EQ(names_with(options.cache, ".so").size(), 0u);
  // The compiler notices it only while it runs.
  std::string compiler = fake_compiler(
      "no_space", str_cat("case \"$*\" in *", temporary("full2"),
                          "*) echo 'fatal error: No space left on device'; exit 1;; esac\n", "exec g++ \"$@\""));
  r = load_in_child(adders(6600, 2), {.cache = temporary("full2"), .compiler = compiler}, 6600);
  EXPECT_TRUE(r.right) << r.to_string();
  EXPECT_TRUE(contains(r.text, "the disk is full")) << r.text;
}

TEST(JitFolder, WhereTheDefaultLies) {
  EXPECT_EQ(default_cache(),
            std::string(std::getenv("TEST_TMPDIR") ? std::getenv("TEST_TMPDIR") : "") + "/weft-kernels");
  // Runs in a child with its own environment; its result comes back as an error.
  auto found = [](FunctionRef<void()> set) {
    return std::string(load_in_child({}, {.cache = "off"}, 0, [&] {
                         for (const char* name : {"TEST_TMPDIR", "XDG_CACHE_HOME", "HOME"}) ::unsetenv(name);
                         set();
                         internal::fail(Code::kInternal, default_cache());
                       }).text);
  };
  EXPECT_EQ(found([] {}), "off");
  EXPECT_EQ(found([] { ::setenv("HOME", "/home/x", 1); }), "/home/x/.cache/weft/kernels");
  EXPECT_EQ(found([] {
              ::setenv("HOME", "/home/x", 1);
              ::setenv("XDG_CACHE_HOME", "/c", 1);
            }),
            "/c/weft/kernels");
  EXPECT_EQ(found([] { ::setenv("XDG_CACHE_HOME", "relative", 1); }), "off");
  EXPECT_EQ(found([] { ::setenv("WEFT_CACHE", "/w", 1); }), "/w");
  InChild r = load_in_child(adders(6700, 1), {}, 6700, [] {
    for (const char* name : {"TEST_TMPDIR", "XDG_CACHE_HOME", "HOME"}) ::unsetenv(name);
  });
  EXPECT_TRUE(r.right) << r.to_string();
  EXPECT_EQ(r.notes, 1);
  EXPECT_TRUE(contains(r.text, "neither XDG_CACHE_HOME nor HOME is set")) << r.text;
  // A folder that was asked for needs no note.
  EXPECT_EQ(load_in_child(adders(6700, 1), {.cache = "off"}, 6700).notes, 0);
}

}  // namespace
}  // namespace weft::jit
