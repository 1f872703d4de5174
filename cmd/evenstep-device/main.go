// Command evenstep-device is a device plugin of Nomad's: it shows the node's GPUs and how fast they are.
// docs/nomad-device.md says how it is installed.
package main

import "github.com/evenstep/evenstep/nomad/device"

// version is evenstep's, which a test compares.
const version = "0.1.0"

func main() { device.Serve(version) }
