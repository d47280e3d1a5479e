// tokenizer encode|decode|info: ids of texts and back.
#include <iostream>
#include <iterator>

#include "framework/base/error.h"
#include "framework/cli/cli.h"
#include "framework/io/file.h"
#include "framework/io/json.h"
#include "models/text/settings.h"
#include "models/text/tokenizer.h"

namespace weft::text {
namespace {

std::string standard_input() { return {std::istreambuf_iterator<char>(std::cin), {}}; }

std::vector<int32_t> ids_of(const std::string& text) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < text.size();) {
    if (text[i] == ' ' || text[i] == '\n' || text[i] == ',' || text[i] == '\t' || text[i] == '\r') {
      ++i;
      continue;
    }
    int64_t id = 0;
    const size_t begin = i;
    for (; i < text.size() && text[i] >= '0' && text[i] <= '9' && id < (int64_t{1} << 31); ++i)
      id = id * 10 + (text[i] - '0');
    WEFT_CHECK(i > begin && id < (int64_t{1} << 31), "decode: got '", text.substr(begin, 20), "' at byte ", begin,
               "; need ids separated by spaces");
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

int run(int argc, char** argv) {
  File tokenizer{File::Use::kRead}, text{File::Use::kRead};
  std::string pre;
  bool special = false, tokens = false;
  const Flags flags = {
      {"tokenizer", &tokenizer, "a tokenizer.json or a .gguf file"},
      {"pre", &pre, "the pattern of a GGUF file that names none: gpt-2, llama-bpe, qwen2, ..."},
      {"text", &text, "the file that is read; without it standard input"},
      {"special", &special,
       "encode: special tokens in the text are tokens, and the template's are added; decode: they "
       "are printed"},
      {"tokens", &tokens, "encode: print tokens instead of ids"},
  };
  return run_program(
      argc, argv, "tokenizer encode|decode|info --tokenizer FILE", flags, [&](const std::vector<std::string>& args) {
        if (args.empty() || (args[0] != "encode" && args[0] != "decode" && args[0] != "info"))
          usage_error(str_cat("got ", args.empty() ? "no command" : args[0], "; need encode, decode or info"));
        if (args.size() > 1)
          usage_error(str_cat("got ", args[1], " after ", args[0], "; to read a file, give --text ", args[1]));
        check_flag("tokenizer", static_cast<bool>(tokenizer), "nothing", "a file");
        const auto t = FileTokenizer::open(tokenizer.path, pre);
        if (args[0] == "info") {
          const Settings settings = read_settings(tokenizer.path);
          std::string out = t->describe();
          for (const auto& [role, token] : settings.tokens)
            if (!token.empty()) out += str_cat(role, " ", io::write_json(io::Json(token)), "\n");
          const size_t bytes = settings.chat_template.size();
          write_output(str_cat(out, "chat template ", bytes == 0 ? "none" : str_cat(bytes, " bytes"), "\n"));
          return 0;
        }
        const std::string input = text ? io::read_file(text.path) : standard_input();
        if (args[0] == "decode") {
          const std::vector<int32_t> ids = ids_of(input);
          write_output(special ? t->decode(ids) : t->decode_plain(ids));
          return 0;
        }
        const Segment part{input, special};
        std::string out;
        for (int32_t id : t->encode({&part, 1}, special))
          out += (out.empty() ? "" : " ") + (tokens ? t->token(id) : std::to_string(id));
        write_output(out + "\n");
        return 0;
      });
}

}  // namespace
}  // namespace weft::text

int main(int argc, char** argv) { return weft::text::run(argc, argv); }
