// Command evenstep-devices-nvml is a plugin of kind devices: it reports NVIDIA GPUs.
package main

import (
	"os"

	"github.com/evenstep/evenstep/plugin/devices"
	"github.com/evenstep/evenstep/plugin/devices/nvml"
)

// version is evenstep's, which a test compares.
const version = "0.1.0"

func main() { devices.Serve(version, nvml.New(os.Getenv("EVENSTEP_NVML_LIBRARY"))) }
