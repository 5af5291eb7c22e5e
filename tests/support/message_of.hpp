// message_of<Timeout>([] { … }): what a call says when it throws that error, which it must.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <string>

namespace tutti::test {

template <class Error, class F>
std::string message_of(F call) {
    try {
        call();
    } catch (const Error& error) {
        return error.what();
    } catch (const std::exception& error) {
        ADD_FAILURE() << "another error: " << error.what();
        return {};
    }
    ADD_FAILURE() << "no error";
    return {};
}

}  // namespace tutti::test
