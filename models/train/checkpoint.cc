#include "models/train/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "framework/dispatch/state.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "framework/io/safetensors.h"

namespace weft::train {
namespace {

constexpr int64_t kFormat = 1;

// N of "step_N", or -1.
int64_t step_of(const std::string& name) {
  if (name.rfind("step_", 0) != 0) return -1;
  int64_t n = -1;
  const char* end = name.data() + name.size();
  auto r = std::from_chars(name.data() + 5, end, n);
  return r.ec == std::errc() && r.ptr == end && n >= 0 ? n : -1;
}

std::vector<int64_t> steps_in(const std::string& dir) {
  std::vector<int64_t> steps;
  if (io::is_folder(dir))
    for (const std::string& name : io::list_folder(dir))
      if (int64_t n = step_of(name); n >= 0 && io::exists(dir + "/" + name + "/state.json")) steps.push_back(n);
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::vector<io::NamedView> views(const NamedCells& cells, std::vector<Tensor>* alive) {
  NoGrad guard;
  std::vector<io::NamedView> v;
  for (auto& [name, cell] : cells) {
    alive->push_back(cell.value().to(Device::cpu()));
    v.push_back({name, alive->back().view_for_kernel()});
  }
  return v;
}

io::OrderedJson to_json(const std::map<std::string, std::string>& m) {
  io::OrderedJson j = io::OrderedJson::object();
  for (auto& [k, v] : m) j[k] = v;
  return j;
}

std::map<std::string, std::string> to_map(const io::Json& j, const std::string& what) {
  WEFT_CHECK_AS(kDataLoss, j.is_object(), what, ": not an object");
  std::map<std::string, std::string> m;
  for (auto& [k, v] : j.items()) {
    WEFT_CHECK_AS(kDataLoss, v.is_string(), what, ": '", k, "' is not a string");
    m[k] = v.get<std::string>();
  }
  return m;
}

}  // namespace

std::string save_checkpoint(const std::string& dir, const TrainState& state, const NamedCells& model,
                            const NamedCells& optimizer, int64_t keep) {
  const std::string path = str_cat(dir, "/step_", state.step);
  std::vector<Tensor> alive;
  std::vector<io::NamedView> model_views, optimizer_views;
  try {
    model_views = views(model, &alive);
    optimizer_views = views(optimizer, &alive);
  } catch (const Error& e) {
    throw Error(e.code(), str_cat(path, " was not written: ", e.what()));
  }
  io::make_folders(dir);
  io::remove_leftovers(dir);
  {
    io::AtomicFolder folder(path);
    io::write_safetensors_folder(folder.folder(), "model", model_views, {{"format", "pt"}});
    io::write_safetensors_folder(folder.folder(), "optimizer", optimizer_views);
    io::OrderedJson j;
    j["format"] = kFormat;
    j["step"] = state.step;
    j["samples"] = state.samples;
    j["metrics_bytes"] = state.metrics_bytes;
    j["seed"] = std::to_string(state.seed);
    j["loss_scale"] = state.loss_scale;
    j["good_steps"] = state.good_steps;
    j["family"] = state.family;
    j["model"] = to_json(state.model);
    j["run"] = to_json(state.run);
    io::write_file_atomic(folder.path("state.json"), io::write_json(j, 2) + "\n");
    folder.commit();
  }
  if (keep > 0) {
    std::vector<int64_t> steps = steps_in(dir);
    for (size_t i = 0; i + keep < steps.size(); ++i)
      if (steps[i] != state.step) io::remove_folder_at_once(str_cat(dir, "/step_", steps[i]));
  }
  return path;
}

std::string latest_checkpoint(const std::string& dir) {
  std::vector<int64_t> steps = steps_in(dir);
  return steps.empty() ? "" : str_cat(dir, "/step_", steps.back());
}

std::string find_checkpoint(const std::string& path) {
  if (io::exists(path + "/state.json")) return path;
  std::string found = latest_checkpoint(path);
  WEFT_CHECK_AS(kNotFound, !found.empty(), path,
                ": no checkpoint here; need a folder step_N with state.json, or a folder of those");
  return found;
}

TrainState read_state(const std::string& folder) {
  const std::string path = folder + "/state.json";
  io::Json j = io::parse_json(io::read_file(path, int64_t{64} << 20), path);
  int64_t format = io::json_get<int64_t>(j, "format", path);
  WEFT_CHECK_AS(kDataLoss, format == kFormat, path, ": format ", format, "; this program reads ", kFormat);
  TrainState s;
  s.step = io::json_get<int64_t>(j, "step", path);
  s.samples = io::json_get<int64_t>(j, "samples", path);
  s.metrics_bytes = io::json_get<int64_t>(j, "metrics_bytes", path);
  std::string seed = io::json_get<std::string>(j, "seed", path);
  auto r = std::from_chars(seed.data(), seed.data() + seed.size(), s.seed);
  WEFT_CHECK_AS(kDataLoss, r.ec == std::errc() && s.step >= 0 && s.samples >= 0 && s.metrics_bytes >= 0, path,
                ": bad numbers");
  s.loss_scale = io::json_get<double>(j, "loss_scale", path);
  s.good_steps = io::json_get<int64_t>(j, "good_steps", path);
  s.family = io::json_get<std::string>(j, "family", path);
  s.model = to_map(io::json_member(j, "model", path), path + ": model");
  s.run = to_map(io::json_member(j, "run", path), path + ": run");
  return s;
}

void load_cells(const std::string& folder, const std::string& stem, const NamedCells& cells, bool convert) {
  std::string path = folder + "/" + stem + ".safetensors";
  if (!io::exists(path)) path += ".index.json";
  io::SafetensorsModel file(path);
  std::vector<Tensor> values;
  for (auto& [name, cell] : cells) {
    WEFT_CHECK_AS(kNotFound, file.contains(name), path, ": no tensor '", name,
                  "'; the checkpoint belongs to another model or configuration");
    const io::TensorInfo& info = file.at(name);
    WEFT_CHECK(info.shape == cell.shape() && (convert || info.dtype == cell.dtype()), path, ": tensor '", name, "' is ",
               info.dtype, info.shape, "; need ", cell.type());
    Tensor t = Tensor::empty({info.dtype, Device::cpu(), cell.shape()});
    std::span<const std::byte> bytes = file.bytes(name);
    if (!bytes.empty()) std::memcpy(t.view_for_kernel().data, bytes.data(), bytes.size());
    values.push_back(t.to(cell.dtype()).to(cell.type().device));
  }
  WEFT_CHECK(file.names().size() == cells.size(), path, ": has ", file.names().size(), " tensors; need ", cells.size());
  for (size_t i = 0; i < cells.size(); ++i) cells[i].second.set(values[i]);
}

}  // namespace weft::train
