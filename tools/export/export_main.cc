// export: a checkpoint as a folder of transformers, or as a GGUF file of llama.cpp.
#include <cstdio>

#include "framework/cli/cli.h"
#include "framework/io/file.h"
#include "models/hf/families.h"
#include "models/text/formats/files.h"
#include "models/text/settings.h"
#include "models/text/tokenizer.h"
#include "models/train/checkpoint.h"
#include "models/train/load.h"
#include "models/weights/write.h"

namespace weft::tools {
namespace {

struct ExportOptions {
  std::string checkpoint, out, dtype = "f32", gguf = "f32";
  bool has_dtype = false, has_gguf = false;
};

// The tokenizer of a model in the format of --out, or why it has none.
struct ExportedText {
  std::vector<text::NamedFile> files;  // files of a folder
  io::GgufMetadata metadata;
  std::string lacks;
};

// `written` receives the ids that begin and end a text.
ExportedText text_of(const train::LoadedModel& m, const std::string& checkpoint, bool gguf, weights::Written& written) {
  ExportedText t;
  const int64_t vocab = m.model->vocab();
  if (m.folder.empty() && vocab < 256) {
    t.lacks = str_cat("the model has ", vocab, " tokens; the byte tokenizer needs 256 or more");
  } else if (!m.folder.empty() && !io::exists(m.folder)) {
    t.lacks = str_cat("the run read its text with the tokenizer of ", m.folder, ", which is not there");
  } else {
    written.end_ids = m.end_ids;
    if (!m.folder.empty()) {
      const auto tokenizer = text::FileTokenizer::open(m.folder);
      train::check_tokenizer(tokenizer->name(), train::read_state(checkpoint), checkpoint);
      if (const int32_t end = tokenizer->end_of_text(); written.end_ids.empty() && end >= 0 && end < vocab)
        written.end_ids = {end};
      // As in a GGUF file: settings may lack the token, or have null.
      if (!tokenizer->before().empty())
        written.begin_id = tokenizer->before()[0];
      else if (const std::string begin = text::read_settings(m.folder).tokens["bos_token"]; !begin.empty())
        written.begin_id = tokenizer->id_of(begin);
    }
    std::vector<std::string> notes;
    try {
      if (gguf)
        t.metadata = text::metadata_for_gguf(m.folder, vocab, written.end_ids, &notes);
      else
        t.files = text::files_for_transformers(m.folder, written.end_ids);
    } catch (const Error& e) {
      if (e.code() != Code::kUnimplemented) throw;
      t.lacks = e.what();
    }
    for (const std::string& note : notes) internal::warn(note);
  }
  return t;
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

  const nn::ModelFamily& family = family_named(state.family, str_cat(train::state_path(checkpoint), ": \"family\""));
  weights::Written written{.config = state.model};
  for (const weights::Family* f : weights::families())
    if (f->program == state.family) written.family = f;
  WEFT_CHECK(written.family, train::state_path(checkpoint), ": \"family\" is '", state.family,
             "', which has no published form");
  weights::config_json(*written.family, state.model);  // an error before the weights are read
  const train::LoadedModel loaded = train::load_model(family, {.checkpoint = checkpoint});
  std::vector<Tensor> values;
  for (const auto& [name, cell] : loaded.model->named_cells()) {
    values.push_back(cell.value());
    written.cells.push_back({name, values.back().view_for_kernel()});
  }

  const ExportedText text = text_of(loaded, checkpoint, gguf, written);
  if (gguf) {
    weights::write_gguf(out, written, o.gguf, text.metadata, io::Existing::kRefuse);
  } else {
    io::AtomicFolder folder(out);
    weights::write_hf(folder.folder(), written, parse_dtype(o.dtype));
    for (const auto& [name, content] : text.files) io::write_file_atomic(folder.path(name), content);
    folder.commit(io::Existing::kRefuse);
  }
  if (!text.lacks.empty()) internal::warn(str_cat(out, ": has no tokenizer: ", text.lacks));
  std::printf("%s: %s of %s\n", out.c_str(), gguf ? "GGUF file" : "model of transformers", checkpoint.c_str());
  return 0;
}

}  // namespace
}  // namespace weft::tools

int main(int argc, char** argv) {
  weft::tools::ExportOptions o;
  const weft::Flags flags{
      {"checkpoint", &o.checkpoint, "checkpoint: a folder step_N, or a folder of such folders (the newest)"},
      {"out", &o.out, "new folder for transformers, or new file NAME.gguf"},
      {"dtype", &o.dtype, "f32 or bf16: dtype of the weights of a folder", {}, &o.has_dtype},
      {"gguf", &o.gguf, "f32, bf16 or q8_0: format of the matrices of a GGUF file", {}, &o.has_gguf},
  };
  return weft::run_program(argc, argv, "Writes a checkpoint as transformers and llama.cpp read it.", flags,
                           [&] { return weft::tools::run(o); });
}
