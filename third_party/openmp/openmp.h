// The one function of OpenMP that we call: clang has no <omp.h> that fits g++'s libgomp.
#pragma once

extern "C" void omp_set_num_threads(int) noexcept;
