// The target that FUZZ_TARGET names, under libFuzzer; see tools/fuzz.
#include "targets.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>

namespace {

const tutti::fuzz::Target& chosen() {
    static const tutti::fuzz::Target target = [] {
        const char* name = std::getenv("FUZZ_TARGET");
        for (const tutti::fuzz::Target& one : tutti::fuzz::targets()) {
            if (name != nullptr && one.name == name) return one;
        }
        tutti::fuzz::wrong("FUZZ_TARGET names no target: expected a folder's name of tests/fuzz/corpus");
    }();
    return target;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    chosen().run({reinterpret_cast<const char*>(data), size});
    return 0;
}
