// Devices: the kinds of devices of this machine, the default backend of each, and a group's default timeout.
//
// Threads: any.
#pragma once

#include <tutti/tensor.hpp>

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::backend {

/// The backend that serves each kind of device.
using Devices = std::map<Device::Type, std::string>;
/// The text that parse() reads.
std::string to_string(const Devices& devices);

/// The kinds of devices that this machine has, besides host memory: by the files that their drivers make, in the file
/// system `root`. None of NVIDIA's where CUDA_VISIBLE_DEVICES hides all.
std::vector<Device::Type> devices_of_machine(const std::filesystem::path& root);
/// The kinds of the machine itself, as it was at the first call.
const std::vector<Device::Type>& devices_of_machine();

/// The backend that serves a kind of device if none is named: native, nccl, rccl, hccl, xccl.
std::string_view usual_backend(Device::Type type);

/// The name by which get_backend() calls a group with these: the backend of a device of `machine` where it is the usual
/// one, as in groups whose backend was left out; else of host memory, or else the first.
const std::string& main_backend(const Devices& devices, const std::vector<Device::Type>& machine);

/// The timeout of operations in a group that gives none: 10 minutes where NCCL, or a library like it, does all of them,
/// as their kernels occupy the device while they wait; else 30.
std::chrono::milliseconds default_timeout_of(const Devices& devices);

}  // namespace tutti::backend
