# Trains with torchrun, one worker on a GPU of each of two to four nodes. Submit it by: evenstep nomad run torchrun.nomad.hcl
job "train" {
  type = "batch"

  meta {
    evenstep = "workload=resnet50-amp global_batch=1024 samples=90e6 workers=2-4"
  }

  group "worker" {
    count = 2 # the plan may give it another; this one holds where Nomad places it by itself

    # Where torchrun's agents meet: the port of the allocation with index 0, which the others find by this service.
    network {
      port "rdzv" {}
    }
    service {
      name     = "evenstep-rdzv"
      provider = "nomad"
      port     = "rdzv"
      tags     = ["${NOMAD_ALLOC_NAME}"]
    }

    # When one node is gone, the workers on the others end, and start again with the one that takes its place.
    restart {
      attempts = 10
      interval = "1h"
      delay    = "15s"
      mode     = "delay"
    }

    task "train" {
      driver = "raw_exec"

      config {
        command = "/bin/sh"
        args = ["-c", <<-EOT
          for second in $(seq 600); do . "$NOMAD_TASK_DIR/evenstep.sh" && break; sleep 1; done
          exec torchrun --nnodes="$EVENSTEP_NODES" --nproc-per-node=1 --rdzv-backend=evenstep --rdzv-id="$EVENSTEP_RUN_ID" \
            --rdzv-endpoint="$EVENSTEP_ENDPOINT" --rdzv-conf="is_host=$EVENSTEP_IS_HOST" --local-addr="$NOMAD_IP_rdzv" \
            /srv/train.py
        EOT
        ]
      }

      template {
        destination = "local/evenstep.sh"
        change_mode = "noop" # a worker that runs is never disturbed; one that starts again reads it anew
        wait {
          min = "1s"
          max = "5s"
        }
        data = <<-EOT
          # Where Evenstep did not place the job, the count of the group holds.
          export EVENSTEP_NODES=2 EVENSTEP_RUN_ID='{{ env "NOMAD_JOB_ID" }}'
          {{- $path := printf "nomad/jobs/%s" (env "NOMAD_JOB_ID") }}
          {{- $rank := printf "evenstep_node_rank_%s" (env "node.unique.id") }}
          {{- if nomadVarExists $path }}{{ with nomadVar $path }}{{ range .Tuples }}
          {{- if .K | regexMatch "^evenstep_(nodes|run_id|batch_sizes|workload|policy)$" }}
          export {{ .K | toUpper }}='{{ .V }}'
          {{- else if eq .K $rank }}
          export EVENSTEP_NODE_RANK='{{ .V }}'
          {{- else if eq .K "evenstep_core" }}
          [ -S '{{ .V | replaceAll "unix:" "" }}' ] && export EVENSTEP_ADDR='{{ .V }}'
          {{- end }}{{ end }}{{ end }}{{ end }}
          {{- $first := printf "%s.%s[0]" (env "NOMAD_JOB_ID") (env "NOMAD_GROUP_NAME") }}
          {{- range nomadService "evenstep-rdzv" }}{{ if .Tags | contains $first }}
          export EVENSTEP_ENDPOINT='{{ .Address }}:{{ .Port }}'
          {{- end }}{{ end }}
          export EVENSTEP_IS_HOST={{ if eq (env "NOMAD_ALLOC_INDEX") "0" }}true{{ else }}false{{ end }}
          [ -n "$EVENSTEP_ENDPOINT" ]
        EOT
      }

      resources {
        cpu    = 2000
        memory = 8192
        device "evenstep/gpu" {
          count = 1
        }
      }
    }
  }
}
