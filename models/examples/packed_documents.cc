// A GPT trained on documents of different lengths, packed into one row without padding. No document attends to another
// document's tokens. The model is an ordinary GPT; packing needs one mask and one tensor of positions.
//   ./bazelw run //models/examples:packed_documents
#include <cstdio>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "models/data/corpus.h"
#include "models/examples/small_lm.h"

ABSL_FLAG(int, steps, 300, "optimiser steps");

using namespace weft;

namespace {

constexpr int64_t kRow = 2048, kLongest = 512, kHeadDim = 32;

/// The speeches of the embedded plays. Each is a document of bytes.
std::vector<std::string> speeches() {
  const std::string text = data::embedded_corpus();
  std::vector<std::string> out;
  for (size_t at = 0, end = 0; at < text.size(); at = end + 2) {
    end = std::min(text.find("\n\n", at), text.size());
    if (end - at >= 16) out.push_back(text.substr(at, std::min<size_t>(end - at, kLongest)) + "\n");
  }
  return out;
}

struct PackedRow {
  Tensor tokens, targets;       // [1, kRow]; the last token of a document has no target (-100)
  Tensor documents, positions;  // [kRow]: the document of a token, and its position in the document
};

/// Packs documents from `next` on until the row is full, and advances `next`.
PackedRow pack(const std::vector<std::string>& documents, size_t& next) {
  std::vector<int64_t> tokens(kRow, 0), targets(kRow, -100), ids(kRow, -1), positions(kRow, 0);
  int64_t at = 0, id = 0;
  for (;; ++id, ++next) {
    const std::string& d = documents[next % documents.size()];
    const int64_t n = static_cast<int64_t>(d.size());
    if (at + n > kRow) break;
    for (int64_t i = 0; i < n; ++i, ++at) {
      tokens[at] = static_cast<unsigned char>(d[i]);
      if (i + 1 < n) targets[at] = static_cast<unsigned char>(d[i + 1]);
      ids[at] = id;
      positions[at] = i;
    }
  }
  for (; at < kRow; ++at) ids[at] = id;  // the rest of the row is one more document
  auto row = [](const std::vector<int64_t>& v, const Shape& shape) { return Tensor::from_vector(v, shape); };
  return {row(tokens, {1, kRow}), row(targets, {1, kRow}), row(ids, {kRow}), row(positions, {kRow})};
}

/// The mean loss over all targets of the row.
Tensor packed_loss(const examples::SmallLm& model, const PackedRow& p) {
  return cross_entropy(
      model(p.tokens, {.rope = nn::rotary_tables(p.positions, kHeadDim), .mask_mod = attention::document(p.documents)}),
      p.targets);
}

/// The same mean, with a forward pass for each document.
double loss_one_by_one(const examples::SmallLm& model, const PackedRow& p) {
  const std::vector<int64_t> ids = p.documents.to_vector<int64_t>();
  double sum = 0;
  int64_t count = 0;
  for (int64_t begin = 0, end = 0; begin < kRow; begin = end) {
    while (end < kRow && ids[end] == ids[begin]) ++end;
    const Tensor targets = slice(p.targets, 1, begin, end);
    const Tensor logits =
        model(slice(p.tokens, 1, begin, end), {.rope = nn::rotary_tables(arange(end - begin), kHeadDim)});
    sum += cross_entropy(logits, targets, {.reduction = "sum"}).item<float>();
    count += ne(targets, -100).sum().item<int64_t>();
  }
  return sum / static_cast<double>(count);
}

}  // namespace

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  manual_seed(0);
  const std::vector<std::string> documents = speeches();
  examples::SmallLm model(256, 128, 4, {.heads = 4, .rms_norm = true, .swiglu = true, .bias = false});
  optim::AdamW opt(model.parameters(), {.lr = 2e-3});
  auto step = compile([&](PackedRow p) {
    Tensor loss = packed_loss(model, p);
    opt.step(optim::clip_grad_norm(grad(loss, opt.parameters()), 1.0).grads);
    return loss;
  });

  size_t next = 0;
  const int steps = absl::GetFlag(FLAGS_steps);
  for (int i = 0; i < steps; ++i) {
    const PackedRow p = pack(documents, next);
    const double loss = step(p).item<float>();
    if (i == 0 || (i + 1) % 50 == 0) {
      const BlockMask mask = create_block_mask(attention::causal() & attention::document(p.documents), 1, 1, kRow, kRow,
                                               {.block_size = {64, 64}});
      std::printf("step %4d  loss %.3f  %3ld documents in a row, %.0f %% of the attention skipped\n", i + 1, loss,
                  p.documents[-1].item<int64_t>(), mask.sparsity());
    }
  }
  const PackedRow last = pack(documents, next);
  const double packed = packed_loss(model, last).item<float>(), apart = loss_one_by_one(model, last);
  std::printf("unseen documents: loss %.5f packed, %.5f one by one\n", packed, apart);
  std::printf("%s\n", step.stats().to_string().c_str());
}
