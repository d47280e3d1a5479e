#include "models/testing/fixture.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "framework/io/file.h"
#include "framework/io/safetensors.h"
#include "models/hf/families.h"

namespace weft::testing {
namespace {

const std::string kFolder = "models/testing/fixtures/", kEnd = ".safetensors";

Tensor read(const io::SafetensorsFile& file, const std::string& name) {
  const io::TensorInfo& info = file.at(name);
  Tensor t = Tensor::empty({.dtype = info.dtype, .shape = info.shape});
  const auto bytes = file.bytes(name);
  std::memcpy(t.get().storage->data(), bytes.data(), bytes.size());
  return t;
}

double largest(const Tensor& t) {
  double m = 0;
  for (double v : t.to_vector<double>()) m = std::max(m, std::fabs(v));
  return m;
}

Closeness compare(const std::map<std::string, Tensor>& a, const std::map<std::string, Tensor>& b, double floor) {
  Closeness c;
  WEFT_CHECK(a.size() == b.size(), "fixture: ", a.size(), " tensors to compare with ", b.size());
  for (const auto& [name, want] : b) {
    const std::vector<double> x = a.at(name).to_vector<double>(), y = want.to_vector<double>();
    WEFT_CHECK(x.size() == y.size(), "fixture: '", name, "' has ", x.size(), " elements, need ", y.size());
    double off = 0;
    for (size_t i = 0; i < x.size(); ++i) off = std::isfinite(x[i]) ? std::max(off, std::fabs(x[i] - y[i])) : INFINITY;
    off /= std::max(largest(want), floor);
    if (off >= c.worst) c = {off, name};
  }
  return c;
}

}  // namespace

std::vector<std::string> fixture_names() {
  std::vector<std::string> names = io::list_folder(kFolder);
  for (std::string& name : names) name.resize(name.size() - kEnd.size());
  return names;
}

Fixture load_fixture(const std::string& name) {
  const io::SafetensorsFile file(kFolder + name + kEnd);
  Fixture f;
  nn::ConfigMap config;
  std::string family;
  for (const auto& [key, text] : file.metadata()) {
    if (!key.starts_with("fixture.")) continue;
    const std::string field = key.substr(8);
    double* number = field == "lr"             ? &f.lr
                     : field == "eps"          ? &f.eps
                     : field == "beta1"        ? &f.beta1
                     : field == "beta2"        ? &f.beta2
                     : field == "weight_decay" ? &f.weight_decay
                                               : nullptr;
    if (number)
      *number = std::stod(text);
    else if (field == "family")
      family = text;
    else
      config[field] = text;
  }
  f.model = family_named(family, str_cat(name, ": family")).make(config);
  nn::StateDict parameters;
  for (const io::TensorInfo& info : file.tensors()) {
    if (info.name.starts_with("param.")) parameters[info.name.substr(6)] = read(file, info.name);
    if (info.name.starts_with("grad.")) f.grads[info.name.substr(5)] = read(file, info.name);
    if (info.name.starts_with("step.")) f.stepped[info.name.substr(5)] = read(file, info.name);
  }
  f.model->load_state_dict(parameters);
  f.tokens = read(file, "tokens");
  f.targets = read(file, "targets");
  f.logits = read(file, "logits");
  f.loss = read(file, "loss");
  return f;
}

Closeness gradient_closeness(const std::map<std::string, Tensor>& a, const std::map<std::string, Tensor>& b) {
  double most = 0;
  for (const auto& [name, t] : b) most = std::max(most, largest(t));
  return compare(a, b, 1e-3 * most);
}
Closeness weight_closeness(const std::map<std::string, Tensor>& a, const std::map<std::string, Tensor>& b, double lr) {
  return compare(a, b, lr);
}

}  // namespace weft::testing
