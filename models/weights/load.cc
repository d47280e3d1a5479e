#include "models/weights/load.h"

#include <cstdlib>

#include "framework/base/one_line.h"
#include "framework/dispatch/state/state.h"
#include "framework/io/file.h"
#include "models/weights/gguf.h"
#include "models/weights/pieces.h"
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
  if (io::is_folder(here) || (here.ends_with(".gguf") && io::exists(here))) return here;
  const size_t slash = path.find('/');
  const bool is_name = slash != path.npos && slash > 0 && path.find('/', slash + 1) == path.npos && path[0] != '.';
  WEFT_CHECK_AS(kNotFound, is_name, here,
                ": no such folder; need a folder with config.json, a .gguf file, or org/name of the cache");
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

HfModel open_hf(const std::string& path, int64_t context) {
  HfModel m;
  m.folder = find_hf(path);
  if (!io::is_folder(m.folder)) {
    const io::GgufFile file(m.folder);
    return {m.folder, m.folder, read_gguf_config(file, context), gguf_source(file)};
  }
  const std::string config = m.file = m.folder + "/config.json";
  WEFT_CHECK_AS(kNotFound, io::exists(config), m.folder, ": no config.json; need a folder that transformers wrote");
  m.config = read_config(io::read_file(config, kMostConfig), config, For::kWeights, context);
  if (!io::exists(m.folder + "/model.safetensors") && !io::exists(m.folder + "/model.safetensors.index.json"))
    for (const char* other : {"pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.safetensors"})
      WEFT_CHECK_AS(kNotFound, !io::exists(m.folder + "/" + other), m.folder, ": the weights are in ", other,
                    "; need model.safetensors: save_pretrained() of transformers writes it");
  m.source = open_safetensors(m.folder);
  return m;
}

void load_weights(const HfModel& model, const std::vector<std::pair<std::string, CellHandle>>& cells,
                  std::vector<std::string>* warnings) {
  std::vector<std::pair<std::string, Shape>> shapes;
  for (const auto& [name, cell] : cells) shapes.emplace_back(name, cell.shape());
  const std::vector<CellPlan> plans =
      plan_cells(*model.source, *model.config.family, model.config.config, shapes, warnings);
  NoGrad guard;
  // The first read of a tensor verifies its checksum, if it has one.
  std::vector<std::byte> room;
  for (const CellPlan& plan : plans)
    for (const Piece& piece : plan.pieces) {
      model.source->read(piece.source, 0, 1, room);
      model.source->release(piece.source);
    }
  for (size_t i = 0; i < plans.size(); ++i) {
    const CellHandle& cell = cells[i].second;
    Tensor value = Tensor::empty({cell.dtype(), Device::cpu(), cell.shape()});
    for (const Piece& piece : plans[i].pieces)
      copy_piece(*model.source, piece, cell.dtype(), value.view_for_kernel().data);
    cell.set(value.to(cell.device()));
    for (const Piece& piece : plans[i].pieces) model.source->release(piece.source);
  }
}

}  // namespace weft::weights
