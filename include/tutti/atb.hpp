// AllToAllVV2: an operation of Huawei's Ascend Transformer Boost (ATB), on tutti, with ATB's parameters, names and
// error codes. It runs all_to_all_v (distributed.hpp), which programs without ATB use directly.
//
//     tutti::atb::AllToAllVV2 operation({.rank = rank, .rankSize = 2});
//     tutti::Tensor output = operation.execute(x, {.sendCounts = {2, 4}, .recvCounts = {2, 2}});
//
// The ranks that exchange values form a domain. They make it together, in the constructor of the operation, from the
// first of these sources that the parameters name:
//   hcclComm       a group that the caller has already
//   rankTableFile  the ranks that the file lists, on the hosts that it lists: JSON of the versions 1.0 and 1.2, the
//                  older form with group_list, the form of several groups with server_group_list (docs/atb.md)
//   commMode       COMM_MULTI_THREAD: the threads of this process
//   otherwise      the processes of this host that have the same MASTER_ADDR and MASTER_PORT, else the same
//                  TUTTI_JOB_SECRET, else the same parent (or are parent and child); under `tutti run` all of its job
// Operations of one rank with the same commDomain share one domain, which exists until the last of them is destroyed. A
// domain leaves nothing in a file system and does not outlive its processes, so there is nothing to clean up after a
// crash.
//
// Threads: an operation belongs to one thread at a time; operations of different ranks to different threads.
// Follows ATB 8.x. What ATB calls a card is a rank here, unless a comment says otherwise.
#pragma once

#include <tutti/error.hpp>
#include <tutti/export.hpp>
#include <tutti/process_group.hpp>
#include <tutti/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

struct tutti_group;  // tutti.h

namespace tutti::atb {

/// ATB's error codes that tutti uses, with ATB's names and numbers.
enum ErrorType : int {
    NO_ERROR = 0,
    ERROR_INVALID_PARAM = 1,          ///< an invalid parameter, rank table, count or displacement
    ERROR_INVALID_IN_TENSOR_NUM = 5,  ///< too few or too many inputs
    ERROR_INVALID_TENSOR_DTYPE = 6,   ///< an invalid element type
    ERROR_INVALID_TENSOR_DIM = 8,     ///< not one count or displacement for each rank, an output of a wrong length
    ERROR_INVALID_TENSOR_ADDR = 14,   ///< input and output share memory
    ERROR_OUT_OF_HOST_MEMORY = 27,    ///< another rank has no memory for its output
};
/// "ERROR_INVALID_PARAM"; "unknown" for other numbers.
TUTTI_API const char* to_string(ErrorType code) noexcept;

/// A call that ATB would refuse. Thrown before anything moves; the message names the argument, its value and the rule.
/// If another rank was refused, context().peer is that rank.
class TUTTI_API Error : public InvalidArgument {
 public:
    Error(ErrorType code, const std::string& message, ErrorContext context = {});
    ~Error() override;
    ErrorType code() const noexcept { return code_; }

 private:
    ErrorType code_;
};

enum CommMode : int {
    COMM_UNDEFINED = -1,  ///< refused
    COMM_MULTI_PROCESS,   ///< each rank is a process
    COMM_MULTI_THREAD,    ///< each rank is a thread of this process
};

/// An existing group: a ProcessGroup, or a handle of tutti.h; nullptr: none (the operation makes its own domain).
class HcclComm {
 public:
    HcclComm(std::nullptr_t = nullptr) noexcept {}                       // NOLINT(google-explicit-constructor)
    HcclComm(ProcessGroup group) noexcept : group_(std::move(group)) {}  // NOLINT(google-explicit-constructor)
    /// Throws InvalidArgument for a pointer that is not a handle of a group. NULL: no group.
    TUTTI_API HcclComm(tutti_group* handle);  // NOLINT(google-explicit-constructor)

    explicit operator bool() const noexcept { return group_ || group_.is_non_member(); }
    const ProcessGroup& group() const noexcept { return group_; }
    friend bool operator==(const HcclComm&, const HcclComm&) = default;

 private:
    ProcessGroup group_;
};

struct AllToAllVV2Param {
    int rank = -1;                           ///< this rank in the domain, 0 … rankSize-1; -1: only if rankSize is 1
    int rankSize = 0;                        ///< number of ranks of the domain; may be 0 with a rank table
    int rankRoot = 0;                        ///< the rank at which the others meet; equal on all ranks
    std::string backend = "hccl";            ///< must be "hccl"; tutti moves the data
    HcclComm hcclComm = nullptr;             ///< takes precedence: rank, rankSize and rankRoot do not count
    CommMode commMode = COMM_MULTI_PROCESS;  ///< whether ranks are processes or threads
    std::string rankTableFile;               ///< path of a rank table; overrides commMode
    std::string commDomain;                  ///< tells several domains apart; at most 128 characters
    std::uint8_t rsv[64] = {0};              ///< zeros
};

/// Where the blocks are, in elements, one entry for each rank. An empty vector is an input that is not given.
struct AllToAllVV2Inputs {
    std::vector<std::int64_t> sendCounts;  ///< to rank i; not given: x in equal parts
    std::vector<std::int64_t> sdispls;     ///< where block i begins in x; not given: back to back
    std::vector<std::int64_t> recvCounts;  ///< from rank i; not given: the output in equal parts
    std::vector<std::int64_t> rdispls;     ///< where block i goes in the output; not given: back to back
    /// Elements of the output: the length of ATB's tensorForInferShape. -1, not given: up to the end of the last block;
    /// without recvCounts: as many as x has.
    std::int64_t inferShape = -1;
    std::vector<std::int64_t> sendCount;  ///< another name of sendCounts; give only one of the two
};

/// Each rank sends a block from anywhere in its input to each rank, and places the blocks that it gets anywhere in its
/// output. Any dtype.
class TUTTI_API AllToAllVV2 {
 public:
    /// Makes or joins the domain; returns when all of its ranks have come. Throws Error for impossible parameters
    /// (ranks that wait for this one get it too, where this rank can reach them), and the errors of ProcessGroup's
    /// constructor.
    explicit AllToAllVV2(const AllToAllVV2Param& param);
    ~AllToAllVV2();
    AllToAllVV2(AllToAllVV2&&) noexcept;
    AllToAllVV2& operator=(AllToAllVV2&&) noexcept;

    const AllToAllVV2Param& param() const noexcept;
    /// The domain's group, or hcclComm's; empty after a failed call, until the next call.
    ProcessGroup group() const;

    /// The number of elements of the output. Checks this rank's inputs as execute() does, and throws the same Error;
    /// sends nothing.
    std::int64_t output_elements(const ConstTensorView& x, const AllToAllVV2Inputs& inputs = {});
    /// Returns a new tensor [1, output_elements] with zeros where no block is placed. Collective: all ranks call it; it
    /// blocks until they have, and until this rank's blocks have arrived.
    ///
    /// errors   Thrown on every rank, before anything moves; the group stays usable. Error: a negative count or
    ///          displacement, not one for each rank, a block beyond x or the output, blocks that overlap in the
    ///          output, an output of a wrong length; on the other ranks it names the refused rank.
    ///          CollectiveMismatch: a rank sends another count or type than its peer expects. Other errors as
    ///          all_to_all_v: after them a domain that the operation made is over; the next call makes a new one.
    Tensor execute(const ConstTensorView& x, const AllToAllVV2Inputs& inputs = {});
    /// As above, but writes into `output`: a tensor of x's dtype and any shape, which must not share memory with x and
    /// may be longer than the blocks need. Elements that no block covers keep their values.
    void execute(const TensorView& output, const ConstTensorView& x, const AllToAllVV2Inputs& inputs = {});
    /// Call this instead of execute() if this rank cannot make its inputs: the other ranks' calls throw Error.
    void refuse(const std::exception& error) noexcept;

 private:
    friend class OperationTorch;
    class Impl;
    std::unique_ptr<Impl> impl_;
};

/// The class with which ATB's tests run any operation; it takes parameters as JSON texts.
class TUTTI_API OperationTorch {
 public:
    /// `opName`: "AllToAllVV2Operation"; throws Error for any other name.
    explicit OperationTorch(const std::string& opName);
    ~OperationTorch();
    OperationTorch(OperationTorch&&) noexcept;
    OperationTorch& operator=(OperationTorch&&) noexcept;

    const std::string& op_name() const noexcept;
    /// {"rank": 0, "rankSize": 2, "rankRoot": 0, "backend": "hccl", "commMode": 0, "rankTableFile": "…",
    /// "commDomain": "…"}; a key that is missing has its default. Makes or joins the domain, as AllToAllVV2 does.
    void set_param(const std::string& json);
    /// As above, from a structure; it may contain an hcclComm.
    void set_param(const AllToAllVV2Param& param);
    /// {"sendCounts": […], "sdispls": […], "recvCounts": […], "rdispls": […]}: these lists override the tensors that
    /// execute() gets; for a missing key execute() uses its tensor. Applies until the next call of
    /// set_varaintpack_param.
    void set_varaintpack_param(const std::string& json);
    /// `inTensors`: the first 1 to 6 of {x, sendCounts, sdispls, recvCounts, rdispls, tensorForInferShape}; an empty
    /// tensor counts as not given. Counts and displacements are integers in host memory; of tensorForInferShape only
    /// the number of elements matters. Returns one output. Errors as AllToAllVV2::execute, and Error before a call of
    /// set_param.
    std::vector<Tensor> execute(const std::vector<ConstTensorView>& inTensors);
    /// As AllToAllVV2's functions of these names, with the lists of set_varaintpack_param.
    std::int64_t output_elements(const ConstTensorView& x, const AllToAllVV2Inputs& inputs);
    void execute(const TensorView& output, const ConstTensorView& x, const AllToAllVV2Inputs& inputs);
    /// As AllToAllVV2::refuse.
    void refuse(const std::exception& error) noexcept;
    ProcessGroup group() const;

 private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace tutti::atb
