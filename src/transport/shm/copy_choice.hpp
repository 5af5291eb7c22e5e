// CopyChoice: which of two ways of handing values to others took less lately, through the staging area or copied by the
// kernel.
//
// Copying into the staging area takes two to three times as long where the CPUs share no core, and a virtual machine
// moves them about many times while a program runs; what the kernel's copying takes depends on pages and caches of both
// sides. Whoever publishes may decide each time, since readers take both. So each use is timed, and the slower way is
// tried again now and then: adaptive selection as in STAR-MPI (Faraj, Yuan, Lowenthal, 2006), between two ways of
// copying instead of between algorithms, so that nothing has to be agreed.
//
// Threads: one at a time.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace tutti::transport {

class CopyChoice {
 public:
    enum class Way : std::uint8_t { kernel, staging };
    /// A trial lasts for so many bytes, and uses: the first ones find what they write in other caches. If its way then
    /// takes little more than the other, which is in use, it goes on, so many times as long: caches settle slowly.
    static constexpr std::size_t bytes_of_trial = std::size_t{8} << 20;
    static constexpr std::uint32_t uses_of_trial = 12, longer = 3;
    static constexpr double little_more = 1.15;
    /// At first; then ever more, up to `most`: buffers that are used often get huge pages.
    static constexpr std::uint32_t uses_between_trials = 16, most_between_trials = 512;
    /// Sizes whose uses count together.
    static constexpr std::size_t sizes = 65;
    static std::size_t size_class(std::size_t bytes) { return static_cast<std::size_t>(std::bit_width(bytes)); }

    /// For so many bytes: a trial of each way, then the quicker one, with trials of the other in between. Uses count
    /// apart by powers of two of bytes.
    Way next(std::size_t bytes);
    /// What `way` took for them. More than usual counts a sixteenth, and twice the usual at most: in one use the rank
    /// may not have run, or had new pages to touch, and the way that was left for that would not be tried again soon.
    /// Less counts at once.
    void took(Way way, std::size_t bytes, double ns);

 private:
    struct Lately {
        std::array<double, 2> ns{};  // a byte, by way; 0: not tried
        Way trying = Way::kernel;
        bool may_go_on = false;
        std::uint32_t tries_left = 0, until_trial = uses_between_trials, wait = uses_between_trials;
    };
    Lately& lately(std::size_t bytes);

    std::array<Lately, sizes> by_size_;
};

/// By what the copies belong to: a number that the caller gives each kind of collective.
struct CopyChoices {
    static constexpr std::size_t kinds = 10;
    std::array<CopyChoice, kinds> by_kind;
};

}  // namespace tutti::transport
