// Inputs: the arguments of an AllToAllVV2 besides its tensor, checked, and converted to those of all_to_all_v. Free
// functions; any thread.
#pragma once

#include <tutti/atb.hpp>
#include <tutti/distributed.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::atb {

/// One call: its blocks, and the minimum length of the output, which is also the length of an output that tutti
/// allocates.
struct Exchange {
    AllToAllVOptions blocks;  ///< all four lists, without a group
    std::int64_t output_elements = 0;
};

/// Throws Error with ATB's code for impossible inputs. `output_elements`: length of the caller's output; -1: it has
/// none.
Exchange exchange_of(int rank, int ranks, std::int64_t input_elements, const AllToAllVV2Inputs& inputs,
                     std::int64_t output_elements = -1);

/// Reads the text of set_varaintpack_param.
AllToAllVV2Inputs inputs_from_json(const std::string& text);
/// Reads the tensors that follow x; an empty tensor counts as not given. Throws Error.
AllToAllVV2Inputs inputs_from_tensors(const std::vector<ConstTensorView>& tensors);
/// Takes each field from `first`, or from `second` if it is empty there.
AllToAllVV2Inputs merged(const AllToAllVV2Inputs& first, const AllToAllVV2Inputs& second);

}  // namespace tutti::atb
