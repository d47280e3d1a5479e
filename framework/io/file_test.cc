// Tests files: messages, mapping, and that atomic writes show all or nothing, also when the writer is killed.
#include "framework/io/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <thread>
#include <vector>

#include "framework/base/error.h"
#include "framework/io/mark.h"
#include "framework/io/zlib.h"

namespace weft::io {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string fresh_folder(const std::string& name) {
  std::string path = testing::TempDir() + "/file_test_" + name;
  remove_all(path);
  make_folders(path);
  return path;
}

template <class F>
void expect_error(Code code, const std::string& text, F&& f) {
  try {
    f();
    ADD_FAILURE() << "no error; expected: " << text;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_THAT(e.what(), HasSubstr(text));
  }
}

TEST(Path, Parts) {
  EXPECT_EQ(base_name("a/b/c"), "c");
  EXPECT_EQ(base_name("a/b/"), "b");
  EXPECT_EQ(base_name("/"), "/");
  EXPECT_EQ(folder_of("a/b/c"), "a/b");
  EXPECT_EQ(folder_of("a/b/"), "a");
  EXPECT_EQ(folder_of("c"), ".");
  EXPECT_EQ(folder_of("/c"), "/");
}

TEST(Path, ResolvesAgainstTheCallersFolder) {
  ::setenv("BUILD_WORKING_DIRECTORY", "/home/user", 1);
  EXPECT_EQ(resolve_path("x/y"), "/home/user/x/y");
  EXPECT_EQ(resolve_path("/x"), "/x");
  EXPECT_EQ(resolve_path(""), "");
  ::unsetenv("BUILD_WORKING_DIRECTORY");
  EXPECT_EQ(resolve_path("x/y"), "x/y");
}

TEST(Read, WholeAndMapped) {
  std::string dir = fresh_folder("read");
  std::string text(100'000, 'x');
  write_file_atomic(dir + "/a", text);
  write_file_atomic(dir + "/empty", "");
  EXPECT_EQ(read_file(dir + "/a"), text);
  EXPECT_EQ(read_file(dir + "/empty"), "");
  EXPECT_EQ(file_size(dir + "/a"), 100'000);
  MappedFile map(dir + "/a");
  MappedFile moved = std::move(map);
  EXPECT_EQ(moved.size(), 100'000);
  EXPECT_EQ(moved.bytes()[99'999], std::byte{'x'});
  moved.advise(MappedFile::Advice::kRandom);
  EXPECT_EQ(MappedFile(dir + "/empty").size(), 0);
  EXPECT_FALSE(read_file("/proc/self/status").empty());
}

TEST(Read, Errors) {
  std::string dir = fresh_folder("errors");
  expect_error(Code::kNotFound, "cannot read '" + dir + "/no': No such file or directory",
               [&] { read_file(dir + "/no"); });
  expect_error(Code::kInvalidArgument, "it is a folder; need a file", [&] { read_file(dir); });
  expect_error(Code::kInvalidArgument, "it is a folder; need a file", [&] { MappedFile m(dir); });
  expect_error(Code::kNotFound, "cannot write '" + dir + "/no/f'", [&] { write_file_atomic(dir + "/no/f", "x"); });
  expect_error(Code::kNotFound, "cannot list folder", [&] { list_folder(dir + "/no"); });
  expect_error(Code::kInvalidArgument, "need the name", [&] { write_file_atomic("", "x"); });
  write_file_atomic(dir + "/big", std::string(5000, 'x'));
  expect_error(Code::kResourceExhausted, "larger than 4096 bytes", [&] { read_file(dir + "/big", 4096); });
  expect_error(Code::kFailedPrecondition, "Not a directory", [&] { make_folders(dir + "/big/x"); });
  // Above the memory of the machine, with blocks on no disk.
  write_file_atomic(dir + "/sparse", "");
  std::filesystem::resize_file(dir + "/sparse", int64_t{1} << 40);
  const int64_t memory = int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  if (memory < int64_t{1} << 40)
    expect_error(Code::kResourceExhausted, "/sparse': it has 1099511627776 bytes, and the machine has ",
                 [&] { read_file(dir + "/sparse"); });
}

TEST(Read, PipesAndDevicesAreRefusedAtOnce) {
  std::string dir = fresh_folder("pipes");
  ASSERT_EQ(::mkfifo((dir + "/pipe").c_str(), 0600), 0);
  const std::string pipe = "'" + dir + "/pipe': it is a pipe; need a file";
  expect_error(Code::kInvalidArgument, "cannot read " + pipe, [&] { read_file(dir + "/pipe"); });
  expect_error(Code::kInvalidArgument, "cannot read " + pipe, [&] { MappedFile m(dir + "/pipe"); });
  expect_error(Code::kInvalidArgument, "cannot write " + pipe, [&] { write_file_atomic(dir + "/pipe", "x"); });
  expect_error(Code::kInvalidArgument, "cannot read '/dev/zero': it is a device", [&] { read_file("/dev/zero"); });
  expect_error(Code::kInvalidArgument, "cannot write '/dev/null': it is a device; need a file",
               [&] { write_file_atomic("/dev/null", "x"); });
  expect_error(Code::kInvalidArgument, "it is a folder; need a file", [&] { write_file_atomic(dir, "x"); });
  ASSERT_EQ(::symlink("/dev/null", (dir + "/link").c_str()), 0);
  expect_error(Code::kInvalidArgument, "it is a device; need a file", [&] { write_file_atomic(dir + "/link", "x"); });
  EXPECT_THAT(list_folder(dir), ElementsAre("link", "pipe"));
}

TEST(MappedFile, AReadOfAFileThatIsCutIsAnError) {
  const std::string dir = fresh_folder("cut"), path = dir + "/a";
  write_file_atomic(path, "0123456789");
  const MappedFile file(path, /*reads=*/true);
  std::array<char, 4> got{};
  const auto read = [&](int64_t begin) { file.read(begin, std::as_writable_bytes(std::span(got))); };
  read(6);
  EXPECT_EQ(std::string_view(got.data(), 4), "6789");
  std::filesystem::resize_file(path, 7);
  read(3);
  EXPECT_EQ(std::string_view(got.data(), 4), "3456");
  expect_error(Code::kDataLoss,
               path + ": the file had 10 bytes when it was opened and has 7 now; need a file that no program changes ",
               [&] { read(4); });
  write_file_atomic(path, "");  // another file with the name changes nothing
  read(3);
}

// A model may have more files than the first limit of a process.
TEST(MappedFile, ManyFilesStayOpen) {
  const std::string path = fresh_folder("many") + "/a";
  write_file_atomic(path, "a");
  struct rlimit before, low;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  low = before;
  low.rlim_cur = 64;
  if (before.rlim_max < 256) GTEST_SKIP() << "this process may open few files";
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<MappedFile> files;
  for (int i = 0; i < 128; ++i) files.emplace_back(path, /*reads=*/true);
  EXPECT_EQ(files.size(), 128u);
  files.clear();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(File, TmpfsIsInMemory) {
  if (exists("/dev/shm")) {
    EXPECT_TRUE(is_in_memory("/dev/shm"));
  }
  EXPECT_FALSE(is_in_memory("/proc"));
  EXPECT_FALSE(is_in_memory(fresh_folder("in_memory") + "/missing"));
}

TEST(FileLock, IsHeldByOneObjectAndNamesItsProcess) {
  std::string dir = fresh_folder("lock");
  const std::string path = dir + "/lock", holder = "runs/a is in use by process " + std::to_string(::getpid()) +
                                                   "; need a path that no other process uses";
  EXPECT_FALSE(FileLock::is_held(path));
  for (int i = 0; i < 2; ++i) {
    FileLock mine(path, "runs/a");
    EXPECT_TRUE(FileLock::is_held(path));
    expect_error(Code::kFailedPrecondition, holder, [&] { FileLock other(path, "runs/a"); });
    pid_t child = ::fork();
    if (child == 0) {
      try {
        FileLock other(path, "runs/a");
      } catch (const Error& e) {
        ::_exit(e.what() == holder ? 0 : 2);
      }
      ::_exit(1);
    }
    int status;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_FALSE(FileLock::is_held(path));
}

TEST(FileLock, LocksNoFileOfAnother) {
  const std::string dir = fresh_folder("foreign_lock"), target = dir + "/notes", link = dir + "/.lock";
  for (const char* text : {"a user's own text", "process 12 and more", "process "}) {
    write_file_atomic(target, text);
    expect_error(Code::kFailedPrecondition, "it is not a lock file of Weft", [&] { FileLock lock(target, dir); });
    std::filesystem::create_symlink(target, link);
    expect_error(Code::kInvalidArgument, "it is a symbolic link; need a file", [&] { FileLock lock(link, dir); });
    EXPECT_FALSE(FileLock::is_held(link));
    EXPECT_EQ(read_file(target), text);
    remove_all(link);
  }
}

TEST(FileLock, IsRenewedUnlessAnotherProcessHasUsedTheName) {
  const std::string dir = fresh_folder("renewed_lock"), path = dir + "/.lock";
  FileLock mine(path, "runs/a");
  mine.renew();
  remove_all(path);
  EXPECT_FALSE(FileLock::is_held(path));
  EXPECT_FALSE(mine.is_replaced());
  mine.renew();
  EXPECT_TRUE(FileLock::is_held(path));
  remove_all(path);
  {
    FileLock other(path, "runs/a");
    EXPECT_TRUE(mine.is_replaced());
    expect_error(Code::kFailedPrecondition, "runs/a is in use by process ", [&] { mine.renew(); });
  }
  expect_error(Code::kFailedPrecondition, "runs/a was removed while this process used it", [&] { mine.renew(); });
}

TEST(FileLock, AQueryRefusesNobody) {
  const std::string path = fresh_folder("query") + "/lock";
  std::atomic<bool> done{false};
  std::thread other([&] {
    while (!done) FileLock::is_held(path);
  });
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    try {
      FileLock mine(path, "runs/a");
    } catch (const Error&) {
      ++refused;
    }
  }
  done = true;
  other.join();
  EXPECT_EQ(refused, 0);
}

TEST(AtomicFile, AppearsAtCommitOnly) {
  std::string dir = fresh_folder("atomic");
  {
    AtomicFile f(dir + "/f");
    f.write("hello ");
    EXPECT_FALSE(exists(dir + "/f"));
    f.write("world");
    f.rewrite(0, std::as_bytes(std::span("J", 1)));
    f.commit();
  }
  EXPECT_EQ(read_file(dir + "/f"), "Jello world");
  {
    AtomicFile dropped(dir + "/f");
    dropped.write("lost");
  }
  EXPECT_EQ(read_file(dir + "/f"), "Jello world");
  EXPECT_THAT(list_folder(dir), ElementsAre("f"));
  ASSERT_EQ(::chmod((dir + "/f").c_str(), 0600), 0);  // the next content has the same readers
  write_file_atomic(dir + "/f", "new");
  struct stat st {};
  ASSERT_EQ(::stat((dir + "/f").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0600);
}

TEST(AtomicFile, PutsItsBytesIntoMemoryThatOthersHold) {
  const std::string dir = fresh_folder("memory");
  const int fd = ::memfd_create("state", MFD_CLOEXEC);
  const std::string memory = str_cat("/proc/self/fd/", fd);
  write_file_atomic(dir + "/f", "old");
  for (const bool commits : {false, true}) {
    AtomicFile f(dir + "/f", memory);
    f.resize(5);
    f.rewrite(0, std::as_bytes(std::span("bytes", 5)));
    EXPECT_EQ(read_file(dir + "/f"), "old");
    EXPECT_EQ(read_file(f.temporary()), "bytes");
    if (commits) f.commit();
  }
  EXPECT_THAT(list_folder(dir), ElementsAre("f"));
  EXPECT_EQ(std::filesystem::read_symlink(dir + "/f"), memory);
  EXPECT_EQ(read_file(dir + "/f"), "bytes");
  remove_all(dir);
  EXPECT_EQ(file_size(memory), 5);  // the name alone is gone
  expect_error(Code::kNotFound, "cannot write '/no/memory': No such file or directory",
               [&] { AtomicFile(dir + "/f", "/no/memory"); });
  ::close(fd);
}

TEST(AtomicFile, NoRoomIsOneSentenceAndLeavesNothing) {
  std::string dir = fresh_folder("room");
  write_file_atomic(dir + "/f", "old");
  pid_t child = ::fork();
  if (child == 0) {
    // A limit on file sizes simulates a full disk.
    ::signal(SIGXFSZ, SIG_IGN);
    rlimit limit{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    int result = 1;
    try {
      write_file_atomic(dir + "/f", std::string(5000, 'x'));
    } catch (const Error& e) {
      std::string want = "cannot write '" + dir + "/f': File too large";
      result = e.code() == Code::kResourceExhausted && e.what() == want ? 0 : 2;
    }
    ::_exit(result);
  }
  int status;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(list_folder(dir), ElementsAre("f"));
  EXPECT_EQ(read_file(dir + "/f"), "old");
}

TEST(AtomicFolder, AppearsAtCommitAndReplaces) {
  std::string dir = fresh_folder("folder");
  for (const char* text : {"one", "two"}) {
    AtomicFolder f(dir + "/step_1/");
    make_folders(f.path("sub"));
    write_file_atomic(f.path("sub/a"), text);
    f.commit();
    EXPECT_EQ(read_file(dir + "/step_1/sub/a"), text);
  }
  {
    AtomicFolder dropped(dir + "/step_1");
    write_file_atomic(dropped.path("b"), "lost");
  }
  EXPECT_THAT(list_folder(dir), ElementsAre("step_1"));
  EXPECT_THAT(list_folder(dir + "/step_1"), ElementsAre("sub"));
}

// A name that another program takes meanwhile keeps its owner, and nothing is left behind.
TEST(Atomic, RefusesANameThatIsTaken) {
  const std::string dir = fresh_folder("taken"), file = dir + "/file", folder = dir + "/folder";
  {
    AtomicFile a(file);
    a.write("new");
    AtomicFolder b(folder);
    write_file_atomic(b.path("new"), "new");
    write_file_atomic(file, "precious");
    make_folders(folder);
    expect_error(Code::kInvalidArgument, file + ": exists; need a new name", [&] { a.commit(Existing::kRefuse); });
    expect_error(Code::kInvalidArgument, folder + ": exists; need a new name", [&] { b.commit(Existing::kRefuse); });
  }
  EXPECT_EQ(read_file(file), "precious");
  EXPECT_THAT(list_folder(dir), ElementsAre("file", "folder"));
  EXPECT_THAT(list_folder(folder), ElementsAre());
  AtomicFolder c(dir + "/other");
  c.commit(Existing::kRefuse);
  EXPECT_TRUE(is_folder(dir + "/other"));
}

TEST(Leftovers, OfDeadProcessesGoThoseAtWorkStay) {
  std::string dir = fresh_folder("leftovers");
  pid_t child = ::fork();
  if (child == 0) {
    AtomicFolder f(dir + "/step_2");
    AtomicFile h(f.path("weights"));
    ::_exit(0);  // as if killed: nothing is cleaned up
  }
  int status;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(list_folder(dir).size(), 2u);  // the folder and its mark
  write_file_atomic(dir + "/notes.tmp-old", "a user's own file");
  {
    AtomicFolder mine(dir + "/step_3");
    AtomicFile also(dir + "/state");
    make_folders(dir + "/notes.tmp-1-2/a");  // a user's own folder with a name of this form
    EXPECT_EQ(remove_leftovers(dir), 1);
    EXPECT_TRUE(exists(mine.folder()));
    also.commit();
    mine.commit();
  }
  EXPECT_EQ(remove_leftovers(dir), 0);
  EXPECT_THAT(list_folder(dir), ElementsAre("notes.tmp-1-2", "notes.tmp-old", "state", "step_3"));
}

TEST(Leftovers, AReplacedFolderWithoutANewOneGetsItsNameBack) {
  std::string dir = fresh_folder("replaced");
  const std::string old = dir + "/step_1.old-7-0", file = dir + "/step_1/a";
  make_folders(old);
  write_file_atomic(old + "/a", "old");
  restore_folders(dir);
  EXPECT_THAT(list_folder(dir), ElementsAre("step_1.old-7-0"));  // not marked: a user's own folder
  set_mark(dir, "step_1.old-7-0");
  const int at_work = ::open(old.c_str(), O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(::flock(at_work, LOCK_EX), 0);
  restore_folders(dir);
  EXPECT_TRUE(exists(old));
  ::close(at_work);
  restore_folders(dir);
  EXPECT_EQ(read_file(file), "old");
  make_folders(old);
  write_file_atomic(old + "/a", "older");
  set_mark(dir, "step_1.old-7-0");
  make_folders(dir + "/step_1.old-notes");  // a user's own folder
  restore_folders(dir);
  EXPECT_THAT(list_folder(dir), ElementsAre("step_1", "step_1.old-notes"));
  EXPECT_EQ(read_file(file), "old");
  EXPECT_THAT(list_folder(dir + "/step_1"), ElementsAre("a"));
}

TEST(Gzip, RoundTripBoundsAndDamage) {
  std::string text;
  for (int i = 0; i < 50'000; ++i) text += std::to_string(i * 7919 % 1000) + "\n";
  for (const std::string& t : {text, std::string()}) {
    for (int level : {1, 6, 9}) EXPECT_EQ(gzip_decompress(gzip_compress(t, level), t.size(), "t"), t);
  }
  std::string z = gzip_compress(text);
  EXPECT_EQ(z, gzip_compress(text));
  expect_error(Code::kResourceExhausted, "gzip: big expands to more than 1000 bytes",
               [&] { gzip_decompress(z, 1000, "big"); });
  expect_error(Code::kDataLoss, "cut short", [&] { gzip_decompress(z.substr(0, z.size() / 2), 1 << 30, "half"); });
  expect_error(Code::kDataLoss, "damaged or not gzip", [&] { gzip_decompress("plain text", 100, "t"); });
  expect_error(Code::kDataLoss, "cut short", [&] { gzip_decompress("", 100, "t"); });
  // A file of several members, as cat and pigz make them.
  EXPECT_EQ(gzip_decompress(gzip_compress("one ", 1) + gzip_compress("", 1) + gzip_compress("two", 9), 7, "t"),
            "one two");
  expect_error(Code::kResourceExhausted, "more than 6 bytes",
               [&] { gzip_decompress(gzip_compress("one ", 1) + gzip_compress("two", 9), 6, "t"); });
  expect_error(Code::kDataLoss, "after its end", [&] { gzip_decompress(z + "x", 1 << 30, "t"); });
  z[z.size() / 2] ^= 0x40;
  EXPECT_THROW(gzip_decompress(z, 1 << 30, "t"), Error);
}

}  // namespace
}  // namespace weft::io
