#include "models/train/checkpoint.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>

#include "framework/base/parse_number.h"
#include "framework/dispatch/state/state.h"
#include "framework/dispatch/state/torn.h"
#include "framework/io/checksum.h"
#include "framework/io/fields/json_fields.h"
#include "models/save/in_parts.h"
#include "models/weights/load.h"

namespace weft::train {

template <class V>
void fields(V& v, TrainState& s) {
  v("step", s.step, io::kNotNegative), v("samples", s.samples, io::kNotNegative);
  v("state_view", s.state_view, {.least = 0, .in = io::In::kIfSet});
  v("seed", s.seed), v("loss_scale", s.loss_scale, io::kPositive), v("good_steps", s.good_steps, io::kNotNegative);
  v("family", s.family), v("model", s.model), v("run", s.run), v("tensors", s.tensors, io::if_set(0));
}

template <class V>
void fields(V& v, Origin& o) {
  v("source", o.source), v("config", o.config);
}

namespace {

constexpr int64_t kFormat = 1;
constexpr const char* kChecksum = "xxh3";

// N of "step_N", or -1.
int64_t step_of(const std::string& name) {
  if (!name.starts_with("step_")) return -1;
  const std::optional<int64_t> n = parse_number<int64_t>(std::string_view(name).substr(5), 0);
  return n && name == str_cat("step_", *n) ? *n : -1;
}

// The file of a checkpoint that has the tensors of STEM.
std::string tensors_path(const std::string& folder, const std::string& stem) {
  const std::string path = str_cat(folder, "/", stem, ".safetensors"), index = str_cat(path, io::kIndexEnding);
  return !io::exists(path) && io::exists(index) ? index : path;
}

// The file that a folder lacks to be a checkpoint, or "".
std::string missing_file(const std::string& folder) {
  for (const std::string& path : {state_path(folder), tensors_path(folder, "model")})
    if (!io::exists(path)) return io::base_name(path);
  return "";
}

std::vector<int64_t> steps_in(const std::string& dir) {
  std::vector<int64_t> steps;
  if (!io::is_folder(dir)) return steps;
  io::restore_folders(dir);
  for (const std::string& name : io::list_folder(dir))
    if (int64_t n = step_of(name); n >= 0 && missing_file(dir + "/" + name).empty()) steps.push_back(n);
  std::sort(steps.begin(), steps.end());
  return steps;
}

// state.json keeps the name that a flag had when the format was made.
constexpr const char* kMicrobatches[] = {"microbatches", "grad_accum"};

std::map<std::string, std::string> renamed(std::map<std::string, std::string> run, const char* from, const char* to) {
  if (auto entry = run.extract(from)) {
    entry.key() = to;
    run.insert(std::move(entry));
  }
  return run;
}

// The checksum of the fields of state.json without kChecksum; order and white space do not matter.
std::string checksum_of(io::Json j) {
  j.erase(kChecksum);
  return io::hex64(io::checksum(io::write_json(j)));
}

// Identifies the tensors of a checkpoint, so that files of two checkpoints are not combined.
std::string tensors_checksum(const io::SafetensorsModel& model) {
  std::string all;
  for (const io::SafetensorsFile& f : model.files()) all += io::hex64(f.header_checksum());
  return io::hex64(io::checksum(all));
}

// A tensor on meta, but the value of a tensor of bools, which misfit() reads.
Tensor checkable(const io::SafetensorsModel& file, const std::string& name) {
  const io::TensorInfo& info = file.at(name);
  if (info.dtype != kBool) return Tensor::empty({info.dtype, Device::meta(), info.shape});
  const Tensor t = Tensor::empty({info.dtype, Device::cpu(), info.shape});
  file.read(name, 0, info.nbytes(), t.view_for_kernel().data);
  return t;
}

void need_checkpoint_or_nothing(const std::string& path) {
  if (!io::exists(path)) return;
  const std::string missing = missing_file(path);
  WEFT_CHECK_AS(kFailedPrecondition, missing.empty(), path, " is not a checkpoint: it has no ", missing,
                "; move it away, or name another folder");
}

// Whether state.json is one that this program can have written: other programs may use its name.
bool is_written_here(const std::string& folder) {
  try {
    read_state(folder);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Throws if a folder step_N has the state of another step, which is not to be replaced.
void need_own_name(const std::string& path) {
  if (!io::exists(path)) return;
  try {
    read_state(path);
  } catch (const Error& e) {  // a damaged checkpoint is replaced
    if (e.code() == Code::kFailedPrecondition) throw;
  }
}

}  // namespace

std::string lock_path(const std::string& dir) { return dir + "/.lock"; }
std::string state_path(const std::string& folder) { return folder + "/state.json"; }
std::string origin_path(const std::string& folder) { return folder + "/origin.json"; }

void check_only_checkpoints(const std::string& dir) {
  if (!io::is_folder(dir)) return;
  for (const std::string& name : io::list_folder(dir))
    if (step_of(name) >= 0) need_checkpoint_or_nothing(dir + "/" + name);
}

namespace {

// The files of a checkpoint besides the tensors; the manifest state.json comes last.
void write_about(const io::AtomicFolder& folder, const TrainState& state, const AboutRun& about) {
  if (!about.origin.source.empty())
    io::write_file_atomic(origin_path(folder.folder()), io::write_json(io::json_of(about.origin), 2) + "\n");
  if (!about.tokenizer.empty()) io::make_folders(folder.path("tokenizer"));
  for (const auto& [name, content] : about.tokenizer) io::write_file_atomic(folder.path("tokenizer/" + name), content);
  if (!about.flags.empty()) io::write_file_atomic(folder.path("run.flags"), about.flags);
  TrainState written = state;
  written.run = renamed(state.run, kMicrobatches[0], kMicrobatches[1]);
  for (const char* stem : {"model", "optimizer"})
    written.tensors[stem] = tensors_checksum(io::SafetensorsModel(tensors_path(folder.folder(), stem)));
  io::OrderedJson j{{"format", kFormat}};
  io::add_fields(written, j);
  j[kChecksum] = checksum_of(io::parse_json(io::write_json(j), folder.folder()));
  io::write_file_atomic(state_path(folder.folder()), io::write_json(j, 2) + "\n");
}

}  // namespace

int64_t count_checkpoints(const std::string& dir) { return std::ssize(steps_in(dir)); }

void remove_old_checkpoints(const std::string& dir, int64_t newest, int64_t keep) {
  const std::vector<int64_t> steps = steps_in(dir);
  for (size_t i = 0; i + keep < steps.size(); ++i)
    if (const std::string old = str_cat(dir, "/step_", steps[i]); steps[i] != newest && is_written_here(old))
      io::remove_folder_at_once(old);
}

std::unique_ptr<AsyncSave> begin_checkpoint(const std::string& dir, const TrainState& state, const NamedCells& model,
                                            const NamedCells& optimizer, int64_t keep, io::FileLock* lock,
                                            const AboutRun& about, AsyncSave::Pace pace,
                                            const std::function<std::vector<std::string>()>& memory) {
  const int64_t most = memory ? INT64_MAX : int64_t{5} << 30;  // bytes of a file
  const std::string path = str_cat(dir, "/step_", state.step);
  using Folders = SaveInParts::Folders;
  const auto folder = std::make_shared<std::optional<io::AtomicFolder>>();  // in the first process (of each host)
  auto tensors = std::make_unique<SaveInParts>(
      "saving a checkpoint", path + " was not written: ", memory ? Folders::kEachHost : Folders::kOne);
  tensors->add("model.safetensors", model, {{"format", "pt"}}, most);
  tensors->add("optimizer.safetensors", optimizer, {}, most);
  const auto begin = [&] {
    need_checkpoint_or_nothing(path);
    if (!memory) need_own_name(path);
    io::make_folders(dir);
    if (lock) lock->renew();
    io::remove_leftovers(dir);
    if (memory) tensors->set_memory(memory());
    return folder->emplace(path).folder();
  };
  using Copies = SaveInParts::Copies;
  tensors->begin(begin, pace == AsyncSave::Pace::kFull ? Copies::kWaited : Copies::kQueued);
  const auto finish = [=, step = state.step]() -> std::string {
    write_about(**folder, state, about);
    if (lock) lock->renew();
    (*folder)->commit();
    folder->reset();
    try {
      if (keep > 0 && lock) lock->renew();
      if (keep > 0) remove_old_checkpoints(dir, step, keep);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  return std::make_unique<AsyncSave>(std::move(tensors), finish, pace);
}

std::string save_checkpoint(const std::string& dir, const TrainState& state, const NamedCells& model,
                            const NamedCells& optimizer, int64_t keep, io::FileLock* lock, const AboutRun& about) {
  const auto save = begin_checkpoint(dir, state, model, optimizer, keep, lock, about, AsyncSave::Pace::kFull);
  save->wait();
  WEFT_CHECK_AS(kFailedPrecondition, save->note().empty(), save->note());
  return str_cat(dir, "/step_", state.step);
}

std::string latest_checkpoint(const std::string& dir) {
  std::vector<int64_t> steps = steps_in(dir);
  return steps.empty() ? "" : str_cat(dir, "/step_", steps.back());
}

int64_t newest_step(const std::string& dir) {
  int64_t newest = -1;
  if (!io::is_folder(dir)) return newest;
  for (const std::string& name : io::list_folder(dir))
    if (const int64_t n = step_of(name); n > newest && missing_file(dir + "/" + name).empty()) newest = n;
  return newest;
}

std::string find_checkpoint(const std::string& path) {
  if (!io::exists(path) && io::is_folder(io::folder_of(path))) io::restore_folders(io::folder_of(path));
  if (io::exists(state_path(path))) return path;
  std::string found = latest_checkpoint(path);
  if (!found.empty()) return found;
  check_only_checkpoints(path);
  internal::fail(Code::kNotFound, str_cat(path,
                                          ": no checkpoint here; need a folder step_N with state.json and "
                                          "model.safetensors, or a folder of those"));
}

TrainState read_state(const std::string& folder) {
  const std::string path = state_path(folder);
  io::Json j = io::parse_json(io::read_file(path, int64_t{64} << 20), path);
  int64_t format = io::json_get<int64_t>(j, "format", path);
  WEFT_CHECK_AS(kDataLoss, format == kFormat, path, ": \"format\" is ", format, "; this program reads ", kFormat);
  if (j.contains(kChecksum))
    WEFT_CHECK_AS(kDataLoss, io::json_get<std::string>(j, kChecksum, path) == checksum_of(j), path,
                  ": the file is damaged or was edited: its checksum differs; remove \"", kChecksum,
                  "\" to read it as it is");
  TrainState s;
  // Earlier versions stored the length of the metrics file.
  io::read_fields(s, j, path, {"format", kChecksum, "metrics_bytes"},
                  "; the file is damaged, or a later version wrote it");
  s.run = renamed(std::move(s.run), kMicrobatches[1], kMicrobatches[0]);
  // The name decides which checkpoint is the newest, and which ones are old.
  const int64_t named = step_of(io::base_name(folder));
  WEFT_CHECK_AS(kFailedPrecondition, named < 0 || named == s.step, folder, " has the state of step ", s.step,
                "; need the name step_", s.step, ": rename the folder, or move it away");
  return s;
}

std::string record_of(const TrainState& state) {
  TrainState own = state;
  own.tensors.clear();  // they name the checkpoint from which this replica has resumed
  return io::write_json(io::json_of(own));
}

TrainState state_of(const std::string& record) {
  TrainState state;
  io::read_fields(state, io::parse_json(record, "the state of a replica"), "the state of a replica");
  return state;
}

Origin read_origin(const std::string& folder) {
  Origin origin;
  const std::string path = origin_path(folder);
  if (io::exists(path)) io::read_fields(origin, io::parse_json(io::read_file(path, int64_t{1} << 20), path), path);
  return origin;
}

std::string tokenizer_path(const std::string& folder) {
  const std::string path = folder + "/tokenizer", gguf = path + "/tokenizer.gguf";
  return io::exists(path + "/tokenizer.json") ? path : io::exists(gguf) ? gguf : "";
}

void check_tokenizer(const std::string& name, const TrainState& state, const std::string& folder) {
  const auto own = state.run.find("tokenizer_name");
  WEFT_CHECK(own == state.run.end() || own->second == name, state_path(folder), ": the run read its text with the ",
             "tokenizer ", own->second, ", and its file contains ", name, " now; need the file of the run");
}

std::string read_flags(const std::string& folder) {
  const std::string path = folder + "/run.flags";
  return io::exists(path) ? io::read_file(path, int64_t{1} << 20) : "";
}

std::string config_hash(const std::string& path) {
  const io::MappedFile file(path, /*reads=*/true);
  std::string first(static_cast<size_t>(std::min(file.size(), int64_t{16} << 20)), '\0');
  file.read(0, std::as_writable_bytes(std::span(first)));
  return io::hex64(io::checksum(first));
}

io::SafetensorsModel open_tensors(const std::string& folder, const std::string& stem, const TrainState& state) {
  io::SafetensorsModel file(tensors_path(folder, stem));
  if (const auto layers = state.model.find("layers"); stem == "model" && layers != state.model.end()) {
    std::set<std::string> blocks;
    for (const std::string& name : file.names())
      if (const size_t at = name.find('.', 7); name.starts_with("blocks.") && at != name.npos)
        blocks.insert(name.substr(7, at - 7));
    WEFT_CHECK_AS(kDataLoss, layers->second == str_cat(blocks.size()), state_path(folder),
                  ": \"model\": field 'layers' is '", layers->second, "', but ", file.path(), " has ", blocks.size(),
                  " blocks");
  }
  const auto checksum = state.tensors.find(stem);
  WEFT_CHECK_AS(kDataLoss, checksum == state.tensors.end() || tensors_checksum(file) == checksum->second, file.path(),
                ": the tensors do not belong to ", state_path(folder), "; the file comes from another checkpoint");
  return file;
}

void load_cells(const io::SafetensorsModel& file, const NamedCells& cells, bool convert, bool later) {
  const std::string& path = file.path();
  std::set<std::string_view> known;
  for (const auto& [name, cell] : cells) {
    WEFT_CHECK_AS(kNotFound, file.contains(name), path, ": no tensor '", name,
                  "'; the checkpoint belongs to another model or configuration");
    const io::TensorInfo& info = file.at(name);
    WEFT_CHECK(info.shape == cell.shape() && (convert || info.dtype == cell.dtype()), path, ": tensor '", name, "' is ",
               info.dtype, info.shape, "; need ", cell.type());
    known.insert(name);
  }
  for (const std::string& name : file.names())
    WEFT_CHECK(known.contains(name), path, ": tensor '", name,
               "' is unexpected; the checkpoint belongs to another model or configuration");
  std::vector<weights::CellPlan> plans;
  for (const auto& [name, cell] : cells) {
    const std::string problem = misfit(cell, checkable(file, name));
    WEFT_CHECK_AS(kDataLoss, problem.empty(), path, ": tensor '", name, "' ", problem);
    plans.push_back({.cell = name, .shape = cell.shape(), .pieces = {weights::same_piece(name, cell.shape())}});
  }
  weights::set_cells(weights::source_of(file), plans, cells,
                     later ? weights::Values::kLater : weights::Values::kCopied);
}

}  // namespace weft::train
