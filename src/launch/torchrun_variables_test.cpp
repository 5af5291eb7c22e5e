#include "launch/torchrun_variables.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace tutti::launch {
namespace {

const Pod pod{[](std::string_view name) -> std::optional<std::string> {
                  if (name == "PET_MAX_RESTARTS") return "2";
                  if (name == "PET_RDZV_ID") return "job-7";
                  if (name == "PET_LOG_DIR") return "";
                  return std::nullopt;
              },
              [] { return std::string("host"); }};

TEST(TorchrunVariables, say_what_no_flag_says) {
    EXPECT_EQ(flag_or_torchrun("", "--max-restarts", pod).text(), "PET_MAX_RESTARTS=2");
    EXPECT_EQ(flag_or_torchrun("5", "--max-restarts", pod).text(), "--max-restarts 5");
    EXPECT_EQ(flag_or_torchrun("", "--run-id", pod).text(), "PET_RDZV_ID=job-7");
    EXPECT_FALSE(flag_or_torchrun("", "--log-dir", pod)) << "an empty one says nothing";
    EXPECT_FALSE(flag_or_torchrun("", "--no-python", pod));
}

TEST(TorchrunVariables, are_named_where_nothing_reads_them) {
    const auto said = [](const std::vector<const char*>& environment) {
        return unread_torchrun_variables(environment);
    };
    EXPECT_EQ(said({"PATH=/bin", "PET_NNODES=2", "PET_MAX_RESTARTS=3", "PET_ROLE=", "PETER=1"}), "");
    EXPECT_EQ(said({"PET_RDZV_BACKEND=c10d"}), "");
    EXPECT_TRUE(
        said({"PET_RDZV_BACKEND=etcd-v2"}).starts_with("tutti run: PET_RDZV_BACKEND is set, and not read here; "));
    EXPECT_TRUE(said({"PET_ROLE=x", "PET_NNODES=2", "PET_MONITOR_INTERVAL=5"})
                    .starts_with("tutti run: PET_MONITOR_INTERVAL, PET_ROLE are set, and not read here; of torchrun's "
                                 "variables tutti run reads PET_LOG_DIR, PET_MASTER_ADDR, "));
}

}  // namespace
}  // namespace tutti::launch
