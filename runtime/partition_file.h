#pragma once

#include <pcg/options.h>

#include <string>

namespace pcg {

/// Partitions the TorchScript archive `input` into the archive `output` and
/// returns the report as JSON (PartitionReport::json). Extra files of the
/// archive are carried over; tensors stay on the devices they are stored for.
///
/// Hosts that have loaded libpcg reach it as the operator
/// `pcg::partition_file`, from Python as `torch.ops.pcg.partition_file`. That
/// serves models whose operators come from a library which only such a host
/// can load, as torchvision's needs Python. `output` is written only where
/// everything before it has worked, and is replaced in one step.
///
/// Throws std::runtime_error that names the file where one cannot be read,
/// partitioned or written.
std::string partitionFile(const std::string& input, const std::string& output,
                          const PartitionOptions& options);

}  // namespace pcg
