// covers("S8-006", "E-101"): the running test shows these rows of the inventory. They count when it passes.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>

namespace tutti::test {

void covers_row(std::string_view id);

template <class... Ids>
void covers(const Ids&... ids) {
    (covers_row(ids), ...);
}

}  // namespace tutti::test
