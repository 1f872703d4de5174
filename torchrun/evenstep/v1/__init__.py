"""The wire between a training job and the core, generated from proto/evenstep/v1."""
