# The controller as a job of Nomad's: nomad job run controller.nomad.hcl
job "evenstep-controller" {
  type = "service"

  group "controller" {
    count = 1 # of several only one steers at a time

    task "controller" {
      driver = "raw_exec"

      config {
        command = "/usr/local/bin/evenstep"
        args    = ["nomad", "controller", "--profiles=${NOMAD_TASK_DIR}/profiles.json"]
      }

      env {
        NOMAD_ADDR      = "http://127.0.0.1:4646" # the agent of the node that it runs on
        NOMAD_NAMESPACE = "default"               # * for all; policy.hcl then needs the others as well
      }

      # Where ACLs are on, the token is in the job's own Variable. The job's identity is not enough: Nomad 1.6 makes no plan
      # for one.
      template {
        destination = "secrets/nomad.env"
        env         = true
        data        = <<-EOT
          {{ if nomadVarExists "nomad/jobs/evenstep-controller" }}{{ with nomadVar "nomad/jobs/evenstep-controller" }}
          NOMAD_TOKEN={{ .token }}
          {{ end }}{{ end }}
        EOT
      }

      # Samples per second of one device, by workload and model. In its place: --core=ADDRESS of a core that holds profiles.
      template {
        destination = "local/profiles.json"
        change_mode = "noop" # it is read anew in each round
        data        = <<-EOT
          {
            "resnet50-amp": { "NVIDIA A100-SXM4-40GB": 900, "Tesla T4": 150 }
          }
        EOT
      }

      resources {
        cpu    = 200
        memory = 128
      }
    }
  }
}
