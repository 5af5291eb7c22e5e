#include "core/rethrow_about.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <typeinfo>

namespace tutti {
namespace {

template <class Error>
class Retold : public testing::Test {};
using Errors = testing::Types<PeerLost, Timeout, CollectiveMismatch, Aborted, DistBackendError, DistNetworkError,
                              DistStoreError, InvalidArgument, InternalError>;
TYPED_TEST_SUITE(Retold, Errors);

TYPED_TEST(Retold, error_keeps_its_class_code_and_peer_and_names_the_call) {
    const TypeParam cause("all_reduce #3: rank 2 is gone", {.operation = "all_reduce", .sequence = 3, .peer = 2});
    try {
        rethrow_about(std::make_exception_ptr(cause), "broadcast",
                      {.operation = "broadcast", .group = "dp", .rank = 1});
    } catch (const DistError& error) {
        EXPECT_EQ(typeid(error), typeid(TypeParam));
        EXPECT_EQ(error.code(), cause.code());
        EXPECT_STREQ(error.what(), "broadcast: all_reduce #3: rank 2 is gone");
        EXPECT_EQ(error.context().operation, "broadcast");
        EXPECT_EQ(error.context().sequence, 0U);
        EXPECT_EQ(error.context().group, "dp");
        EXPECT_EQ(error.context().rank, 1);
        EXPECT_EQ(error.context().peer, 2);
    }
}

TEST(RetoldErrors, keep_the_code_of_an_interrupt) {
    const auto cause = std::make_exception_ptr(Aborted("a signal", {}, ErrorCode::interrupted));
    try {
        rethrow_about(cause, "send", {});
    } catch (const Aborted& error) {
        EXPECT_EQ(error.code(), ErrorCode::interrupted);
    }
}

TEST(RetoldErrors, of_others_stay_as_they_are) {
    EXPECT_THROW(rethrow_about(std::make_exception_ptr(std::out_of_range("x")), "send", {}), std::out_of_range);
}

}  // namespace
}  // namespace tutti
