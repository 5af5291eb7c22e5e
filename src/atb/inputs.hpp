// Inputs: what an AllToAllVV2 is given besides its tensor, checked, as all_to_all_v wants it. Free functions; any
// thread.
#pragma once

#include <tutti/atb.hpp>
#include <tutti/distributed.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::atb {

/// One call: blocks, and how long the output has to be at least, which is how long a new one is.
struct Exchange {
    AllToAllVOptions blocks;  ///< all four lists, without a group
    std::int64_t output_elements = 0;
};

/// Throws Error with ATB's code for what cannot be. `output_elements`: of an output that is there; -1: there is none.
Exchange exchange_of(int rank, int ranks, std::int64_t input_elements, const AllToAllVV2Inputs& inputs,
                     std::int64_t output_elements = -1);

/// Of set_varaintpack_param.
AllToAllVV2Inputs inputs_from_json(const std::string& text);
/// From the tensors behind x; those that are empty are not given. Throws Error.
AllToAllVV2Inputs inputs_from_tensors(const std::vector<ConstTensorView>& tensors);
/// What `first` has, else what `second` has.
AllToAllVV2Inputs merged(const AllToAllVV2Inputs& first, const AllToAllVV2Inputs& second);

}  // namespace tutti::atb
