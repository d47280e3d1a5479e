// Continues a text with a published model, or answers a message as a chat. MODEL is a folder that transformers wrote, a
// .gguf file, or org/name in the local cache of Hugging Face:
//
//   ./bazelw run //models/examples:published_model -- MODEL "The capital of France is"
//   ./bazelw run //models/examples:published_model -- MODEL "Name three colours." chat
#include <iostream>
#include <string>
#include <vector>

#include "models/hf/hf.h"
#include "weft.h"
using namespace weft;

int main(int argc, char** argv) try {
  if (argc < 3) throw Error(Code::kInvalidArgument, "published_model: need MODEL TEXT, or MODEL TEXT chat");
  const std::string path = argv[1], prompt = argv[2];
  const bool chat = argc > 3 && argv[3] == std::string("chat");

  const train::LoadedModel m = load_hf(path);  // GPT-2, Llama, Qwen, Mixtral, ...: its config.json names the family
  const std::vector<int32_t> ids = train::prompt_ids(m, {.chat = chat}, prompt);
  train::TextStream text(m, /*stops=*/{}, ids);
  const train::SampleOptions greedy{.max_new_tokens = 40, .temperature = 0, .vocab = m.tokenizer->vocab_size()};
  train::generate(*m.model, ids, greedy, [&](int32_t id) {
    std::cout << text.add(id) << std::flush;
    return !text.ended();
  });
  std::cout << text.rest() << "\n";
  return 0;
} catch (const Error& e) {
  std::cerr << e.what() << "\n";
  return 1;
}
