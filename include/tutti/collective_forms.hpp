// The parameter lists of the collectives' functions, as macros: for each form that the table names
// (tutti/collectives.def), the C++ parameters (the tensors, then the options), and the arguments that forward them.
// Asynchronous functions, plans and methods are declared and defined with them.
//
// For example `#define TUTTI_COLLECTIVE_FUNCTION(name, collective, tensors, Options, ...) Plan
// name(TUTTI_PARAMETERS_##tensors(Options));` before the table is included declares a function that makes a plan, for
// each row.
//
// A file that uses these macros first defines TUTTI_OR_NONE, the text after a parameter that a caller may omit: the
// default argument in a declaration, nothing in a definition.
#pragma once

#define TUTTI_PARAMETERS_TensorInPlace(Options) TensorView tensor, const Options &options TUTTI_OR_NONE
#define TUTTI_ARGUMENTS_TensorInPlace(options) tensor, options
// The options must name the root, so they have no default.
#define TUTTI_PARAMETERS_TensorAndRoot(Options) TensorView tensor, const Options &options
#define TUTTI_ARGUMENTS_TensorAndRoot(options) tensor, options

#define TUTTI_PARAMETERS_TensorFromTensor(Options) \
    TensorView output, ConstTensorView input, const Options &options TUTTI_OR_NONE
#define TUTTI_ARGUMENTS_TensorFromTensor(options) output, input, options

#define TUTTI_PARAMETERS_TensorFromList(Options) \
    TensorView output, const ConstTensorList &inputs, const Options &options TUTTI_OR_NONE
#define TUTTI_ARGUMENTS_TensorFromList(options) output, inputs, options
// The root alone gives the list.
#define TUTTI_PARAMETERS_TensorFromRoot(Options) \
    TensorView output, const ConstTensorList &inputs TUTTI_OR_NONE, const Options &options TUTTI_OR_NONE
#define TUTTI_ARGUMENTS_TensorFromRoot(options) output, inputs, options

// The root alone gives the tensor that holds all blocks.
#define TUTTI_PARAMETERS_TensorToRoot(Options) \
    ConstTensorView input, const TensorView &output TUTTI_OR_NONE, const Options &options TUTTI_OR_NONE
#define TUTTI_ARGUMENTS_TensorToRoot(options) input, output, options
#define TUTTI_PARAMETERS_TensorOfRoot(Options) \
    TensorView output, const ConstTensorView &input TUTTI_OR_NONE, const Options &options TUTTI_OR_NONE
#define TUTTI_ARGUMENTS_TensorOfRoot(options) output, input, options

#define TUTTI_PARAMETERS_ListFromTensor(Options) \
    const TensorList &outputs, ConstTensorView input, const Options &options TUTTI_OR_NONE
#define TUTTI_ARGUMENTS_ListFromTensor(options) outputs, input, options
// The root alone gives the list.
#define TUTTI_PARAMETERS_ListToRoot(Options) \
    ConstTensorView input, const TensorList &outputs TUTTI_OR_NONE, const Options &options TUTTI_OR_NONE
#define TUTTI_ARGUMENTS_ListToRoot(options) input, outputs, options

#define TUTTI_PARAMETERS_ListFromList(Options) \
    const TensorList &outputs, const ConstTensorList &inputs, const Options &options TUTTI_OR_NONE
#define TUTTI_ARGUMENTS_ListFromList(options) outputs, inputs, options

#define TUTTI_PARAMETERS_NoTensors(Options) const Options& options TUTTI_OR_NONE
#define TUTTI_ARGUMENTS_NoTensors(options) options

// Coalesced calls: one tensor for each call, or for each rank a list with one tensor for each call.
#define TUTTI_PARAMETERS_ListInPlace(Options) const TensorList &tensors, const Options &options TUTTI_OR_NONE
#define TUTTI_ARGUMENTS_ListInPlace(options) tensors, options
#define TUTTI_PARAMETERS_ListsFromList(Options) \
    const std::vector<TensorList>&outputs, const ConstTensorList &inputs, const Options &options TUTTI_OR_NONE
#define TUTTI_ARGUMENTS_ListsFromList(options) outputs, inputs, options
