#include "compiler/jit/jit.h"

#include <dlfcn.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <numeric>

#include "compiler/jit/cache.h"
#include "compiler/jit/elf.h"
#include "compiler/jit/host_compiler.h"
#include "framework/base/error.h"
#include "framework/base/hash.h"
#include "framework/base/mutex.h"
#include "framework/base/switches.h"
#include "framework/io/checksum.h"
#include "framework/io/file.h"

namespace weft::jit {

int usable_cores() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? std::clamp(CPU_COUNT(&set), 1, 64) : 1;
}

namespace {

constexpr uint64_t kFormat = 1;  // format of the text around a kernel; part of every key

// Kernels and failures of this process. Loaded kernels stay until the process ends.
struct KernelTable {
  Mutex mutex;
  std::map<Key, void*> functions WEFT_GUARDED_BY(mutex);
  std::vector<Cache::Inode> in_use WEFT_GUARDED_BY(mutex);
  std::map<std::string, std::string> given_up WEFT_GUARDED_BY(mutex);  // compilers that hung, with their messages
  std::map<std::string, int> waits WEFT_GUARDED_BY(mutex);             // compiler -> runs that reached the time limit
  std::map<Key, std::string> faults WEFT_GUARDED_BY(mutex);            // kernels that do not compile, with the error
  std::map<Key, std::string> slow WEFT_GUARDED_BY(mutex);  // kernels whose compilation reached the time limit
  Mutex building;                                          // held by the one thread that reads the disk or compiles
};
KernelTable& table() {
  static KernelTable* t = new KernelTable;
  return *t;
}

// One load() in progress. A kernel is identified by its position in the request.
struct Load {
  const KernelRequest& request;
  const JitOptions& options;
  HostCompiler compiler;
  std::vector<std::string> flags;
  std::vector<Key> keys;
  std::vector<size_t> first;     // first kernels with the same key
  std::vector<bool> faulty;      // does not compile
  std::vector<size_t> alone;     // their unit took too long, so they are compiled one by one
  std::unique_ptr<Cache> cache;  // null: off
  Loaded out;

  std::string symbol(size_t i) const { return str_cat(request.kernels[i].symbol, "_", io::hex64(keys[i].lo)); }
};

std::vector<size_t> missing(const Load& l) {
  std::vector<size_t> out;
  for (size_t i = 0; i < l.keys.size(); ++i)
    if (!l.out.functions[i] && l.first[i] == i && !l.faulty[i]) out.push_back(i);
  return out;
}

// ---- in this process ----

int64_t take_from_memory(Load& l) {
  int64_t found = 0;
  MutexLock lock(table().mutex);
  for (size_t i : missing(l))
    if (auto it = table().functions.find(l.keys[i]); it != table().functions.end()) {
      l.out.functions[i] = it->second;
      ++found;
    }
  return found;
}

// Opens a shared object and never closes it; null if that fails. If the file system is mounted noexec, it opens a copy.
void* open_object(const std::string& path) {
  if (!is_whole_object(path)) return nullptr;
  if (void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
  std::string bytes;
  try {
    bytes = io::read_file(path);
  } catch (const Error&) {
    return nullptr;
  }
  int fd = ::memfd_create("weft-kernels", MFD_CLOEXEC);
  if (fd < 0) return nullptr;
  void* handle = nullptr;
  // The descriptor stays open: for a known path, the loader returns the library that it has loaded.
  if (::write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()))
    handle = ::dlopen(str_cat("/proc/self/fd/", fd).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) ::close(fd);
  return handle;
}

// Looks up the functions of the kernels in an open object; false if one is missing.
bool take(Load& l, void* handle, const std::vector<size_t>& kernels, Cache::Inode inode) {
  bool all = true;
  MutexLock lock(table().mutex);
  table().in_use.push_back(inode);
  for (size_t i : kernels) {
    void* function = ::dlsym(handle, l.symbol(i).c_str());
    all &= function != nullptr;
    if (function) l.out.functions[i] = table().functions.emplace(l.keys[i], function).first->second;
  }
  return all;
}

// ---- on disk ----

int64_t take_from_disk(Load& l) {
  std::vector<size_t> wanted = missing(l);
  std::vector<Key> keys;
  for (size_t i : wanted) keys.push_back(l.keys[i]);
  int64_t found = 0;
  for (Cache::Object& object : l.cache->find(keys, l.out.damaged)) {
    void* handle = open_object(object.path);
    if (!handle) {
      // Removed in the meantime, or not loadable although its checksum is correct.
      for (size_t k : object.holds) l.cache->remove(keys[k]);
      continue;
    }
    for (size_t& k : object.holds) k = wanted[k];
    take(l, handle, object.holds, object.inode);
    for (size_t i : object.holds) found += l.out.functions[i] != nullptr;
  }
  return found;
}

// A folder for one run of the compiler, removed afterwards, and whether it is inside the cache.
struct CompilerFolder {
  std::unique_ptr<io::AtomicFolder> folder;  // never committed
  bool in_cache = false;
};

bool has_room(const std::string& folder, int64_t bytes) {
  struct statvfs fs;
  return ::statvfs(folder.c_str(), &fs) != 0 || static_cast<double>(fs.f_bavail) * fs.f_frsize >= bytes;
}

// Folders to work in, best first: inside the cache, publishing is a rename.
std::vector<std::string> workplaces(const Load& l) {
  std::vector<std::string> out;
  if (l.cache && !l.cache->folder().empty()) out.push_back(l.cache->folder());
  for (const char* variable : {"TEST_TMPDIR", "TMPDIR"})
    if (const char* folder = std::getenv(variable); folder && *folder == '/') out.push_back(folder);
  out.insert(out.end(), {"/tmp", "/dev/shm"});
  return out;
}

// The first of `places` that is writable and has enough space, or none. Removes the places that it tried.
CompilerFolder make_work(Load& l, std::vector<std::string>& places) {
  const std::string cache = l.cache ? l.cache->folder() : "";
  while (!places.empty()) {
    std::string place = places.front();
    places.erase(places.begin());
    const bool in_cache = place == cache;
    std::string why = "the disk is full";
    if (has_room(place, in_cache ? l.options.min_free_bytes : 1 << 20)) {
      try {
        if (in_cache) io::remove_leftovers(place);
        auto folder = std::make_unique<io::AtomicFolder>(place + "/weft-compile");
        // The folder was empty after other processes were locked out, so no process added a file.
        if (::chmod(folder->folder().c_str(), 0700) == 0 && io::list_folder(folder->folder()).empty())
          return {std::move(folder), in_cache};
        why = "it is not private";
      } catch (const Error& error) {
        why = error.what();
      }
    }
    if (in_cache) l.out.notes.push_back(str_cat("kernel cache: ", cache, " accepts no new kernels: ", why));
  }
  return {};
}

// ---- compiling ----

// The part of a translation unit that defines one kernel. Compilers report its errors as UNIQUE_SYMBOL:LINE.
void append_kernel(std::string& text, const Load& l, size_t i) {
  const Source& kernel = l.request.kernels[i];
  std::string symbol = l.symbol(i);
  text += str_cat("\n#define ", kernel.symbol, " ", symbol, "\nnamespace in_", symbol, " {\n#line 1 \"", symbol, "\"\n",
                  kernel.text, "\n}\n#undef ", kernel.symbol, "\n");
}

// Distributes kernels to units of about equal length, longest kernel first.
std::vector<std::vector<size_t>> split(const Load& l, std::vector<size_t> kernels) {
  const size_t n = std::min<size_t>(kernels.size(), l.options.units > 0 ? l.options.units : usable_cores());
  auto length = [&](size_t i) { return l.request.kernels[i].text.size(); };
  std::stable_sort(kernels.begin(), kernels.end(), [&](size_t a, size_t b) { return length(a) > length(b); });
  std::vector<std::vector<size_t>> units(n);
  std::vector<size_t> lengths(n, 0);
  for (size_t i : kernels) {
    size_t u = std::min_element(lengths.begin(), lengths.end()) - lengths.begin();
    units[u].push_back(i);
    lengths[u] += length(i) + 1;
  }
  return units;
}

// The first line that reports an error.
std::string error_line(const std::string& output) {
  for (size_t begin = 0; begin < output.size();) {
    size_t end = std::min(output.find('\n', begin), output.size());
    std::string line = output.substr(begin, end - begin);
    if (line.find("error:") != std::string::npos) return line;
    begin = end + 1;
  }
  return "";
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Writes a kernel with its prelude to a file that is not deleted.
std::string keep_source(const Load& l, size_t i) {
  std::string text = str_cat("// g++ ");
  for (const std::string& flag : l.flags) text += str_cat(flag, " ");
  text += str_cat("-c THIS_FILE\n", l.request.prelude, "\n", l.request.kernels[i].text, "\n");
  for (std::string folder :
       {switch_value("WEFT_DUMP"), std::string("TEST_TMPDIR"), std::string("TMPDIR"), std::string("/tmp")}) {
    if (folder == "TEST_TMPDIR" || folder == "TMPDIR") {
      const char* value = std::getenv(folder.c_str());
      folder = value ? value : "";
    }
    if (folder.empty()) continue;
    std::string path = str_cat(io::resolve_path(folder), "/weft-", l.symbol(i), ".cc");
    try {
      io::write_file_atomic(path, text);
      return path;
    } catch (const Error&) {
    }
  }
  return "(could not be written)";
}

// Reports a faulty kernel: throws, or adds a note and remembers it, so that later loads do not try again.
void at_fault(Load& l, size_t i, const std::string& why) {
  WEFT_CHECK_AS(kInternal, !l.options.faults_are_errors, why, "; this is a bug in Weft");
  l.faulty[i] = true;
  l.out.notes.push_back(str_cat(why, "; it is interpreted: this is a bug in Weft"));
  MutexLock lock(table().mutex);
  table().faults.emplace(l.keys[i], l.out.notes.back());
}

// Returns the error of the compiler; empty if a kernel is at fault.
std::string blame(Load& l, const Unit& unit, const std::vector<size_t>& kernels) {
  std::string line = error_line(unit.output);
  const bool internal_error = line.find("internal compiler error") != std::string::npos;
  const std::string named = line.substr(0, line.find(':'));
  // For an error inside a template of the prelude, the lines around it name the kernel.
  size_t guilty = kernels[0], earliest = std::string::npos;
  bool known = named == "prelude";
  for (size_t i : kernels) {
    const size_t at = unit.output.find(l.symbol(i));
    if (at < earliest) guilty = i;
    earliest = std::min(earliest, at);
    known |= named == l.symbol(i);
  }
  if (known && !internal_error) {
    at_fault(l, guilty,
             str_cat("kernel ", l.request.kernels[guilty].symbol, " does not compile: ", line, "; its source is in ",
                     keep_source(l, guilty)));
    return "";
  }
  std::string said = line.empty() ? first_line(unit.output) : line;
  return str_cat("the compiler ", l.compiler.path, " ", unit.failure, said.empty() ? "" : ": ", said,
                 internal_error ? str_cat("; the source is in ", keep_source(l, guilty)) : "");
}

// Reports a kernel whose compilation reached the time limit.
void too_slow(Load& l, size_t i, const std::string& failure) {
  l.faulty[i] = true;
  l.out.notes.push_back(
      str_cat("kernel ", l.request.kernels[i].symbol, " is interpreted: the compiler ", l.compiler.path, " ", failure));
  MutexLock lock(table().mutex);
  table().slow.emplace(l.keys[i], l.out.notes.back());
}

// Chooses the next attempt after a round in which units reached the time limit. A process gives a compiler up after
// kMostWaits such rounds, or at once if every one of several kernels reached the limit alone.
void give_up_or_isolate(Load& l, const std::vector<std::vector<size_t>>& parts, const std::vector<Unit>& units) {
  constexpr int kMostWaits = 4;
  std::string failure;
  bool all_alone = parts.size() > 1;
  for (size_t u = 0; u < parts.size(); ++u) {
    if (!units[u].timed_out) {
      all_alone = false;
      continue;
    }
    failure = units[u].failure;
    if (parts[u].size() == 1) {
      too_slow(l, parts[u][0], failure);
    } else {
      all_alone = false;
      l.alone.insert(l.alone.end(), parts[u].begin(), parts[u].end());
    }
  }
  if (failure.empty()) return;
  MutexLock lock(table().mutex);
  if (++table().waits[l.compiler.path] < kMostWaits && !all_alone) return;
  l.out.unavailable = str_cat("the compiler ", l.compiler.path, " ", failure);
  table().given_up[l.compiler.path] = l.out.unavailable;
}

// The result of one run of the compiler in a work folder. The files of each round have new names, because for a known
// path, the loader returns the library that it has loaded.
enum class Round { kDone, kAgain, kNoRoom };
Round compile_round(Load& l, CompilerFolder& work, int round, const std::vector<std::vector<size_t>>& parts) {
  bool again = false;
  std::vector<Unit> units;
  for (size_t u = 0; u < parts.size(); ++u) {
    const std::string name = str_cat(u, round ? str_cat("_", round) : "");
    Unit unit{work.folder->path(name + ".cc"), work.folder->path(name + ".so"), "", "", false};
    std::string text = str_cat("#line 1 \"prelude\"\n", l.request.prelude);
    for (size_t i : parts[u]) append_kernel(text, l, i);
    // Not written through io: these files do not outlive this call, so they need no sync.
    FILE* file = std::fopen(unit.source.c_str(), "we");
    const bool written = file && std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if ((file && std::fclose(file) != 0) || !written) return Round::kNoRoom;
    units.push_back(std::move(unit));
  }
  compile(l.compiler, l.flags, units, work.folder->folder(),
          l.options.time_limit > 0 ? l.options.time_limit : static_cast<double>(switch_int("WEFT_CXX_SECONDS")));
  for (const Unit& unit : units)
    if (!unit.failure.empty() && unit.output.find("No space left") != std::string::npos) return Round::kNoRoom;

  for (size_t u = 0; u < units.size(); ++u) {
    Unit& unit = units[u];
    std::string path = unit.object;
    void* handle = nullptr;
    if (unit.failure.empty()) {
      handle = open_object(path);
      if (!handle) unit.failure = "created a file that cannot be loaded";
    }
    if (unit.failure.empty() && !take(l, handle, parts[u], inode_of(path)))
      unit.failure = "created a file without the kernels";
    if (unit.timed_out) continue;
    if (!unit.failure.empty()) {
      std::string why = blame(l, unit, parts[u]);
      again |= why.empty() && parts[u].size() > 1;
      if (l.out.unavailable.empty()) l.out.unavailable = why;
      continue;
    }
    l.out.compiled += static_cast<int64_t>(parts[u].size());
    if (!work.in_cache) continue;
    std::vector<Key> keys;
    for (size_t i : parts[u]) keys.push_back(l.keys[i]);
    try {
      l.cache->store(path, keys);
    } catch (const Error& error) {
      l.out.notes.push_back(error.what());
    }
  }
  give_up_or_isolate(l, parts, units);
  return again && l.out.unavailable.empty() ? Round::kAgain : Round::kDone;
}

// One attempt in one work folder. If a kernel of a unit is faulty, the rest of the unit is compiled again without it.
// Returns false if the folder is out of space.
bool compile_in(Load& l, CompilerFolder& work) {
  constexpr int kRounds = 8;  // after this many rounds with faults, all remaining kernels count as faulty
  int round = 0;
  for (Round r = Round::kAgain; r == Round::kAgain; ++round) {
    std::vector<size_t> kernels = missing(l);
    std::erase_if(kernels, [&](size_t i) { return std::find(l.alone.begin(), l.alone.end(), i) != l.alone.end(); });
    if (kernels.empty()) break;
    if (round == kRounds) {
      for (size_t i : kernels)
        at_fault(l, i, str_cat("kernel ", l.request.kernels[i].symbol, " was compiled with faulty ones"));
      break;
    }
    r = compile_round(l, work, round, split(l, kernels));
    if (r == Round::kNoRoom) return false;
  }
  for (size_t done = 0; done < l.alone.size() && l.out.unavailable.empty(); ++round) {
    std::vector<std::vector<size_t>> parts;
    for (; done < l.alone.size() && parts.size() < static_cast<size_t>(usable_cores()); ++done)
      parts.push_back({l.alone[done]});
    if (compile_round(l, work, round, parts) == Round::kNoRoom) return false;
  }
  return true;
}

void compile_missing(Load& l) {
  {
    MutexLock lock(table().mutex);
    if (auto it = table().given_up.find(l.compiler.path); it != table().given_up.end()) {
      l.out.unavailable = it->second;
      return;
    }
  }
  std::vector<std::string> places = workplaces(l);
  for (;;) {
    CompilerFolder work = make_work(l, places);
    const bool in_cache = work.in_cache;
    if (!work.folder) {
      l.out.unavailable = "there is no folder to compile in; need TMPDIR, /tmp or /dev/shm with free space";
      return;
    }
    if (compile_in(l, work)) {
      std::vector<Cache::Inode> in_use;
      {
        MutexLock lock(table().mutex);
        in_use = table().in_use;
      }
      if (in_cache) l.cache->shrink(l.options.max_bytes, in_use);
      return;
    }
    if (in_cache)
      l.out.notes.push_back(str_cat("kernel cache: ", l.cache->folder(), " accepts no new kernels: the disk is full"));
  }
}

// The cache that `options` selects; null if it is off.
std::unique_ptr<Cache> open_cache(const JitOptions& options, std::vector<std::string>& notes) {
  const bool asked = !options.cache.empty() || !switch_value("WEFT_CACHE").empty();
  std::string folder = options.cache.empty() ? default_cache() : options.cache;
  if (folder == "off") {
    if (!asked)
      notes.push_back("kernel cache: neither XDG_CACHE_HOME nor HOME is set; kernels are kept in memory only");
    return nullptr;
  }
  auto cache = std::make_unique<Cache>(io::resolve_path(folder), asked);
  if (!cache->note().empty()) notes.push_back(cache->note());
  return cache;
}

}  // namespace

std::string default_cache() {
  if (std::string value = switch_value("WEFT_CACHE"); !value.empty()) return value;
  auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value && *value == '/' ? value : "");
  };
  if (std::string folder = variable("TEST_TMPDIR"); !folder.empty()) return folder + "/weft-kernels";
  if (std::string folder = variable("XDG_CACHE_HOME"); !folder.empty()) return folder + "/weft/kernels";
  if (std::string folder = variable("HOME"); !folder.empty()) return folder + "/.cache/weft/kernels";
  return "off";
}

Loaded load(const KernelRequest& request, const JitOptions& options) {
  const auto begin = std::chrono::steady_clock::now();
  Load l{request, options, {}, {}, {}, {}, {}, {}, {}};
  l.out.functions.resize(request.kernels.size());
  l.cache = open_cache(options, l.out.notes);
  l.compiler = find_compiler(options.compiler, l.cache ? l.cache->folder() : "");
  if (l.compiler.unavailable.empty()) {
    l.flags = kernel_flags(l.compiler, request.isa);
    l.flags.insert(l.flags.end(), request.flags.begin(), request.flags.end());
    Key base = continued({kFormat, kFormat}, l.compiler.version);
    for (const std::string& flag : l.flags) base = continued(base, flag);
    base = continued(base, request.prelude);
    std::map<Key, size_t> seen;
    for (const Source& kernel : request.kernels) {
      l.keys.push_back(continued(continued(base, kernel.symbol), kernel.text));
      l.first.push_back(seen.emplace(l.keys.back(), l.first.size()).first->second);
    }
    l.faulty.resize(l.keys.size());
    for (size_t i = 0; i < l.keys.size(); ++i) {
      MutexLock lock(table().mutex);
      for (const auto* list : {&table().faults, &table().slow}) {
        auto known = list->find(l.keys[i]);
        if (known == list->end() || l.first[i] != i || (list == &table().faults && options.faults_are_errors)) continue;
        l.faulty[i] = true;
        l.out.notes.push_back(known->second);
      }
    }
    l.out.from_memory = take_from_memory(l);
    if (!missing(l).empty()) {
      MutexLock lock(table().building);
      l.out.from_memory += take_from_memory(l);
      if (l.cache) l.out.from_disk = take_from_disk(l);
      if (!missing(l).empty()) compile_missing(l);
    }
    for (size_t i = 0; i < l.first.size(); ++i) {
      if (l.first[i] == i) continue;
      l.out.functions[i] = l.out.functions[l.first[i]];
      l.out.from_memory += l.out.functions[i] != nullptr;
    }
  } else if (!request.kernels.empty()) {
    l.out.unavailable = l.compiler.unavailable;
  }
  l.out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return std::move(l.out);
}

CompilerStatus status(const JitOptions& options) {
  CompilerStatus s;
  std::vector<std::string> notes;
  std::unique_ptr<Cache> cache;
  // A status query must not create the folder.
  const std::string folder = options.cache.empty() ? default_cache() : options.cache;
  const bool absent = folder != "off" && !io::exists(io::resolve_path(folder));
  try {
    if (!absent) cache = open_cache(options, notes);
  } catch (const Error& error) {
    notes.push_back(error.what());
  }
  HostCompiler compiler = find_compiler(options.compiler, "");
  s.compiler = compiler.path;
  s.version = first_line(compiler.version);
  s.unavailable = compiler.unavailable;
  s.cache = absent ? io::resolve_path(folder) : cache && !cache->folder().empty() ? cache->folder() : "off";
  if (cache) std::tie(s.cache_bytes, s.cache_kernels) = cache->size();
  for (const std::string& note : notes) s.note = note;
  return s;
}

}  // namespace weft::jit
