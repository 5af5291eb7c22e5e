// message_of<Timeout>([] { … }): what a call says when it throws that error, which it must.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace tutti::test {

template <class Error, class F>
std::string message_of(F call) {
    try {
        call();
    } catch (const Error& error) {
        return error.what();
    }
    ADD_FAILURE() << "no error";
    return {};
}

}  // namespace tutti::test
