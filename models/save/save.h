// Saving and loading modules, optimisers, schedulers, random generators and named tensors as safetensors files, which
// other programs can read. Values keep their bits, dtypes and shapes. Files are written atomically and have a checksum
// for each tensor. A whole training run is a checkpoint (models/train/checkpoint.h).
//
// In a job of several processes save() is a collective: all processes call it. Each writes the shards of its ranks, and
// the first one the values that are not sharded. When save() returns, the file is complete for all, or its one error is
// thrown in all.
#pragma once
#include <concepts>
#include <memory>
#include <source_location>
#include <string>

#include "framework/base/function_ref.h"
#include "framework/dispatch/state/generator.h"
#include "models/nn/module.h"
#include "models/optim/optimizer.h"

namespace weft {

using SaveLoc = std::source_location;

/// Writes tensors of any device and layout to `path`. Replaces an existing file when the new file is complete.
void save(const nn::StateDict& values, const std::string& path, SaveLoc loc = SaveLoc::current());
/// Saves one tensor under the name "tensor".
inline void save(const Tensor& value, const std::string& path, SaveLoc loc = SaveLoc::current()) {
  save(nn::StateDict{{"tensor", value}}, path, loc);
}
/// Saves model.state_dict().
void save(const nn::Module& model, const std::string& path, SaveLoc loc = SaveLoc::current());
/// Saves the learning rate, the step count and the state of each parameter.
void save(const optim::Optimizer& optimizer, const std::string& path, SaveLoc loc = SaveLoc::current());
/// Saves the seed, the step and the count of random ops outside compiled functions. After load() the random numbers
/// continue.
void save(const Generator& generator, const std::string& path, SaveLoc loc = SaveLoc::current());

namespace internal {
/// An object with state_dict() and load_state_dict(): optim::Scheduler, ReduceLROnPlateau, EMA, GradScaler, LBFGS, or a
/// type of the program.
template <class T>
concept HasState = !std::derived_from<T, nn::Module> && !std::derived_from<T, optim::Optimizer> &&
                   requires(T & owner, const nn::StateDict& values) {
  { owner.state_dict() } -> std::convertible_to<nn::StateDict>;
  owner.load_state_dict(values);
};
/// Gives the tensors of a file to `set`, whose errors then begin with the path.
void load_state(const std::string& path, FunctionRef<void(const nn::StateDict&)> set, SaveLoc loc);
}  // namespace internal

/// Saves owner.state_dict(): a scheduler counts on from there after load().
template <internal::HasState T>
void save(const T& owner, const std::string& path, SaveLoc loc = SaveLoc::current()) {
  const internal::LineScope line(loc);
  save(nn::StateDict(owner.state_dict()), path, loc);
}

class AsyncSave;

/// A save in progress: a thread writes the file, and the program continues.
class PendingSave {
 public:
  PendingSave(std::unique_ptr<AsyncSave> save, SaveLoc loc);
  PendingSave(PendingSave&&) noexcept;
  PendingSave& operator=(PendingSave&&) noexcept;
  /// Waits for the thread, and prints an error as a warning. The file may be missing in a job without wait().
  ~PendingSave();
  /// Whether the thread of this process has nothing left to write.
  bool done() const;
  /// Returns when the file is complete, or throws the error of the save. In a job it is a collective.
  void wait();

 private:
  std::unique_ptr<AsyncSave> save_;
  SaveLoc loc_;
};

/// Saves values as they are now, as save() does, but returns before they are written. Steps that follow write to other
/// memory, so until the end of the save the values need memory a second time. Values of a GPU are copied to the host
/// before the next step. A second save to `path` meanwhile is an error.
///   PendingSave saved = save_async(model, "model.safetensors");
///   ...                                                            // steps
///   saved.wait();
[[nodiscard]] PendingSave save_async(const nn::StateDict& values, const std::string& path,
                                     SaveLoc loc = SaveLoc::current());
[[nodiscard]] PendingSave save_async(const nn::Module& model, const std::string& path,
                                     SaveLoc loc = SaveLoc::current());
[[nodiscard]] PendingSave save_async(const optim::Optimizer& optimizer, const std::string& path,
                                     SaveLoc loc = SaveLoc::current());

/// The tensors of a .safetensors file, of an index file, or of a folder of them, on the CPU.
nn::StateDict load(const std::string& path, SaveLoc loc = SaveLoc::current());
/// Sets `value` to the one tensor of a file, on the CPU.
void load(Tensor& value, const std::string& path, SaveLoc loc = SaveLoc::current());
/// model.load_state_dict(load(path)): throws before anything changes, with the path, and names the entries that are
/// missing, unexpected (unless `strict` is false) or of another shape. Values are converted to the dtype and device of
/// the model. Each process of a job reads the shards of its ranks. It reads large shards when a step needs them, so
/// their damage is an error of the step.
void load(const nn::Module& model, const std::string& path, bool strict = true, SaveLoc loc = SaveLoc::current());
void load(const optim::Optimizer& optimizer, const std::string& path, SaveLoc loc = SaveLoc::current());
void load(const Generator& generator, const std::string& path, SaveLoc loc = SaveLoc::current());
/// owner.load_state_dict(load(path)). A scheduler also sets the learning rate of its optimiser.
template <internal::HasState T>
void load(T& owner, const std::string& path, SaveLoc loc = SaveLoc::current()) {
  internal::load_state(
      path,
      [&](const nn::StateDict& values) {
        if constexpr (requires { owner.load_state_dict(values, loc); })
          owner.load_state_dict(values, loc);
        else
          owner.load_state_dict(values);
      },
      loc);
}

}  // namespace weft
