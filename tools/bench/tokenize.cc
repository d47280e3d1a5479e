// Seconds of processor time to encode a file: one JSON line for versus_tokenizers.py.
#include <algorithm>
#include <ctime>

#include "framework/base/str_cat.h"
#include "framework/cli/cli.h"
#include "framework/io/checksum.h"
#include "framework/io/file.h"
#include "models/text/tokenizer.h"

namespace weft::bench {
namespace {

double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  using namespace weft;
  File tokenizer{File::Use::kRead}, text{File::Use::kRead};
  int64_t rounds = 5;
  const Flags flags = {{"tokenizer", &tokenizer, "a tokenizer.json or a GGUF file"},
                       {"text", &text, "the file to encode"},
                       {"rounds", &rounds, "repetitions; the shortest time counts", {1}}};
  return run_program(argc, argv, "tokenize --tokenizer FILE --text FILE: time to encode a file", flags, [&] {
    check_flag("tokenizer", static_cast<bool>(tokenizer), "nothing", "a file");
    check_flag("text", static_cast<bool>(text), "nothing", "a file");
    double begin = bench::processor_seconds();
    const auto t = text::FileTokenizer::open(tokenizer.path);
    const double open = bench::processor_seconds() - begin;
    const std::string bytes = io::read_file(text.path);
    double least = 1e9;
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < rounds; ++i) {
      begin = bench::processor_seconds();
      ids = t->encode(bytes);
      least = std::min(least, bench::processor_seconds() - begin);
    }
    write_output(str_cat("{\"open_s\": ", open, ", \"encode_s\": ", least, ", \"ids\": ", ids.size(), ", \"xxh3\": \"",
                         io::hex64(io::checksum(std::as_bytes(std::span(ids)))), "\"}\n"));
    return 0;
  });
}
