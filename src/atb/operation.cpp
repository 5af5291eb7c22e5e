// AllToAllVV2 and OperationTorch: checks, then all_to_all_v in the domain.
#include "atb/agreement.hpp"
#include "atb/domain.hpp"
#include "atb/inputs.hpp"
#include "atb/meeting.hpp"
#include "atb/param.hpp"
#include "core/log.hpp"

#include <tutti/atb.hpp>
#include <tutti/distributed.hpp>

#include <fmt/format.h>

#include <cstddef>
#include <functional>
#include <new>
#include <optional>
#include <tuple>
#include <utility>

namespace tutti::atb {
namespace {

constexpr const char* operation_name = "AllToAllVV2Operation";
/// In the context of an error that agree() throws: nothing has moved, and the group is as good as before.
constexpr const char* all_ranks_know = "AllToAllVV2";

bool share_memory(const ConstTensorView& a, const ConstTensorView& b) {
    if (!a.contiguous() || !b.contiguous() || a.device() != b.device()) return false;  // all_to_all_v looks closer
    const auto* a_begin = static_cast<const std::byte*>(a.data());
    const auto* b_begin = static_cast<const std::byte*>(b.data());
    const std::less<const std::byte*> before;
    return before(a_begin, b_begin + b.byte_count()) && before(b_begin, a_begin + a.byte_count());
}

bool have_one_domain(const AllToAllVV2Param& a, const AllToAllVV2Param& b) {
    const auto terms = [](const AllToAllVV2Param& p) {
        return std::tie(p.rank, p.rankSize, p.rankRoot, p.commMode, p.rankTableFile, p.commDomain);
    };
    return a.hcclComm == b.hcclComm && terms(a) == terms(b);
}

void check_output(const ConstTensorView& output, const ConstTensorView& x) {
    if (output.dtype() != x.dtype()) {
        throw Error(ERROR_INVALID_TENSOR_DTYPE, fmt::format("AllToAllVV2: output is {}: expected {}, x's type",
                                                            output.to_string(), to_string(x.dtype())));
    }
    if (share_memory(output, x)) {
        throw Error(ERROR_INVALID_TENSOR_ADDR,
                    "AllToAllVV2: output shares memory with x: expected a tensor of its own");
    }
}

}  // namespace

class AllToAllVV2::Impl {
 public:
    explicit Impl(AllToAllVV2Param param) : param_(std::move(param)) {
        try {
            check(param_);
        } catch (const Error& error) {
            tell_others(param_, error);
            throw;
        }
        domain_ = Domain::of(param_);
    }

    const AllToAllVV2Param& param() const noexcept { return param_; }
    ProcessGroup group() const { return domain_->group(); }

    /// The group of a domain that works: if a call has failed, all ranks join another.
    ProcessGroup working_group() {
        if (domain_->is_over()) domain_ = Domain::of(param_);
        return domain_->group();
    }

    /// The call of a rank that may not make it. Ends when the others have been told.
    void refuse(const std::exception& error) noexcept {
        const auto* own = dynamic_cast<const Error*>(&error);
        const bool no_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
        try {
            tell_refused(working_group(),
                         own != nullptr
                             ? *own
                             : Error(no_memory ? ERROR_OUT_OF_HOST_MEMORY : ERROR_INVALID_PARAM, error.what()));
        } catch (const std::exception& silent) {
            TUTTI_DEBUG("a rank cannot tell the others that it was refused: {}", silent.what());
        }
    }

    /// `prepare(group)` checks and makes this rank's part of the call. All ranks throw its error.
    template <class F>
    void call(F prepare) {
        const ProcessGroup group = working_group();
        const std::shared_ptr<Domain> domain = domain_;
        Call call;
        try {
            call = prepare(group);
        } catch (const std::exception& error) {
            refuse(error);
            throw;
        }
        try {
            agree(group, call.x.dtype(), call.exchange.blocks);
            call.exchange.blocks.group = group;
            all_to_all_v(call.output, call.x, call.exchange.blocks);
        } catch (const CollectiveMismatch& error) {
            if (error.context().operation != all_ranks_know) domain->end();
            throw;
        } catch (const DistBackendError&) {
            domain->end();
            throw;
        }
    }

    struct Call {
        TensorView output;
        ConstTensorView x;
        Exchange exchange;
    };

    static Exchange checked(const ProcessGroup& group, const ConstTensorView& x, const AllToAllVV2Inputs& inputs,
                            std::int64_t output_elements = -1) {
        return exchange_of(group.rank(), group.size(), x.element_count(), inputs, output_elements);
    }

    static Call into_new(const ProcessGroup& group, const ConstTensorView& x, const AllToAllVV2Inputs& inputs,
                         Tensor& output) {
        Exchange exchange = checked(group, x, inputs);
        output = zeros(x.dtype(), {1, exchange.output_elements});
        return {output, x, std::move(exchange)};
    }

    static Call into(const TensorView& output, const ProcessGroup& group, const ConstTensorView& x,
                     const AllToAllVV2Inputs& inputs) {
        check_output(output, x);
        return {output, x, checked(group, x, inputs, output.element_count())};
    }

 private:
    AllToAllVV2Param param_;
    std::shared_ptr<Domain> domain_;
};

AllToAllVV2::AllToAllVV2(const AllToAllVV2Param& param) : impl_(std::make_unique<Impl>(param)) {}
AllToAllVV2::~AllToAllVV2() = default;
AllToAllVV2::AllToAllVV2(AllToAllVV2&&) noexcept = default;
AllToAllVV2& AllToAllVV2::operator=(AllToAllVV2&&) noexcept = default;

const AllToAllVV2Param& AllToAllVV2::param() const noexcept {
    return impl_->param();
}
ProcessGroup AllToAllVV2::group() const {
    return impl_->group();
}

std::int64_t AllToAllVV2::output_elements(const ConstTensorView& x, const AllToAllVV2Inputs& inputs) {
    return Impl::checked(impl_->working_group(), x, inputs).output_elements;
}
Tensor AllToAllVV2::execute(const ConstTensorView& x, const AllToAllVV2Inputs& inputs) {
    Tensor output;
    impl_->call([&](const ProcessGroup& group) { return Impl::into_new(group, x, inputs, output); });
    return output;
}
void AllToAllVV2::execute(const TensorView& output, const ConstTensorView& x, const AllToAllVV2Inputs& inputs) {
    impl_->call([&](const ProcessGroup& group) { return Impl::into(output, group, x, inputs); });
}
void AllToAllVV2::refuse(const std::exception& error) noexcept {
    impl_->refuse(error);
}

class OperationTorch::Impl {
 public:
    explicit Impl(std::string name) : name_(std::move(name)) {
        if (name_ != operation_name) {
            throw Error(ERROR_INVALID_PARAM,
                        fmt::format("OperationTorch: \"{}\": expected \"{}\"", name_, operation_name));
        }
    }

    const std::string& name() const noexcept { return name_; }
    // While the old one is there the new one shares its domain.
    void set(const AllToAllVV2Param& param) {
        if (operation_ && !have_one_domain(operation_->param(), param)) operation_.reset();
        operation_ = AllToAllVV2(param);
    }
    void set(AllToAllVV2Inputs inputs) { from_text_ = std::move(inputs); }

    AllToAllVV2* operation() noexcept { return operation_ ? &*operation_ : nullptr; }
    AllToAllVV2& operation(const char* method) {
        if (operation_) return *operation_;
        throw Error(
            ERROR_INVALID_PARAM,
            fmt::format("OperationTorch.{}: there are no parameters: expected a call of set_param before", method));
    }
    const AllToAllVV2& operation(const char* method) const { return const_cast<Impl*>(this)->operation(method); }
    AllToAllVV2Inputs with_text(const AllToAllVV2Inputs& given) const { return merged(from_text_, given); }

 private:
    std::string name_;
    std::optional<AllToAllVV2> operation_;
    AllToAllVV2Inputs from_text_;
};

OperationTorch::OperationTorch(const std::string& opName) : impl_(std::make_unique<Impl>(opName)) {}
OperationTorch::~OperationTorch() = default;
OperationTorch::OperationTorch(OperationTorch&&) noexcept = default;
OperationTorch& OperationTorch::operator=(OperationTorch&&) noexcept = default;

const std::string& OperationTorch::op_name() const noexcept {
    return impl_->name();
}
ProcessGroup OperationTorch::group() const {
    return std::as_const(*impl_).operation("group").group();
}
void OperationTorch::set_param(const std::string& json) {
    impl_->set(param_from_json(json));
}
void OperationTorch::set_param(const AllToAllVV2Param& param) {
    impl_->set(param);
}
void OperationTorch::set_varaintpack_param(const std::string& json) {
    impl_->set(inputs_from_json(json));
}

void OperationTorch::refuse(const std::exception& error) noexcept {
    if (AllToAllVV2* operation = impl_->operation()) operation->refuse(error);
}

std::vector<Tensor> OperationTorch::execute(const std::vector<ConstTensorView>& inTensors) {
    AllToAllVV2& operation = impl_->operation("execute");
    Tensor output;
    operation.impl_->call([&](const ProcessGroup& group) {
        const AllToAllVV2Inputs given = inputs_from_tensors(inTensors);
        return AllToAllVV2::Impl::into_new(group, inTensors.front(), impl_->with_text(given), output);
    });
    return {output};
}
std::int64_t OperationTorch::output_elements(const ConstTensorView& x, const AllToAllVV2Inputs& inputs) {
    return impl_->operation("output_elements").output_elements(x, impl_->with_text(inputs));
}
void OperationTorch::execute(const TensorView& output, const ConstTensorView& x, const AllToAllVV2Inputs& inputs) {
    impl_->operation("execute").execute(output, x, impl_->with_text(inputs));
}

}  // namespace tutti::atb
