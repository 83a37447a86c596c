// For functions whose loops the compiler vectorizes.
#pragma once

// One x86-64 library serves CPUs with and without wider vectors, which take a half to a tenth of the
// time. Results have the same bits. GCC alone has this in every version that is of use here.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define JETOPS_WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define JETOPS_WIDEST
#endif
