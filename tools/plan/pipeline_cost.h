// Schedules of a pipeline in closed form, for searches over many. vectors_test.cc compares them with the tables that
// ranks run.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace weft::planner {

/// A schedule's bubble on two or more ranks that commit together, for one rank's seconds of F, I and W of a microbatch
/// (vectors V42-V47 and V48, whose table is used without joined pairs, as trainers run it). alive_microbatches() is the
/// largest number of microbatches, in units of a rank's whole depth, that `rank` keeps alive. The bubbles of zb_2p,
/// zb_v and dualpipe_v hold for 2 * ranks or more microbatches.
double bubble_seconds(const std::string& schedule, int ranks, int stages_per_rank, double forward, double input,
                      double weight);
double alive_microbatches(const std::string& schedule, int ranks, int stages_per_rank, int64_t microbatches,
                          int rank = 0);

/// The schedules that the search tries, with the stages of a rank.
inline constexpr std::pair<const char*, int> kSchedules[] = {
    {"gpipe", 1}, {"1f1b", 1}, {"interleaved_1f1b", 2}, {"interleaved_1f1b", 4}, {"zb_h1", 1},
    {"zb_2p", 1}, {"zb_v", 2}, {"dualpipe_v", 2}};

/// The number of layers of each stage; the last stage also contains the head, which costs as much as `head` layers.
std::vector<int64_t> stage_layers(int64_t layers, double head, int stages);

}  // namespace weft::planner
