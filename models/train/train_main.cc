// main() of the train programs.
#include <cstdio>
#include <new>

#include "framework/dispatch/tf32.h"
#include "models/train/trainer.h"

namespace weft::train {

int train_main(int argc, char** argv, const nn::ModelFamily& family) {
  const std::string summary = str_cat("Trains a ", family.name, " language model.");
  TrainOptions options;
  return run_program(argc, argv, summary.c_str(), train_flags(options), [&] {
    if (options.config == "list") {
      for (const std::string& name : family.presets)
        std::printf("%s%s\n", name.c_str(), name == family.default_preset ? "  (the default)" : "");
      return 0;
    }
    set_tf32(options.step.tf32);  // for ops outside of compiled steps
    const auto without_memory = [&](const char* text) {
      return Error(Code::kResourceExhausted,
                   str_cat(text,
                           "; a smaller --batch_size or --seq_len, a larger --microbatches, or a --memory_budget "
                           "needs less memory"));
    };
    try {
      return train(family, options);
    } catch (const Error& e) {
      // A full disk has the same code.
      const bool memory = std::string_view(e.what()).find("out of memory on") != std::string_view::npos;
      if (e.code() != Code::kResourceExhausted || !memory || options.step.memory_budget != 0) throw;
      throw without_memory(e.what());
    } catch (const std::bad_alloc&) {
      throw without_memory("out of memory on cpu: the system refuses more");
    }
  });
}

}  // namespace weft::train
