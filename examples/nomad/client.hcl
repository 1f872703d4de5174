# For the configuration of a Nomad client with GPUs: evenstep-device shows them, and how fast they are.
# docs/nomad-device.md says how it is installed.

# Nomad starts everything in here, and does not start where something is no plugin of its own.
plugin_dir = "/opt/nomad/plugins"

client {
  enabled = true
}

# From 1.10 on Nomad leaves out a plugin that has no such block.
plugin "evenstep-device" {
  config {
    # Of the node's agent. This is where it is looked for without the line.
    agent = "unix:/run/evenstep/agent.sock"
  }
}
