// The CPU targets that kernels are compiled for; included before <hwy/foreach_target.h>.
//
// Each target costs compile time, so the list is short: AVX-512, AVX2 and a scalar fallback on x86, NEON on Arm.
// (The variants of AVX-512 add nothing that these kernels use; scalable vectors cannot be members of the codecs.)
#define HWY_DISABLED_TARGETS \
    (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
