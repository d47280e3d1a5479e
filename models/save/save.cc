#include "models/save/save.h"

#include <algorithm>

#include "framework/dispatch/rank/first_process.h"
#include "framework/dispatch/state/generator_state.h"
#include "framework/dispatch/state/state.h"
#include "framework/dispatch/state/stored_value.h"
#include "framework/io/safetensors.h"
#include "models/save/async.h"
#include "models/save/in_parts.h"
#include "ops/core/creation.h"

namespace weft {

using internal::LineScope;

namespace {

void check_outside(const char* op) {
  WEFT_CHECK_AS(kFailedPrecondition, !is_capturing(), op,
                ": called inside a compiled function, where values do not exist yet; need a call outside");
}

// Calls fn; its errors begin with the path.
template <class F>
void with_path(const std::string& path, const F& fn) {
  try {
    internal::NoOrigin within;  // the place is appended once
    fn();
  } catch (const Error& e) {
    internal::fail(e.code(), str_cat(path, ": ", e.what()));
  }
}

using Cells = std::vector<std::pair<std::string, CellHandle>>;

// The tensors to save, in the order of state_dict().
const nn::StateDict& contents(const nn::StateDict& values, const char* op, SaveLoc loc) {
  for (const auto& [name, value] : values)
    if (value.defined()) require_concrete(value, op, loc);
  return values;
}
template <class Owner>
Cells contents(const Owner& owner, const char*, SaveLoc) {
  Cells cells = owner.named_cells();
  std::sort(cells.begin(), cells.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return cells;
}

template <class T>
std::unique_ptr<SaveInParts> parts_of(const T& values, const std::string& path, const char* op, SaveLoc loc) {
  check_outside(op);
  auto file = std::make_unique<SaveInParts>(op, str_cat(op, ": "));
  file->add(path, contents(values, op, loc), {{"format", "pt"}});
  return file;
}

template <class T>
void save_to(const T& values, const std::string& path, SaveLoc loc) {
  LineScope line(loc);
  save_now(parts_of(values, path, "save", loc), [] { return std::string(); });
}

template <class T>
PendingSave begin_save_to(const T& values, const std::string& path, SaveLoc loc) {
  LineScope line(loc);
  auto file = parts_of(values, path, "save_async", loc);
  file->begin([] { return std::string(); }, SaveInParts::Copies::kQueued);
  return PendingSave(std::make_unique<AsyncSave>(std::move(file)), loc);
}

}  // namespace

void save(const nn::StateDict& values, const std::string& path, SaveLoc loc) { save_to(values, path, loc); }
void save(const nn::Module& model, const std::string& path, SaveLoc loc) { save_to(model, path, loc); }
void save(const optim::Optimizer& optimizer, const std::string& path, SaveLoc loc) { save_to(optimizer, path, loc); }
void save(const Generator& generator, const std::string& path, SaveLoc loc) {
  LineScope line(loc);
  check_outside("save");
  const Tensor outside = full({}, internal::random_ops_outside(), {.dtype = kInt64});
  save(nn::StateDict{{"seed", generator.seed.value()}, {"step", generator.step.value()}, {"outside", outside}}, path,
       loc);
}

PendingSave save_async(const nn::StateDict& values, const std::string& path, SaveLoc loc) {
  return begin_save_to(values, path, loc);
}
PendingSave save_async(const nn::Module& model, const std::string& path, SaveLoc loc) {
  return begin_save_to(model, path, loc);
}
PendingSave save_async(const optim::Optimizer& optimizer, const std::string& path, SaveLoc loc) {
  return begin_save_to(optimizer, path, loc);
}

PendingSave::PendingSave(std::unique_ptr<AsyncSave> save, SaveLoc loc) : save_(std::move(save)), loc_(loc) {}
PendingSave::PendingSave(PendingSave&&) noexcept = default;
PendingSave& PendingSave::operator=(PendingSave&&) noexcept = default;
PendingSave::~PendingSave() = default;
bool PendingSave::done() const { return !save_->busy(); }
void PendingSave::wait() {
  LineScope line(loc_);
  save_->wait();
}

namespace {

// Writes a part of a tensor in a file to `to`, row-major.
void read_part(const io::SafetensorsModel& file, const std::string& name, const TensorPart& part, void* to) {
  const io::TensorInfo& info = file.at(name);
  const int64_t item = itemsize(info.dtype);
  each_run(part, info.shape, [&](const ElementRun& run) {
    std::byte* const bytes = static_cast<std::byte*>(to) + run.part * item;
    file.read(name, run.whole * item, (run.whole + run.count) * item, bytes);
    for (int64_t i = 0; info.dtype == kBool && i < run.count; ++i)
      WEFT_CHECK_AS(kDataLoss, bytes[i] <= std::byte{1}, file.path(), ": tensor '", name, "' is bool and has the byte ",
                    static_cast<int>(bytes[i]), "; need 0 or 1");
  });
}

Tensor read_whole(const io::SafetensorsModel& file, const std::string& name) {
  const io::TensorInfo& info = file.at(name);
  const Tensor t = Tensor::empty({info.dtype, Device::cpu(), info.shape});
  read_part(file, name, TensorPart::all(info.shape), t.view_for_kernel().data);
  return t;
}

// The value of a cell in a file that has the dtype of the cell.
class ValueInFile final : public StoredValue {
 public:
  ValueInFile(const io::SafetensorsModel& file, std::string name) : file_(file), name_(std::move(name)) {}
  void read(const Cell&, const TensorPart& part, void* to) override {
    read_part(file_, name_, part, to);
    file_.release(name_);
  }

 private:
  const io::SafetensorsModel file_;
  const std::string name_;
};

// Sets the cells that `cells_for` returns for the values of a file. A process of a job reads only the shards of its
// ranks of a large value, when a step needs them.
template <class CellsFor>
void load_cells(const std::string& path, const CellsFor& cells_for) {
  constexpr int64_t kWorthIt = 64 << 10;  // bytes
  const io::SafetensorsModel file(path);
  nn::StateDict values;
  for (const std::string& name : file.names()) {
    const io::TensorInfo& info = file.at(name);
    const bool later = internal::job_processes() && info.nbytes() >= kWorthIt && info.dtype != kBool;
    values.emplace(name, later ? Tensor::empty({info.dtype, Device::meta(), info.shape}) : read_whole(file, name));
  }
  std::vector<std::pair<std::string, CellHandle>> cells;
  with_path(path, [&] { cells = cells_for(values); });
  NoGrad guard;
  for (const auto& [name, cell] : cells) {
    Tensor& value = values.at(name);
    const bool later = value.device() == Device::meta();
    if (later && value.dtype() == cell.dtype()) {
      internal::set_remote(cell.cell(), make_ref<ValueInFile>(file, name));
      continue;
    }
    if (later) value = read_whole(file, name);
    cell.set(value.to(cell.dtype()).to(cell.type().device));
  }
}

}  // namespace

nn::StateDict load(const std::string& path, SaveLoc loc) {
  LineScope line(loc);
  check_outside("load");
  const io::SafetensorsModel file(path);
  nn::StateDict values;
  for (const std::string& name : file.names()) values.emplace(name, read_whole(file, name));
  return values;
}
void load(Tensor& value, const std::string& path, SaveLoc loc) {
  LineScope line(loc);
  const nn::StateDict values = load(path, loc);
  WEFT_CHECK(values.size() == 1, path, ": has ", values.size(), " tensors; need one, or load(path)[name]");
  value = values.begin()->second;
}
void load(const nn::Module& model, const std::string& path, bool strict, SaveLoc loc) {
  LineScope line(loc);
  check_outside("load");
  load_cells(path, [&](const nn::StateDict& values) { return model.cells_for(values, strict); });
}
void load(const optim::Optimizer& optimizer, const std::string& path, SaveLoc loc) {
  LineScope line(loc);
  check_outside("load");
  load_cells(path, [&](const nn::StateDict& values) { return optimizer.cells_for(values); });
}
void internal::load_state(const std::string& path, FunctionRef<void(const nn::StateDict&)> set, SaveLoc loc) {
  LineScope line(loc);
  const nn::StateDict values = load(path, loc);
  with_path(path, [&] { set(values); });
}
void load(const Generator& generator, const std::string& path, SaveLoc loc) {
  LineScope line(loc);
  const nn::StateDict values = load(path, loc);
  const auto seed = values.find("seed"), step = values.find("step"), outside = values.find("outside");
  bool fits = values.size() == 3;
  for (const auto& it : {seed, step, outside})
    fits = fits && it != values.end() && it->second.type() == TensorType{kInt64, Device::cpu(), {}};
  WEFT_CHECK(fits, path,
             ": is not the state of a generator; need the tensors 'seed', 'step' and 'outside', each i64[]");
  generator.seed.set(seed->second.to(generator.seed.type().device));
  generator.step.set(step->second.to(generator.step.type().device));
  internal::set_random_ops_outside(outside->second.item<int64_t>());
}

}  // namespace weft
