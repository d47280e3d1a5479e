// Prints the loss of the exported step, which must equal the bits in use_all's exported_step.txt.
#include <cstdio>
#include <iostream>
#include <vector>

#include "exported_step.h"

int main() {
  try {
    std::vector<float> x(32), y(16, 1.0f);
    for (int i = 0; i < 32; ++i) x[i] = static_cast<float>(i) / 32;
    exported_step step;
    const weft::Tensor loss = step(weft::Tensor::from_vector(x, {8, 4}), weft::Tensor::from_vector(y, {8, 2}));
    std::cout << std::hexfloat << loss.item<float>() << "\n";
  } catch (const std::exception& e) {
    return std::fprintf(stderr, "run_step: %s\n", e.what()), 1;
  }
}
