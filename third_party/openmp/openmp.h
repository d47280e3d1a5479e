// The functions of OpenMP that we call: clang has no <omp.h> that fits g++'s libgomp.
#pragma once

extern "C" void omp_set_num_threads(int) noexcept;
extern "C" int omp_get_max_threads() noexcept;
