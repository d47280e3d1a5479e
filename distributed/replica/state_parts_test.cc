#include "distributed/replica/state_parts.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "distributed/comm/threads.h"
#include "distributed/launch/compile.h"
#include "distributed/launch/testing/gpt_training.h"
#include "framework/base/testing/error_of.h"

namespace weft::dist {
namespace {

using weft::testing::GptTraining;

// A replica of two ranks with its own model.
struct Replica {
  explicit Replica(uint64_t seed, const std::string& mesh_text = "fsdp2") : mesh(Mesh::parse(mesh_text)), world(mesh) {
    manual_seed(seed);
    training = std::make_unique<GptTraining>(weft::testing::small_gpt());
    step.emplace([this](Tensor x, Tensor y) { return (*training)(x, y); }, internal::for_mesh({.mesh = mesh}));
  }
  double train(int64_t i) {
    const Tensor x = (arange(64) * (i + 3) % 48).to(kInt32).reshape({4, 16});
    return (*step)(x, x)[0].item<double>();
  }
  HealedCells heal(int place, const std::vector<std::vector<Ref<Communicator>>>& all, bool whole = false) {
    const Tensor x = zeros({4, 16}, {.dtype = kInt32});
    step->prepare(x, x);
    return heal_cells(
        world, training->named_cells(), shards_of(*step, /*made=*/place == 0),
        [&](int rank) { return all[rank][place]; }, {false, true}, place, place == 0 ? "the record" : "",
        std::chrono::steady_clock::now() + std::chrono::minutes(1), /*from_first=*/whole, whole);
  }
  std::vector<Tensor> values() const {
    std::vector<Tensor> all;
    for (const auto& [name, cell] : training->named_cells()) all.push_back(cell.value().contiguous());
    return all;
  }

  Mesh mesh;
  World world;
  std::unique_ptr<GptTraining> training;
  std::optional<Compiled<std::function<std::vector<Tensor>(Tensor, Tensor)>>> step;
};

void expect_equal(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const auto n = static_cast<size_t>(a[i].type().nbytes());
    EXPECT_EQ(std::memcmp(a[i].view_for_kernel().data, b[i].view_for_kernel().data, n), 0) << i;
  }
}

std::vector<std::vector<Ref<Communicator>>> two_groups() {
  return {make_thread_communicators(2, "replica"), make_thread_communicators(2, "replica")};
}

TEST(HealCells, AJoinerContinuesWithTheBitsOfTheDonor) {
  for (const bool fresh : {true, false}) {
    Replica donor(1), joiner(2);
    for (int i = 0; i < 3; ++i) donor.train(i);
    if (!fresh) joiner.train(9);
    const auto groups = two_groups();
    std::thread other([&] { EXPECT_FALSE(donor.heal(0, groups).adopt); });
    const std::vector<Tensor> before = fresh ? std::vector<Tensor>() : joiner.values();
    const HealedCells healed = joiner.heal(1, groups);
    other.join();
    EXPECT_EQ(healed.record, "the record");
    if (!fresh) expect_equal(joiner.values(), before);
    healed.adopt();
    for (int i = 3; i < 5; ++i) EXPECT_EQ(donor.train(i), joiner.train(i));
    expect_equal(donor.values(), joiner.values());
  }
}

// The cells of a donor whose last step was on one device are whole. They get shards first.
TEST(HealCells, ADonorWithWholeValues) {
  Replica donor(1), joiner(2);
  Replica twin(1);
  const auto groups = two_groups();
  std::thread other([&] { donor.heal(0, groups); });
  joiner.heal(1, groups).adopt();
  other.join();
  expect_equal(joiner.values(), twin.values());
}

TEST(HealCells, AnErrorOfOneRankLeavesAllCells) {
  Replica donor(1), joiner(2);
  donor.train(0);
  joiner.train(9);
  const std::vector<Tensor> before = joiner.values(), donor_before = donor.values();
  const auto groups = two_groups();
  groups[1][0]->abort("rank 1 of the donor has died");
  std::string text;
  std::thread other([&] { text = weft::testing::error_of([&] { donor.heal(0, groups); }); });
  EXPECT_NE(weft::testing::error_of([&] { joiner.heal(1, groups); }), "");
  other.join();
  EXPECT_NE(text, "");
  expect_equal(joiner.values(), before);
  expect_equal(donor.values(), donor_before);
  const auto again = two_groups();
  std::thread healthy([&] { donor.heal(0, again); });
  joiner.heal(1, again).adopt();
  healthy.join();
  EXPECT_EQ(donor.train(1), joiner.train(1));
}

TEST(HealCells, WholeCellsGoToAnotherMesh) {
  Replica donor(1), joiner(2, "tp2");
  donor.train(0);
  joiner.train(9);
  const auto groups = two_groups();
  const std::vector<Tensor> before = joiner.values();
  std::thread other([&] { EXPECT_FALSE(donor.heal(0, groups, /*whole=*/true).adopt); });
  const HealedCells healed = joiner.heal(1, groups, /*whole=*/true);
  other.join();
  EXPECT_EQ(healed.record, "the record");
  expect_equal(joiner.values(), before);
  healed.adopt();
  expect_equal(joiner.values(), donor.values());
  joiner.train(1);  // on the shards
}

TEST(HealCells, RefusesAnotherPlacement) {
  Replica donor(1), joiner(2, "tp2");
  const auto groups = two_groups();
  std::thread other([&] { weft::testing::error_of([&] { donor.heal(0, groups); }); });
  weft::testing::expect_error([&] { joiner.heal(1, groups); },
                              "; need the same model, optimiser and mesh in all replicas");
  other.join();
}

}  // namespace
}  // namespace weft::dist
