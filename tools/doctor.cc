// doctor: what this machine offers and what Weft will use of it.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "framework/base/error.h"
#include "tools/machine.h"
#include "tools/measure.h"

namespace {

constexpr char kUsage[] =
    "doctor [--measure] [--json] [--out FILE]\n"
    "  --measure   also measure the copy rate and the GEMM rate by dtype (a few seconds)\n"
    "  --json      print JSON instead of text\n"
    "  --out FILE  also write the JSON to FILE\n"
    "WEFT_ISA=auto|baseline|avx2|avx512 and WEFT_THREADS=N are honoured, as in every program.\n";

struct Options {
  bool measure = false, json = false, help = false;
  std::string out;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string arg = argv[i];
    if (arg == "--measure") {
      options.measure = true;
    } else if (arg == "--json") {
      options.json = true;
    } else if (arg == "--help") {
      options.help = true;
    } else if (arg == "--out" || arg.rfind("--out=", 0) == 0) {
      options.out = arg != "--out" ? arg.substr(6) : i + 1 < argc ? argv[++i] : "";
      if (options.out.empty()) throw std::invalid_argument("--out needs a file name");
    } else {
      throw std::invalid_argument("unknown argument " + arg + "; --help lists them");
    }
  }
  return options;
}

void write(const std::string& file, const std::string& text) {
  // `bazel run` starts programs elsewhere than where the user typed the path.
  const char* base = std::getenv("BUILD_WORKING_DIRECTORY");
  std::filesystem::path path = std::filesystem::path(base ? base : ".") / file;
  std::ofstream out(path);
  out << text;
  if (!out.flush()) throw std::runtime_error("cannot write " + path.string());
}

}  // namespace

int main(int argc, char** argv) {
  using namespace weft::tools;
  try {
    Options options = parse(argc, argv);
    if (options.help) {
      std::fputs(kUsage, stdout);
      return 0;
    }
    Facts facts;
    add_choice(facts);
    add_machine(facts);
    add_libraries(facts);
    if (options.measure) add_measured(facts);
    if (!options.out.empty()) write(options.out, facts.to_json());
    std::fputs((options.json ? facts.to_json() : facts.to_text()).c_str(), stdout);
    return 0;
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "doctor: %s\n", error.what());
    return 2;
  } catch (const weft::Error& error) {  // a switch that does not fit this machine
    std::fprintf(stderr, "doctor: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "doctor: %s\n", error.what());
    return 1;
  }
}
