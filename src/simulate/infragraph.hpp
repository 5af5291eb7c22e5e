// InfraGraph: a description of devices, their instances and the links between these, as a network.
//
// An instance of a device that has a nic, an xpu or memory, of its own or in a device inside it, is a host; all others
// are switches. Hosts and switches are what the model has (network.hpp); what devices have inside is left out. Switches
// are sorted by their distance from the hosts; those that lie at one distance and share hosts are one switch of a
// level, with the capacity of all their links. Pure functions. The format: https://infragraph.dev (version 2.4).
#pragma once

#include "simulate/network.hpp"

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace tutti::simulate {

/// Whether a file is such a description, rather than another one: by the names of its members.
bool is_infragraph(const nlohmann::json& json);

/// `json`: an infrastructure, or an object that has one as its member. `where` begins messages. `own_us`: what a
/// message takes between two hosts beside the links.
///
/// Throws InvalidArgument that names the place, the value and what is expected: for text that is no such description,
/// and for infrastructures that are no network of equal hosts below equal switches.
Network network_of_infragraph(const nlohmann::json& json, const std::string& where, double own_us);

}  // namespace tutti::simulate
