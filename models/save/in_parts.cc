#include "models/save/in_parts.h"

#include <chrono>
#include <cstring>
#include <filesystem>
#include <set>

#include "framework/base/mutex.h"
#include "framework/dispatch/device/host_read.h"
#include "framework/dispatch/state/cell_access.h"
#include "framework/dispatch/state/state.h"
#include "framework/dispatch/state/stored_value.h"
#include "framework/dispatch/state/torn.h"
#include "framework/io/checksum.h"
#include "ops/core/indexing/view.h"
#include "ops/core/pointwise.h"

namespace weft {

using internal::JobProcesses;

namespace {

// The paths that saves of this process write. If two saves had one path, the older values could replace the newer ones.
struct PathsInUse {
  Mutex mutex;
  std::set<std::string> paths WEFT_GUARDED_BY(mutex);
};
PathsInUse& in_use() {
  static auto* const p = new PathsInUse;
  return *p;
}

class PathInUse {
 public:
  explicit PathInUse(const std::string& path) : path_(std::filesystem::absolute(path).lexically_normal().string()) {
    MutexLock lock(in_use().mutex);
    WEFT_CHECK_AS(kFailedPrecondition, in_use().paths.insert(path_).second, path,
                  ": an earlier save is writing this file; need its end: wait() of its handle");
  }
  PathInUse(const PathInUse&) = delete;
  ~PathInUse() {
    MutexLock lock(in_use().mutex);
    in_use().paths.erase(path_);
  }

 private:
  const std::string path_;
};

}  // namespace

// The files of one call of add().
struct SaveInParts::Files {
  struct Value {
    std::string name;
    CellHandle cell;
    Tensor tensor;  // if there is no cell
  };
  std::string path;
  std::vector<Value> values;
  io::Metadata metadata;
  int64_t max_file_bytes = INT64_MAX;
  std::string memory;  // in the first process (of each host): the file that gets the bytes; empty: a new file

  // Since begin().
  std::optional<io::SafetensorsLayout> layout;
  std::optional<PathInUse> in_use;              // in the first process (of each host)
  std::unique_ptr<io::SafetensorsFiles> files;  // in the first process (of each host)
  std::vector<std::string> paths;
  std::vector<Tensor> held;             // until read() is called
  HostRead reads;                       // the same values on the host
  std::vector<io::TensorPiece> pieces;  // `reads` has their memory

  // Since write().
  std::vector<uint32_t> shares;

  void hold(size_t tensor, const TensorPart& part, const Tensor& value) {
    const TensorType need{layout->tensors()[tensor].info.dtype, value.device(), part.shape()};
    WEFT_BUG_IF(value.type() != need, "the part of '", layout->tensors()[tensor].info.name, "' to save is ",
                value.type(), "; need ", need);
    held.push_back(value.contiguous());
    pieces.push_back({tensor, part, nullptr});
  }
  // Queues the copies from a device. Later work of the device may write the copied memory. `reads` holds values on the
  // host.
  void read() { reads = HostRead(std::exchange(held, {})); }
};

namespace {

// The shards of an owned cell that this process saves; nothing, if the first process saves the whole value.
std::optional<PartedValue::Own> own_parts(const Cell& cell, double share, bool each_host) {
  check_not_torn(cell);
  const auto* const parted = dynamic_cast<const PartedValue*>(cell.remote.get());
  return parted ? parted->own_parts(cell, share, each_host) : std::nullopt;
}

// Equal for layouts that have the same bytes besides tensors and checksums, in the same files.
std::string fingerprint(const io::SafetensorsLayout& layout) {
  const std::vector<uint32_t> no_checksums(layout.blocks());
  std::string text = layout.index();
  for (size_t f = 0; f < layout.files(); ++f) text += layout.header(f, no_checksums);
  return io::hex64(io::checksum(std::as_bytes(std::span(text))));
}

template <class T>
void append(std::string& text, const T& number) {
  text.append(reinterpret_cast<const char*>(&number), sizeof number);
}
template <class T>
T number_at(const std::string& text, size_t at) {
  T number;
  std::memcpy(&number, text.data() + at, sizeof number);
  return number;
}

}  // namespace

SaveInParts::SaveInParts(std::string what, std::string before, Folders folders)
    : what_(std::move(what)), before_(std::move(before)), folders_(folders) {}
SaveInParts::~SaveInParts() = default;

void SaveInParts::add(const std::string& path, const std::vector<std::pair<std::string, CellHandle>>& cells,
                      io::Metadata metadata, int64_t max_file_bytes) {
  all_.push_back(std::make_unique<Files>());
  Files& f = *all_.back();
  f.path = path, f.metadata = std::move(metadata), f.max_file_bytes = max_file_bytes;
  for (const auto& [name, cell] : cells) f.values.push_back({name, cell, {}});
}

void SaveInParts::add(const std::string& path, const std::map<std::string, Tensor>& values, io::Metadata metadata) {
  add(path, std::vector<std::pair<std::string, CellHandle>>(), std::move(metadata));
  for (const auto& [name, value] : values) all_.back()->values.push_back({name, {}, value});
}

// A value that is not sharded is the first process's, as the decisions of a program are. The first of n ranks with
// equal shards writes the first n-th of all bytes, and so on, so each has an equal part. Returns the facts that must be
// equal in all processes of a job.
JobProcesses::Facts SaveInParts::hold_values(Copies copies) {
  NoGrad guard;
  const bool first = is_first();
  JobProcesses::Facts facts;
  int64_t total = 0, before = 0;
  std::vector<std::pair<std::string, CellHandle>> cells;
  for (const auto& f : all_) {
    std::vector<io::TensorEntry> entries;
    for (const Files::Value& v : f->values) {
      WEFT_CHECK(v.cell.defined() || v.tensor.defined(), "the tensor '", v.name,
                 "' has no value; need a defined tensor");
      const TensorType type = v.cell.defined() ? v.cell.type() : v.tensor.type();
      entries.push_back({v.name, type.dtype, type.shape});
      total += type.nbytes();
      if (v.cell.defined()) cells.emplace_back(v.name, v.cell);
    }
    f->layout.emplace(f->path, entries, f->metadata, f->max_file_bytes);
  }
  struct Taken {
    std::optional<PartedValue::Own> own;
    Tensor whole;
  };
  std::vector<Taken> taken;  // in the order of the tensors; handles, so that steps of other threads hardly wait
  {
    const std::vector<Ref<Cell>> all = internal::ready_cells(cells, /*make=*/first, "save");
    const internal::CellsOwner at_once(all, "save");
    for (const auto& f : all_)
      for (const auto& [name, cell, tensor] : f->values) {
        Taken t{.own = {}, .whole = tensor};
        const double share = static_cast<double>(before) / static_cast<double>(total + 1);
        if (cell.defined()) t.own = own_parts(cell.cell(), share, folders_ == Folders::kEachHost);
        if (cell.defined() && !t.own && first) t.whole = internal::owned_value(cell.cell());
        before += (cell.defined() ? cell.type() : tensor.type()).nbytes();
        taken.push_back(std::move(t));
      }
  }
  auto next = taken.begin();
  const auto add_fact = [&](const auto& name, const auto&... value) {
    if (job_) facts.emplace_back(name, str_cat(value...));
  };
  add_fact("the number of files that a call saves", all_.size());
  for (const auto& f : all_) {
    add_fact("the number of tensors", f->values.size());
    for (size_t i = 0; i < f->values.size(); ++i) {
      const io::TensorInfo& info = f->layout->tensors()[i].info;
      const auto [own, whole] = std::move(*next++);
      add_fact(str_cat("the tensor '", f->values[i].name, "'"), info.dtype, info.shape,
               own ? " in parts " + own->placement : "");
      if (own)
        for (const ValuePart& p : own->parts) f->hold(i, p.part, p.value);
      else if (first)
        f->hold(i, TensorPart::all(info.shape), whole);
    }
    f->read();
    if (copies == Copies::kWaited) f->reads.wait();
  }
  return facts;
}

void SaveInParts::set_memory(const std::vector<std::string>& files) {
  for (size_t i = 0; i < files.size(); ++i) all_.at(i)->memory = files[i];
}

void SaveInParts::begin(const std::function<std::string()>& folder, Copies copies) {
  job_ = internal::job_processes();
  const bool each_host = folders_ == Folders::kEachHost;
  first_ = job_ && each_host ? job_->hosts()[static_cast<size_t>(job_->process())] : 0;
  one_host_ = !job_ || each_host || job_->on_one_host();
  JobProcesses::Facts facts;
  const auto make = [&] {
    try {
      const internal::NoOrigin within;  // the place is appended once
      facts = hold_values(copies);
    } catch (const Error& e) {
      internal::fail(e.code(), before_ + e.what());
    }
    std::string paths;  // each ends with a zero byte
    if (!is_first()) return paths;
    const std::string in = folder();
    for (const auto& f : all_) {
      f->in_use.emplace(in.empty() ? f->path : in + "/" + f->path);
      f->files = std::make_unique<io::SafetensorsFiles>(*f->layout, in, f->memory);
      for (const std::string& path : f->files->paths()) paths.append(path).push_back('\0');
    }
    return paths;
  };
  const std::string paths = job_ ? job_->on_all(what_, make)[static_cast<size_t>(first_)] : make();
  if (job_) {
    // Metadata, sizes of files, and the ends of long names, which the other facts lack.
    for (const auto& f : all_)
      facts.emplace_back(str_cat("the layout of ", io::base_name(f->path)), fingerprint(*f->layout));
    job_->check_equal(what_, facts,
                      "the same tensors and metadata, with the same types and placement, in all processes");
  }
  size_t at = 0;
  for (const auto& f : all_)
    for (size_t i = 0; i < f->layout->files(); ++i) {
      f->paths.emplace_back(paths.c_str() + at);
      at += f->paths.back().size() + 1;
    }
}

void SaveInParts::write(const std::function<void()>& pause) noexcept {
  try {
    for (const auto& f : all_) {
      const auto begin = std::chrono::steady_clock::now();
      const std::vector<Tensor>& values = f->reads.wait();
      copy_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      for (size_t i = 0; i < values.size(); ++i) f->pieces[i].data = values[i].view_for_kernel().data;
      f->shares = io::write_parts(*f->layout, f->paths, std::move(f->pieces), one_host_, pause);
      for (const Tensor& t : values) bytes_ += t.type().nbytes();
    }
  } catch (const Error& e) {
    error_ = e;
  } catch (const std::exception& e) {
    error_ = Error(Code::kInternal, e.what());
  }
  for (const auto& f : all_) f->reads = {};
}

// The bytes of this process, and the shares that are not 0 with the numbers of their blocks.
std::string SaveInParts::report() const {
  if (error_) internal::fail(error_->code(), error_->what());
  std::string text;
  append(text, bytes_);
  uint32_t block = 0;
  for (const auto& f : all_)
    for (const uint32_t share : f->shares) {
      if (share != 0) append(text, block), append(text, share);
      ++block;
    }
  return text;
}

void SaveInParts::join() {
  reports_ = job_ ? job_->on_all(what_, [&] { return report(); }) : std::vector{report()};
  if (folders_ == Folders::kOne || !job_) return;
  size_t process = 0;
  std::erase_if(reports_, [&](const std::string&) { return job_->hosts()[process++] != first_; });
}

void SaveInParts::name_files() {
  std::vector<uint32_t> shares;
  int64_t missing = 0;  // bytes that no process has written
  for (const auto& f : all_) {
    shares.resize(shares.size() + f->layout->blocks());
    for (const auto& t : f->layout->tensors()) missing += t.info.nbytes();
  }
  for (const std::string& text : reports_) {
    missing -= number_at<int64_t>(text, 0);
    for (size_t at = sizeof missing; at < text.size(); at += 8)
      shares[number_at<uint32_t>(text, at)] ^= number_at<uint32_t>(text, at + 4);
  }
  WEFT_BUG_IF(missing != 0, all_[0]->path, ": the processes have written ", -missing,
              " bytes more than the tensors have");
  auto next = shares.begin();
  for (const auto& f : all_) {
    const auto begin = std::exchange(next, next + static_cast<ptrdiff_t>(f->layout->blocks()));
    f->files->commit({begin, next});
  }
}

}  // namespace weft
