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
/// "device:name,device:name", as parse() reads it.
std::string to_string(const Devices& devices);

/// The kinds of devices of this machine, besides host memory, found by their drivers' files in the file system `root`.
/// Without NVIDIA's if CUDA_VISIBLE_DEVICES hides all of them.
std::vector<Device::Type> devices_of_machine(const std::filesystem::path& root);
/// The kinds of devices in "/", as found at the first call.
const std::vector<Device::Type>& devices_of_machine();

/// The backend that serves a kind of device if none is named: native, nccl, rccl, hccl, xccl.
std::string_view usual_backend(Device::Type type);

/// The backend that get_backend() names for a group with these devices: the one of host memory if it is not native;
/// else the one of the first kind in `machine` whose backend in `devices` is the usual one, as in groups made without a
/// backend's name; else the first of `devices`.
const std::string& main_backend(const Devices& devices, const std::vector<Device::Type>& machine);

/// The default timeout of a group's operations: 10 minutes if all its backends are NCCL or similar libraries, whose
/// kernels occupy the device while they wait; else 30.
std::chrono::milliseconds default_timeout_of(const Devices& devices);

}  // namespace tutti::backend
