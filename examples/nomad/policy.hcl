# What the controller may do, and nothing else; docs/nomad.md says how to apply it.

namespace "default" {
  capabilities = ["list-jobs", "read-job", "submit-job"]

  variables {
    # What tasks are to know of their plan. Users' own items in these Variables are kept.
    path "nomad/jobs/*" {
      capabilities = ["list", "read", "write", "destroy"]
    }
    # Which of several controllers steers.
    path "evenstep/controller" {
      capabilities = ["read", "write"]
    }
  }
}

node {
  policy = "read"
}
