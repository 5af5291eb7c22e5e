#include "tensor/user_operator.hpp"

#include "core/assert.hpp"
#include "core/hash.hpp"

#include <tutti/error.hpp>

#include <fmt/format.h>

#include <map>
#include <mutex>

namespace tutti::detail {
namespace {

std::uint16_t digest_of(std::size_t element_bytes, const std::string& name) {
    const std::uint64_t hash = fnv1a(name, fnv1a_word(fnv1a_basis, element_bytes));
    return static_cast<std::uint16_t>(hash ^ hash >> 16 ^ hash >> 32 ^ hash >> 48);
}

// Never destroyed: messages are made while the process ends, too. A program that makes more operators than this gets
// shorter messages.
constexpr std::size_t known_max = 1000;
struct Known {
    std::mutex mutex;
    std::map<std::uint16_t, std::string> texts;
};
Known& known() {
    static auto* const instance = new Known;
    return *instance;
}

}  // namespace

UserOperator::UserOperator(const OperatorParts& parts, const OperatorOptions& options)
    : parts_(parts),
      name_(options.name),
      commutative_(options.commutative),
      digest_(digest_of(parts.element_bytes, options.name)) {
    const auto refuse = [](const std::string& why) { throw InvalidArgument("ReduceOp.of: " + why); };
    if (parts.function == nullptr) refuse("no function: expected one");
    if (parts.element_bytes == 0 || parts.element_bytes > element_bytes_max)
        refuse(fmt::format("elements of {} bytes: expected 1 to {}", parts.element_bytes, element_bytes_max));
    if (parts.dtype != DType::uint8 && size_of(parts.dtype) != parts.element_bytes)
        refuse(fmt::format("elements of {} bytes in tensors of {}: expected {}, or uint8", parts.element_bytes,
                           tutti::to_string(parts.dtype), size_of(parts.dtype)));
    TUTTI_ASSERT(parts.alignment > 0 && (parts.alignment & (parts.alignment - 1)) == 0);
    TUTTI_ASSERT(parts.element_bytes % parts.alignment == 0);
    const std::lock_guard lock(known().mutex);
    if (known().texts.size() < known_max) known().texts.emplace(digest_, to_string());
}

UserOperator::~UserOperator() {
    if (parts_.destroy != nullptr) parts_.destroy(parts_.context);
}

std::string UserOperator::to_string() const {
    const std::string named = name_.empty() ? "an operator without a name" : fmt::format("operator \"{}\"", name_);
    return fmt::format("{} of {}-byte elements", named, parts_.element_bytes);
}

std::string describe_operator(std::uint16_t digest) {
    const std::lock_guard lock(known().mutex);
    const auto found = known().texts.find(digest);
    return found != known().texts.end() ? found->second : "an operator of another name or element size";
}

void OperatorHandle::hold() const noexcept {
    shared_->hold();
}
void OperatorHandle::release() const noexcept {
    shared_->release();
}

}  // namespace tutti::detail

namespace tutti {

// The function's owner is the operator, from its first member on: what a constructor throws may not leak it.
ReduceOp::ReduceOp(const detail::OperatorParts& parts, const OperatorOptions& options) : kind_(Kind::user), factor_(1) {
    try {
        user_ = detail::OperatorHandle(new detail::UserOperator(parts, options));
    } catch (...) {
        if (parts.destroy != nullptr) parts.destroy(parts.context);
        throw;
    }
}

ReduceOp ReduceOp::of(OperatorFunction f, void* context, std::size_t element_bytes, DType dtype,
                      const OperatorOptions& options) {
    std::size_t alignment = 1;
    while (alignment < 16 && element_bytes % (2 * alignment) == 0 && element_bytes > 0) alignment *= 2;
    return {
        detail::OperatorParts{
            .function = f, .context = context, .element_bytes = element_bytes, .alignment = alignment, .dtype = dtype},
        options};
}

std::string ReduceOp::name() const {
    return user() != nullptr ? user()->name() : std::string(to_string(kind_));
}

bool ReduceOp::commutative() const noexcept {
    return user() == nullptr || user()->commutative();
}

std::size_t ReduceOp::element_bytes() const noexcept {
    return user() == nullptr ? 0 : user()->parts().element_bytes;
}

}  // namespace tutti
