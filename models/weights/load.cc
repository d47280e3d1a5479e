#include "models/weights/load.h"

#include <algorithm>
#include <cstdlib>

#include "framework/base/clock.h"
#include "framework/base/one_line.h"
#include "framework/dispatch/state/state.h"
#include "framework/dispatch/state/stored_value.h"
#include "framework/io/file.h"
#include "models/weights/gguf.h"
#include "models/weights/progress.h"
#include "models/weights/shard.h"
#include "ops/core/creation.h"
#include "ops/core/pointwise.h"

namespace weft::weights {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

// The folder of the local cache with all models.
std::string cache_folder() {
  if (const std::string hub = variable("HF_HUB_CACHE"); !hub.empty()) return hub;
  if (const std::string home = variable("HF_HOME"); !home.empty()) return home + "/hub";
  return variable("HOME") + "/.cache/huggingface/hub";
}

constexpr int64_t kMostConfig = int64_t{16} << 20;  // bytes; tables of labels make the largest files

}  // namespace

std::string find_hf(const std::string& path) {
  const std::string here = io::resolve_path(path);
  if (io::is_folder(here)) {
    const bool checkpoint = io::exists(here + "/state.json");
    WEFT_CHECK_AS(kNotFound, io::exists(here + "/config.json"), here, ": no config.json; ",
                  checkpoint ? "it is a checkpoint of Weft: use --checkpoint, or --init_from of train"
                             : "need a folder that transformers wrote");
    return here;
  }
  if (io::exists(here)) {
    WEFT_CHECK(
        io::is_gguf(here), here,
        ": need a folder of transformers or a .gguf file; save_pretrained(folder) of transformers converts files "
        "of torch.save, .bin and .pt");
    return here;
  }
  const size_t slash = path.find('/');
  const bool is_name = slash != path.npos && slash > 0 && path.find('/', slash + 1) == path.npos && path[0] != '.';
  WEFT_CHECK_AS(kNotFound, is_name, here,
                ": no such file or folder; need a folder with config.json, a .gguf file, or org/name of the cache");
  const std::string model = str_cat(cache_folder(), "/models--", path.substr(0, slash), "--", path.substr(slash + 1));
  WEFT_CHECK_AS(kNotFound, io::exists(model + "/refs/main"), path, ": neither a folder nor a model in ", cache_folder(),
                "; download it first: Weft downloads nothing");
  std::string revision = io::read_file(model + "/refs/main", 200);
  while (!revision.empty() && (revision.back() == '\n' || revision.back() == ' ')) revision.pop_back();
  const bool is_hash = !revision.empty() && revision.find_first_not_of("0123456789abcdef") == revision.npos;
  WEFT_CHECK_AS(kDataLoss, is_hash, model, "/refs/main: '", one_line(revision, 60), "' is not a revision");
  const std::string folder = model + "/snapshots/" + revision;
  WEFT_CHECK_AS(kNotFound, io::is_folder(folder), folder, ": no such folder; download ", path, " again");
  return folder;
}

HfModel open_hf(const std::string& path, int64_t context, std::string_view program) {
  HfModel m;
  m.folder = find_hf(path);
  const std::string config = m.config_path();
  if (!io::is_folder(m.folder)) {
    const io::GgufFile file(m.folder);
    m.config = read_gguf_config(file, context);
    m.source = gguf_source(file);
  } else {
    m.config = read_config(io::read_file(config, kMostConfig), config, For::kWeights, context);
  }
  WEFT_CHECK(program.empty() || m.config.family->program == program, config, ": field 'model_type' is '",
             m.config.kind->model_type, "'; use the programs of //models/", m.config.family->program);
  if (!m.source) {
    if (!io::exists(m.folder + "/model.safetensors") && !io::exists(m.folder + "/model.safetensors.index.json"))
      for (const char* other : {"pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.safetensors"})
        WEFT_CHECK_AS(kNotFound, !io::exists(m.folder + "/" + other), m.folder, ": the weights are in ", other,
                      "; need model.safetensors: save_pretrained() of transformers writes it");
    m.source = open_safetensors(m.folder);
  }
  with_names(m.config, config,
             [&] { check_layers(*m.source, *m.config.family, number(m.config.config, "layers", nn::kLayers)); });
  return m;
}

namespace {

void release_all(const WeightSource& source, const CellPlan& plan) {
  for (const Piece& piece : plan.pieces) source.release(piece.source);
}

class StoredWeights final : public StoredValue {
 public:
  StoredWeights(std::shared_ptr<const WeightSource> source, CellPlan plan)
      : source_(std::move(source)), plan_(std::move(plan)) {}
  void read(const Cell& cell, const TensorPart& part, void* to) override {
    for (const Piece& whole : plan_.pieces)
      for (const Piece& piece : pieces_in(whole, plan_.shape, part)) copy_piece(*source_, piece, cell.type.dtype, to);
    release_all(*source_, plan_);
  }

 private:
  const std::shared_ptr<const WeightSource> source_;
  const CellPlan plan_;
};

// The memory of the file that is the value of a cell, or null.
const void* in_place(const WeightSource& source, const CellPlan& plan, const CellHandle& cell) {
  if (plan.pieces.size() != 1 || cell.device() != Device::cpu() || cell.numel() == 0) return nullptr;
  const Piece& p = plan.pieces[0];
  const WeightInfo info = *source.find(p.source);
  const bool same = p.keeps_places() && info.dtype == cell.dtype() && info.shape == cell.shape();
  return same ? source.in_place(p.source) : nullptr;
}

// The value of a cell, verified.
Tensor value_of(const std::shared_ptr<const WeightSource>& source, const CellPlan& plan, const CellHandle& cell,
                Values values) {
  if (const void* data = values == Values::kInPlace ? in_place(*source, plan, cell) : nullptr) {
    release_all(*source, plan);
    return Tensor::from_blob(const_cast<void*>(data), cell.shape(), cell.dtype(), [source](void*) {});
  }
  const Tensor value = Tensor::empty({cell.dtype(), Device::cpu(), cell.shape()});
  for (const Piece& piece : plan.pieces) copy_piece(*source, piece, cell.dtype(), value.view_for_kernel().data);
  release_all(*source, plan);
  return value.to(cell.device());
}

}  // namespace

void set_cells(const std::shared_ptr<const WeightSource>& source, const std::vector<CellPlan>& plans,
               const NamedCells& cells, Values values) {
  NoGrad guard;
  if (values == Values::kLater) {
    for (size_t i = 0; i < plans.size(); ++i)
      internal::set_remote(cells[i].second.cell(), make_ref<StoredWeights>(source, plans[i]));
    return;
  }
  int64_t bytes = 0, done = 0;
  for (const auto& [name, cell] : cells) bytes += cell.numel() * itemsize(cell.dtype());
  Progress progress(source->path(), bytes, internal::now_ns());
  // Checksums are verified while values are made, which no cell gets before all are right. Where cells have values,
  // both together would need too much memory: the checksums come first there, and each value is set at once.
  const bool replaces = std::ranges::any_of(cells, [](const auto& cell) { return cell.second.materialised(); });
  if (replaces)
    for (const CellPlan& plan : plans)
      for (const Piece& piece : plan.pieces) {
        source->check(piece.source);
        source->release(piece.source);
      }
  std::vector<Tensor> made;
  for (size_t i = 0; i < plans.size(); ++i) {
    const CellHandle& handle = cells[i].second;
    Tensor value = value_of(source, plans[i], handle, values);
    if (replaces)
      handle.set(value);
    else
      made.push_back(std::move(value));
    done += handle.numel() * itemsize(handle.dtype());
    if (const std::string line = progress.line(done, internal::now_ns()); !line.empty()) internal::warn(line);
  }
  for (size_t i = 0; i < made.size(); ++i) cells[i].second.set(made[i]);
}

void load_weights(const HfModel& model, const NamedCells& cells, std::vector<std::string>* warnings, Values values) {
  std::vector<std::pair<std::string, Shape>> shapes;
  for (const auto& [name, cell] : cells) shapes.emplace_back(name, cell.shape());
  set_cells(model.source, plan_cells(*model.source, *model.config.family, model.config.config, shapes, warnings), cells,
            values);
}

}  // namespace weft::weights
