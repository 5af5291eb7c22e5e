// Tensor parallelism, as inference engines use it: all ranks share every layer of a transformer and decode one text.
// Each layer has two all_reduces; the ranks agree on the next token by an all_gather of each one's best. Afterwards
// rank 0 decodes alone with the whole model, and compares the tokens and their logits.
//
//   tutti run -n 4 build/examples/transformer [TOKENS]
#include "model.hpp"

#include <tutti/tutti.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

using transformer::Model;
using transformer::Part;
using Clock = std::chrono::steady_clock;

constexpr transformer::Shape shape;
constexpr std::uint64_t seed = 7;
constexpr double tolerance = 1e-3;  // of a logit: the parts' sums are rounded otherwise than the whole

double microseconds_since(Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// Communication of a rank, in microseconds.
struct Times {
    std::vector<double> all_reduces;  // of one token
    double communicating = 0;

    template <class Call>
    double of(Call call) {
        const auto start = Clock::now();
        call();
        const double took = microseconds_since(start);
        communicating += took;
        return took;
    }
};

struct Best {
    float logit;
    float token;  // exact up to 2^24
};

Best best_of(std::span<const float> logits, std::size_t first_token) {
    const auto best = std::ranges::max_element(logits);
    return {*best, static_cast<float>(first_token + static_cast<std::size_t>(best - logits.begin()))};
}

/// The best of all ranks; of equal ones the first, as in a model in one piece.
Best agree(const Best& mine) {
    std::vector<float> all(2 * static_cast<std::size_t>(tutti::get_world_size()));
    tutti::all_gather_into_tensor(all, std::vector{mine.logit, mine.token});
    Best best{all[0], all[1]};
    for (std::size_t i = 2; i < all.size(); i += 2) {
        if (all[i] > best.logit) best = {all[i], all[i + 1]};
    }
    return best;
}

struct Text {
    std::vector<Best> tokens;
    double prompt_us = 0, decoding_us = 0, communicating_us = 0;

    double tokens_per_second() const { return static_cast<double>(tokens.size() - 1) / decoding_us * 1e6; }
};

/// Reads the prompt at once, and decodes `count` tokens, each the likeliest. `choose` makes the best of one part that
/// of all.
template <class Choose>
Text decode(Model& model, std::size_t count, const Times* times, Choose choose) {
    const std::vector<std::size_t> prompt{11, 7, 1964, 512, 3, 3, 99, 1024, 17, 2, 640, 5, 8, 1300, 31, 1};
    Text text;
    auto start = Clock::now();
    text.tokens.push_back(choose(best_of(model.forward(prompt), model.first_token())));
    text.prompt_us = microseconds_since(start);
    const double before = times != nullptr ? times->communicating : 0;
    start = Clock::now();
    while (text.tokens.size() < count) {
        const std::size_t last[] = {static_cast<std::size_t>(text.tokens.back().token)};
        text.tokens.push_back(choose(best_of(model.forward(last), model.first_token())));
    }
    text.decoding_us = microseconds_since(start);
    text.communicating_us = times != nullptr ? times->communicating - before : 0;
    return text;
}

Text decode_together(std::size_t count, Times& times) {
    std::vector<float> one_token(shape.width);
    tutti::Plan add_up = tutti::plan::all_reduce(one_token);  // checked and chosen once, made twice a layer and token
    const Part part{static_cast<std::size_t>(tutti::get_rank()), static_cast<std::size_t>(tutti::get_world_size())};
    Model model(shape, part, seed, [&](std::span<float> values) {
        if (values.size() == one_token.size()) {
            std::ranges::copy(values, one_token.begin());
            times.all_reduces.push_back(times.of([&] { add_up.run(); }));
            std::ranges::copy(one_token, values.begin());
        } else {
            times.of([&] { tutti::all_reduce(values); });
        }
    });
    return decode(model, count, &times, [&times](Best best) {
        times.of([&best] { best = agree(best); });
        return best;
    });
}

Text decode_alone(std::size_t count) {
    Model model(shape, Part{}, seed, [](std::span<float>) {});
    return decode(model, count, nullptr, [](const Best& best) { return best; });
}

bool agrees(const Text& text, const Text& alone) {
    double worst = 0;
    for (std::size_t i = 0; i < text.tokens.size(); ++i) {
        if (text.tokens[i].token != alone.tokens[i].token) {
            std::printf("WRONG: token %zu is %g, and %g in one process\n", i, text.tokens[i].token,
                        alone.tokens[i].token);
            return false;
        }
        const double difference = std::abs(text.tokens[i].logit / alone.tokens[i].logit - 1);
        if (!(difference <= worst)) worst = difference;  // also when it is not a number
    }
    const bool good = worst <= tolerance;
    std::printf("one process: %.0f tokens/s; the same tokens, logits differ by at most %.1e (allowed: %g): %s\n",
                alone.tokens_per_second(), worst, tolerance, good ? "right" : "WRONG");
    return good;
}

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::ranges::nth_element(values, middle);
    return *middle;
}

int run(std::size_t count) {
    tutti::init_process_group();
    Times times;
    const Text text = decode_together(count, times);
    bool good = true;
    std::vector<double> means{text.communicating_us, text.decoding_us};
    tutti::all_reduce(means, {.op = tutti::ReduceOp::avg});
    if (tutti::get_rank() == 0) {
        std::printf("a transformer of %zu layers and width %zu on %d ranks; tokens", shape.layers, shape.width,
                    tutti::get_world_size());
        for (std::size_t i = 0; i < std::min<std::size_t>(8, text.tokens.size()); ++i)
            std::printf(" %g", text.tokens[i].token);
        std::printf(
            " ...\nprompt: %.1f ms; then %.0f tokens/s, of which communication takes %.1f %% (waiting for other"
            " ranks included)\n",
            text.prompt_us / 1e3, text.tokens_per_second(), 100 * means[0] / means[1]);
        std::printf("all_reduce of %zu bytes, twice a layer and token: %.1f us (median of %zu)\n",
                    shape.width * sizeof(float), median(times.all_reduces), times.all_reduces.size());
        good = agrees(text, decode_alone(count));
    }
    tutti::broadcast(good, {.src = 0});
    tutti::destroy_process_group();
    return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    std::size_t count = 64;
    const char* const end = argc > 1 ? argv[1] + std::strlen(argv[1]) : nullptr;
    if (argc > 1 && (std::from_chars(argv[1], end, count).ptr != end || count < 2 || count > 112)) {
        std::fprintf(stderr, "transformer: TOKENS is \"%s\": expected 2 to 112\n", argv[1]);
        return 2;
    }
    try {
        return run(count);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "transformer: %s\n", error.what());
        return 1;
    }
}
