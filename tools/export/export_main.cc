// export: a checkpoint as a folder of transformers, or as a GGUF file of llama.cpp.
#include "framework/cli/cli.h"
#include "framework/io/file.h"
#include "models/hf/families.h"
#include "models/text/tokenizer.h"
#include "models/train/checkpoint.h"
#include "models/train/load.h"
#include "models/weights/write.h"
#include "tools/export/byte_tokenizer.h"

namespace weft::tools {
namespace {

struct ExportOptions {
  std::string checkpoint, out, dtype = "f32", gguf = "f32";
  bool has_dtype = false, has_gguf = false;
};

// Copies the tokenizer's files of a checkpoint, or writes the bytes'.
void write_tokenizer(const std::string& own, const std::string& folder) {
  std::vector<text::NamedFile> files = text::tokenizer_files(own);
  if (own.empty())
    files = {{"tokenizer.json", byte_tokenizer_json()}, {"tokenizer_config.json", byte_tokenizer_config()}};
  for (const auto& [name, content] : files) io::write_file_atomic(folder + "/" + name, content);
}

int run(const ExportOptions& o) {
  if (o.checkpoint.empty() || o.out.empty()) usage_error("need --checkpoint DIR and --out DIR or FILE.gguf");
  const std::string out = io::resolve_path(o.out);
  const bool gguf = out.ends_with(".gguf");
  if (gguf && o.has_dtype) usage_error("--dtype: need a folder as --out; use --gguf for a GGUF file");
  if (!gguf && o.has_gguf) usage_error(str_cat("--gguf: --out is ", o.out, "; need a name that ends with .gguf"));
  if (o.dtype != "f32" && o.dtype != "bf16") usage_error(str_cat("--dtype: got '", o.dtype, "'; need f32 or bf16"));
  if (o.gguf != "f32" && o.gguf != "bf16" && o.gguf != "q8_0")
    usage_error(str_cat("--gguf: got '", o.gguf, "'; need f32, bf16 or q8_0"));
  WEFT_CHECK(!io::exists(out), out, ": exists; need a new name");
  io::remove_leftovers(io::folder_of(out));
  const std::string checkpoint = train::find_checkpoint(io::resolve_path(o.checkpoint));
  const train::TrainState state = train::read_state(checkpoint);

  const nn::ModelFamily* family = nullptr;
  weights::Written written{.config = state.model};
  for (const nn::ModelFamily* f : model_families())
    if (f->name == state.family) family = f;
  for (const weights::Family* f : weights::families())
    if (f->program == state.family) written.family = f;
  WEFT_CHECK(family && written.family, train::state_path(checkpoint), ": \"family\" is '", state.family,
             "'; need gpt, llama or moe");
  weights::config_json(*written.family, state.model);  // an error before the weights are read
  const train::LoadedModel loaded = train::load_model(*family, {.checkpoint = checkpoint});
  std::vector<Tensor> values;
  for (const auto& [name, cell] : loaded.model->named_cells()) {
    values.push_back(cell.value());
    written.cells.push_back({name, values.back().view_for_kernel()});
  }

  const int64_t vocab = loaded.model->vocab();
  const std::string own = train::tokenizer_path(checkpoint);
  const bool bytes = own.empty() && !state.run.count("tokenizer") && vocab >= 256;
  std::string lacks;  // why no tokenizer is written
  if (gguf && !own.empty())
    lacks = "only the byte tokenizer is written to GGUF files";
  else if (own.empty() && state.run.count("tokenizer"))
    lacks = str_cat("the run read its text with the tokenizer of ", state.run.at("tokenizer"));
  else if (own.empty() && !bytes)
    lacks = str_cat("the model has ", vocab, " tokens; the byte tokenizer needs 256 or more");
  if (gguf) {
    weights::write_gguf(out, written, o.gguf, bytes ? byte_tokenizer_gguf(vocab) : io::GgufMetadata{},
                        io::Existing::kRefuse);
  } else {
    io::AtomicFolder folder(out);
    weights::write_hf(folder.folder(), written, parse_dtype(o.dtype));
    if (lacks.empty()) write_tokenizer(own, folder.folder());
    folder.commit(io::Existing::kRefuse);
  }
  if (!lacks.empty()) internal::warn(str_cat(out, ": has no tokenizer: ", lacks));
  std::printf("%s: %s of %s\n", out.c_str(), gguf ? "GGUF file" : "model of transformers", checkpoint.c_str());
  return 0;
}

}  // namespace
}  // namespace weft::tools

int main(int argc, char** argv) {
  weft::tools::ExportOptions o;
  const weft::Flags flags{
      {"checkpoint", &o.checkpoint, "checkpoint folder step_N, or a folder of them (the newest)"},
      {"out", &o.out, "new folder for transformers, or new file NAME.gguf"},
      {"dtype", &o.dtype, "f32 or bf16: dtype of the weights of a folder", {}, &o.has_dtype},
      {"gguf", &o.gguf, "f32, bf16 or q8_0: format of the matrices of a GGUF file", {}, &o.has_gguf},
  };
  return weft::run_program(argc, argv, "Writes a checkpoint as transformers and llama.cpp read it.", flags,
                           [&] { return weft::tools::run(o); });
}
