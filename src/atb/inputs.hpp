// Inputs: the arguments of an AllToAllVV2 besides its tensor, checked, as all_to_all_v wants them. Free functions; any
// thread.
#pragma once

#include <tutti/atb.hpp>
#include <tutti/distributed.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::atb {

/// One call: blocks, and the least length of the output, which a new one has.
struct Exchange {
    AllToAllVOptions blocks;  ///< all four lists, without a group
    std::int64_t output_elements = 0;
};

/// Throws Error with ATB's code for impossible inputs. `output_elements`: of an output that is there; -1: there is
/// none.
Exchange exchange_of(int rank, int ranks, std::int64_t input_elements, const AllToAllVV2Inputs& inputs,
                     std::int64_t output_elements = -1);

/// From the text of set_varaintpack_param.
AllToAllVV2Inputs inputs_from_json(const std::string& text);
/// From the tensors behind x; an empty one counts as not given. Throws Error.
AllToAllVV2Inputs inputs_from_tensors(const std::vector<ConstTensorView>& tensors);
/// Each field of `first`, or of `second` where `first` has none.
AllToAllVV2Inputs merged(const AllToAllVV2Inputs& first, const AllToAllVV2Inputs& second);

}  // namespace tutti::atb
