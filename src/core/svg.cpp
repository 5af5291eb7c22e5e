#include "core/svg.hpp"

#include "core/assert.hpp"

#include <cmath>

namespace tutti::svg {

std::string escaped(std::string_view text) {
    std::string result;
    for (const char c : text) {
        switch (c) {
            case '<': result += "&lt;"; break;
            case '>': result += "&gt;"; break;
            case '&': result += "&amp;"; break;
            case '"': result += "&quot;"; break;
            default: result += static_cast<unsigned char>(c) < 0x20 && c != '\n' ? ' ' : c;
        }
    }
    return result;
}

double mark_distance(double total) {
    TUTTI_ASSERT(total > 0);
    const double least = total / 6, power = std::pow(10, std::floor(std::log10(least)));
    for (const double factor : {1., 2., 5.}) {
        if (factor * power >= least) return factor * power;
    }
    return 10 * power;
}

}  // namespace tutti::svg
